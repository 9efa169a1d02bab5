"""Options that several benchmarks have, and files that keep what one has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

OUTPUT = click.option(
    "--output",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(__file__).parents[1],
    help="Where report and plot go.",
)
RESULTS = click.option(
    "--results",
    "kept",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that keeps what is measured: the report is on all that is in it, so a run can be made in parts, by "
    "the other options.",
)


class Keeper:
    """Keeps results of type `of` in a file."""

    def __init__(self, of: Any) -> None:
        self._json = TypeAdapter(of)

    def load(self, file: Path | None) -> Any:
        """Read what `save` wrote, None if there is no file. Raises ValueError if it is something else."""
        try:
            return self._json.validate_json(file.read_bytes()) if file else None
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise ValueError(f"{file}: not results of this benchmark: {error.errors()[0]['msg']}") from error

    def save(self, file: Path | None, results: Any) -> None:
        """Write all of `results`, if there is a file for it."""
        if file:
            file.write_bytes(self._json.dump_json(results))


def newest(earlier: Iterable[T], later: Iterable[T], key: Callable[[T], Any]) -> tuple[T, ...]:
    """Join figures in the order of their `key`: one of `later` replaces an earlier one with the same key."""
    found = {key(figure): figure for figure in (*earlier, *later)}
    return tuple(found[each] for each in sorted(found))
