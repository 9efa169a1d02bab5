"""The user's code: `process(batch_df, batch)`, found by its dotted path.

The path names a function, or a class that is called with `handler_options` and gives a callable. It is called
once for each batch that has records, in order; when it returns, the batch's offsets are committed, and when it
raises, the records come again. What else it may have, `muster.consumer.serial_handler` says.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from muster.settings.consumer import ConsumerSettings
from muster.sinks.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Handler = Callable[["DataFrame", Batch], None]

ASSIGNED, REVOKED, STANDBY, CLOSE = "assigned", "revoked", "standby", "close"
_TAKES = {ASSIGNED: ["partitions"], REVOKED: ["partitions"], STANDBY: ["partitions"], CLOSE: []}
"""Methods that a handler may have, with their arguments."""


class HandlerError(ValueError):
    """The handler cannot be used; the message names its path and what to do."""


@dataclass(frozen=True)
class Handlers:
    """The handlers of a consumer: those of the topics that regular expressions match whole, and last that of the
    others."""

    patterns: tuple[str, ...]
    all: tuple[Handler, ...]

    def number_of(self, topic: str) -> int:
        """Tell which of `all` is for `topic`."""
        found = (n for n, pattern in enumerate(self.patterns) if re.fullmatch(pattern, topic))
        return next(found, len(self.patterns))


def load_handlers(settings: ConsumerSettings) -> Handlers:
    """Import the handlers of a consumer. Raises `HandlerError`."""
    of_topics = [load_handler(one.handler, one.handler_options) for one in settings.handlers.values()]
    last = load_handler(settings.handler, settings.handler_options)
    return Handlers(tuple(settings.handlers), (*of_topics, last))


def load_handler(path: str, options: Mapping[str, Any]) -> Handler:
    """Import the handler at `path`. Raises `HandlerError` if it is not there or cannot be called so."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise HandlerError(f"handler {path!r}: not a dotted path; write it as 'package.module.function'")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise HandlerError(
            f"handler {path!r}: module {module_name!r} cannot be imported: {error}; put it on the PYTHONPATH of the "
            "driver and of the executors"
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise HandlerError(f"handler {path!r}: module {module_name!r} has no {name!r}")
    if inspect.isclass(found):
        try:
            handler = found(**options)
        except (TypeError, ValueError) as error:
            raise HandlerError(f"handler {path!r}: handler_options {sorted(options)}: {error}") from error
    elif options:
        raise HandlerError(
            f"handler {path!r}: a function takes no handler_options; make it a class that takes them, or remove them"
        )
    else:
        handler = found
    _check(path, handler)
    return cast(Handler, handler)


def asks_to_know(handler: Handler) -> bool:
    """Tell whether it has a method that is to be called with what it has, has no longer, or stands by for."""
    return any(hasattr(handler, name) for name in (ASSIGNED, REVOKED, STANDBY))


def _check(path: str, handler: Any) -> None:
    if not callable(handler):
        raise HandlerError(
            f"handler {path!r}: a {type(handler).__name__} cannot be called with (batch_df, batch)"
        )
    _check_call(path, handler, ["batch_df", "batch"])
    for name, arguments in _TAKES.items():
        if (method := getattr(handler, name, None)) is not None:
            if not callable(method):
                raise HandlerError(f"handler {path!r}: its {name!r} is no method; give it another name")
            _check_call(f"{path}.{name}", method, arguments)


def _check_call(path: str, handler: Any, arguments: list[str]) -> None:
    """Raise `HandlerError` unless `handler` can be called with so many arguments, and is done when it returns."""
    called = handler if inspect.isroutine(handler) else type(handler).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise HandlerError(
            f"handler {path!r}: is async; Spark calls it in a plain thread, so write it with 'def'"
        )
    if inspect.isgeneratorfunction(called):
        raise HandlerError(
            f"handler {path!r}: is a generator, whose body would never run; remove the 'yield'"
        )
    try:
        inspect.signature(handler).bind(*arguments)
    except TypeError as error:
        raise HandlerError(
            f"handler {path!r}: cannot be called with ({', '.join(arguments)}): {error}"
        ) from error
    except ValueError:
        return  # something compiled that does not tell its signature
