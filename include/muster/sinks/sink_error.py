"""The error of a sink, and how it comes from a task of Spark to the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_CAUSE = re.compile(r"\s*(?:\x1b\[\d*m)*\u21b3(?:\x1b\[\d*m)*\s*")
_RAISED = re.compile(r"^(?:[\w.]*\.)?SinkError: (.*)$", re.MULTILINE)
_OF_ROWS = "muster_of_rows"


class SinkError(RuntimeError):
    """The sink cannot be written to; the message names the table and the next step. No record is at fault for it."""


@contextmanager
def bookkeeping(sink: str, *told_apart: type[Exception]) -> Iterator[None]:
    """Raise `SinkError` for each error inside, except errors of the rows (`of_rows`) and those that the caller tells
    apart."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (SinkError, *told_apart)) or hasattr(error, _OF_ROWS):
            raise
        raise SinkError(
            f"{sink}: unexpected {type(error).__name__}: {plain(error)}; the batch comes again. If the error stays, "
            "see its traceback in the driver's log"
        ) from error


@contextmanager
def of_rows() -> Iterator[None]:
    """Let errors inside, which the rows of the batch have caused, pass `bookkeeping` as they are."""
    try:
        yield
    except Exception as error:
        setattr(error, _OF_ROWS, True)
        raise


def superseded(sink: str, tp: tuple[str, int], rebuild: int, newer: int) -> SinkError:
    """Return the error of a writer whose partition was rebuilt since."""
    return SinkError(
        f"{sink}: topic {tp[0]!r}, partition {tp[1]} was rebuilt as number {newer}, and this consumer knows of "
        f"number {rebuild}, so nothing is written. If the partition has another owner by now, nothing is to be done. "
        "Otherwise the number was lost with the committed offset: begin another rebuild where the partition stands, "
        f"with 'muster seek {tp[0]} {tp[1]} --to +0 --rebuild'"
    )


def from_task(error: Exception) -> SinkError | None:
    """Return the `SinkError` that a task raised, if that is what Spark reports with `error`."""
    found = _RAISED.search(str(error))
    return SinkError(found[1].strip()) if found else None


def plain(error: Exception) -> str:
    """Return in one line what `deltalake` says in several, with arrows and colours."""
    return _CAUSE.sub(": ", str(error)).strip()
