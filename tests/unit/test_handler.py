"""Handlers found by their dotted paths, and errors that name them."""

from __future__ import annotations

from typing import Any

import pytest

from muster.consumer.handler import HandlerError, Handlers, load_handler
from muster.handlers.parquet import ParquetHandler

HERE = __name__


def function(batch_df: Any, batch: Any) -> None: ...


def one_argument(batch_df: Any) -> None: ...


async def asynchronous(batch_df: Any, batch: Any) -> None: ...


def generator(batch_df: Any, batch: Any) -> Any:
    yield batch_df


class Made:
    def __init__(self, size: int = 1) -> None:
        if size < 1:
            raise ValueError("size is at least 1")
        self.size = size

    def __call__(self, batch_df: Any, batch: Any) -> None: ...


class AsyncMade:
    async def __call__(self, batch_df: Any, batch: Any) -> None: ...


class NotCallable: ...


class ToldTooMuch(Made):
    def assigned(self) -> None: ...


class AsyncClose(Made):
    async def close(self) -> None: ...


class NoMethod(Made):
    standby = "yes"


number = 3


def test_function_is_loaded_as_a_handler() -> None:
    assert load_handler(f"{HERE}.function", {}) is function


def test_first_expression_that_matches_the_whole_topic_names_its_handler() -> None:
    handlers = Handlers(("flights", "flights-.*", ".*"), (function, function, function, function))
    assert [handlers.number_of(topic) for topic in ("flights", "flights-eu", "trains")] == [0, 1, 2]
    assert Handlers(("flights",), (function, function)).number_of("flights-eu") == 1


def test_a_class_is_made_with_its_options() -> None:
    handler = load_handler(f"{HERE}.Made", {"size": 5})
    assert isinstance(handler, Made)
    assert handler.size == 5


@pytest.mark.parametrize(
    ("path", "options", "says"),
    [
        ("nodots", {}, "not a dotted path"),
        ("no.such_module.process", {}, "cannot be imported"),
        (f"{HERE}.missing", {}, "has no 'missing'"),
        (f"{HERE}.number", {}, "a int cannot be called"),
        (f"{HERE}.function", {"a": 1}, "a function takes no handler_options"),
        (f"{HERE}.one_argument", {}, "cannot be called with"),
        (f"{HERE}.asynchronous", {}, "is async"),
        (f"{HERE}.AsyncMade", {}, "is async"),
        (f"{HERE}.generator", {}, "is a generator"),
        (f"{HERE}.Made", {"colour": 1}, "unexpected keyword"),
        (f"{HERE}.Made", {"size": 0}, "size is at least 1"),
        (f"{HERE}.NotCallable", {}, "a NotCallable cannot be called"),
        (f"{HERE}.ToldTooMuch", {}, r"cannot be called with \(partitions\)"),
        (f"{HERE}.AsyncClose", {}, "is async"),
        (f"{HERE}.NoMethod", {}, "its 'standby' is no method"),
    ],
)
def test_unusable_handler_is_named(path: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(HandlerError, match=says) as raised:
        load_handler(path, options)
    assert path in str(raised.value)


def test_parquet_takes_variables_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PLACE", "/data")
    assert ParquetHandler("${SOME_PLACE}/flights").path.startswith("/data/flights/")


def test_parquet_names_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_PLACE", raising=False)
    with pytest.raises(HandlerError, match="SOME_PLACE"):
        load_handler("muster.handlers.parquet.ParquetHandler", {"path": "${SOME_PLACE}/flights"})
