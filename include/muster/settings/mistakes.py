"""What is wrong in the settings, in words: one line a mistake, with file, line, key, and what was perhaps meant.

A key that Kafka or Spark has under another name is refused with Muster's name for it.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from muster.settings.marked_yaml import MarkedYaml

ELSEWHERE: Mapping[str, str] = {
    "auto.offset.reset": "a partition without a committed offset is read from its earliest record",
    "bootstrap.servers": "the brokers belong into the Airflow connection that 'kafka' names",
    "client.rack": "use 'zone' under 'consumers.metadata'",
    "foreachBatch": "use 'consumers.handler'",
    "group.id": "use 'group_id'",
    "max.poll.records": "use 'consumers.max_records_per_batch'",
    "maxOffsetsPerTrigger": "use 'consumers.max_records_per_batch'",
    "partition.assignment.strategy": "use 'assignor'",
    "processingTime": "use 'consumers.trigger_interval'",
    "startingOffsets": "use 'consumers.source_options'",
    "subscribe": "use 'topics', a list of names",
    "subscribePattern": "use 'topics: {patterns: [...]}'",
}
"""Keys by their names in Kafka and Spark, and what stands for them in Muster."""
_ALSO = {
    "kafka.bootstrap.servers": "bootstrap.servers",
    "kafka.group.id": "group.id",
    "groupId": "group.id",
    "topic": "subscribe",
    "pattern": "subscribePattern",
}
_TYPES = {
    "dict_type": "expected keys and values",
    "model_type": "expected keys and values",
    "tuple_type": "expected a list, such as [a, b]",
    "missing": "is missing; add it",
}
"""What pydantic says in terms of Python, in terms of the file."""


class SettingsFile:
    """A file with its document, for errors that say where in it something is wrong."""

    def __init__(self, path: Path, document: MarkedYaml, model: type[BaseModel]) -> None:
        self._path = path
        self._document = document
        self._model = model

    def place(self, *location: str | int) -> str:
        """Tell where in the file that is: `path:line`."""
        return f"{self._path}:{self._document.line(location)}"

    def error(self, cluster: str, message: str) -> str:
        """Return the error that concerns a cluster as a whole."""
        return f"{self.place('clusters', cluster)}: cluster {cluster!r}{message}"

    def cluster_errors(self, cluster: str, error: ValidationError) -> str:
        """Return a line for each mistake in a cluster's entry."""
        return "\n".join(self._lines(("clusters", cluster), f"cluster {cluster!r}", self._model, error))

    def errors(self, key: str, model: type[BaseModel], error: ValidationError) -> str:
        """Return a line for each mistake in the entry of another top-level key."""
        return "\n".join(self._lines((key,), repr(key), model, error))

    def _lines(
        self, start: tuple[str, ...], what: str, model: type[BaseModel], error: ValidationError
    ) -> Iterator[str]:
        for item in error.errors(include_url=False):
            location, kind = item["loc"], item["type"]
            key = ".".join(map(_shown, location)) or "(the whole entry)"
            message = _TYPES.get(kind, item["msg"].removeprefix("Value error, "))
            if kind == "extra_forbidden":
                message = f"unknown key; {suggest(str(location[-1]), location[:-1], model)}"
            elif kind != "missing" and not isinstance(item["input"], dict | list | tuple):
                message += f" (given: {reprlib.repr(item['input'])})"
            yield f"{self.place(*start, *location)}: {what}, key '{key}': {message}"


def suggest(key: str, within: tuple[str | int, ...], model: type[BaseModel]) -> str:
    """Say what is meant by an unknown `key` at the place `within` of `model`, or else what is allowed there."""
    if said := ELSEWHERE.get(_ALSO.get(key, key)):
        return said
    inner = model
    for part in within:
        inner = _model_of(inner, str(part)) or inner
    allowed = allowed_keys(inner)
    if close := difflib.get_close_matches(key, allowed, n=1):
        return f"did you mean {close[0]!r}?"
    for name in model.model_fields:
        other = _model_of(model, name)
        if other is not None and other is not inner and key in allowed_keys(other):
            return f"it belongs under {name!r}"
    if inner is not model and key in allowed_keys(model):
        return "it belongs one level up, to the cluster itself"
    return f"allowed are: {', '.join(allowed)}"


def allowed_keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of an entry, sorted. A cluster's name is the key of its entry, not in it."""
    return sorted(
        model.model_fields.keys() - {"name"} if "group_id" in model.model_fields else model.model_fields
    )


def _model_of(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the model of the entries under `key`, None if there is none: those of a list or mapping, too."""
    if key not in model.model_fields:
        return None
    waiting: list[Any] = [model.model_fields[key].annotation]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
        waiting += get_args(each)
    return None


def _shown(part: str | int) -> str:
    text = str(part)[:100]
    return text if text.isprintable() else repr(text)
