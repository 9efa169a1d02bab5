"""What a command is: an act of a person on a cluster, described once for every surface that offers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.core.overrides import Override, Overrides

LONGEST = 1_000
"""Characters of a name, a reason or a list of partitions."""

PARTITION_LIST = r"^\s*\d{1,10}(\s*-\s*\d{1,10})?(\s*,\s*\d{1,10}(\s*-\s*\d{1,10})?)*\s*$"
"""A list such as `0-3,7`, as a regular expression that forms can check too."""

WHOLE_NUMBER = r"^\d{1,18}$"
"""A whole number from 0, as forms can check it too."""

MOST_PARTITIONS = 100_000
"""Partitions in one list; more are a slip of the finger."""

SHOWN = 30
"""Partitions that a preview names one by one, unless all are asked for."""


class CommandError(ValueError):
    """The command cannot be carried out; nothing was written. The message names the reason and the alternatives."""


def brief(what: str, text: str) -> str:
    """Return `text`, given as `what`, or raise `CommandError` if it is longer than `LONGEST`."""
    if len(text) > LONGEST:
        raise CommandError(f"the {what} has {len(text)} characters; {LONGEST} are the most, be brief")
    return text


def listed(names: Iterable[str]) -> str:
    """Return the names in order, `none` if there are none."""
    return ", ".join(sorted(names)) or "none"


def parse_partitions(text: str) -> frozenset[int]:
    """Read `0-3,7`: numbers and ranges (both ends included) between commas. Raises `CommandError` for anything
    else."""
    if not re.fullmatch(PARTITION_LIST, text):
        raise CommandError(f"partitions {text!r}: write numbers and ranges between commas, such as 0-3,7")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise CommandError(f"partitions {text!r}: {part.strip()} goes backwards; write {end}-{begin}")
        if len(found) + end - begin >= MOST_PARTITIONS:
            raise CommandError(
                f"partitions {text!r}: these are more than {MOST_PARTITIONS}; name fewer at once"
            )
        found.update(range(begin, end + 1))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who gives a command (`name`), for what `reason`, and when (`at`, seconds since the epoch).

    Raises `CommandError` without a reason, and for texts that are too long, or have characters that cannot be shown:
    a line break would forge a line wherever it is printed.
    """

    name: str
    reason: str
    at: float

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise CommandError("no reason was given; say why; it is recorded in the audit history")
        for what, text in (("reason", self.reason), ("name of who decided it", self.name)):
            brief(what, text)
            if not text.isprintable():
                raise CommandError(
                    f"the {what} {text[:100]!r} has characters that cannot be shown, like a line break; correct it"
                )

    def __str__(self) -> str:
        return f"{self.reason} (by {self.name})"

    def values(self) -> dict[str, Any]:
        """Return what an outcome and an event say of it."""
        return {"reason": self.reason, "who": self.name, "at": self.at}


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """What a command did: `lines` in words, and `values` (JSON-able) to keep. `name` is what the history calls it, if
    not by the command's name. `failure` ended it before it was through; it is raised when the rest is recorded."""

    lines: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    failure: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a command would do: a line a partition, a `summary` in lines, and `values` (JSON-able) with all of it."""

    partitions: tuple[str, ...]
    summary: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, most: int | None = SHOWN) -> tuple[str, ...]:
        """Return it in words, with the first `most` partitions; None for all of them."""
        shown = self.partitions[:most]
        more = len(self.partitions) - len(shown)
        return (*shown, *([f"and {more} more partition(s)"] if more else []), *self.summary)


class Kind(StrEnum):
    """What a field holds. Each surface renders a kind in one way; `Field.read` says what the action is given."""

    CONSUMER = "consumer"
    TOPIC = "topic"
    PARTITIONS = "partitions"
    NUMBER = "number"
    """A whole number from 0."""
    FLAG = "flag"
    """Yes or no."""
    DESTINATION = "destination"
    """Where a partition goes on, as `muster.core.seeking` reads it."""
    SOURCE = "source"
    """Where offsets are imported from: the name of a group or connection, or a path."""
    TEXT = "text"
    """Any words."""
    ASSIGNOR = "assignor"
    """An assignor with its options, or none: the one of the settings."""


@dataclass(frozen=True, slots=True)
class NamedAssignor:
    """An assignor by name or dotted path, with its options. Not checked."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """Something that a command has to be given besides cluster and reason."""

    name: str
    kind: Kind
    label: str
    hint: str = ""
    optional: bool = False
    """Whether it may be left empty: a topic, source or text is then '', partitions are none."""

    @property
    def empty(self) -> str:
        """What it means to leave the field empty, to complete "leave it empty"; '' if nothing."""
        return "" if self.kind is Kind.SOURCE else " to mean all"

    def read(self, given: Mapping[str, Any]) -> Any:
        """Return the field's value in `given`, the command's body in the HTTP API.

        A set of numbers for partitions, an integer for numbers, True or False for flags, `NamedAssignor` or None for
        assignors, and text for all others. Raises `CommandError` for anything else.
        """
        value = given.get(self.name)
        if self.optional and value in (None, ""):
            return frozenset() if self.kind is Kind.PARTITIONS else ""
        if self.kind is Kind.FLAG:
            return bool(value)
        if self.kind is Kind.ASSIGNOR:
            return None if value is None else _assignor(value)
        text = brief(self.name, str(value)).strip()
        if self.optional and not text:
            raise CommandError(f"{self.name} is blank; leave it empty{self.empty}, or name one")
        if self.kind in {Kind.SOURCE, Kind.TEXT} and not text.isprintable():
            raise CommandError(f"{self.name} {text[:100]!r} has characters that cannot be shown; correct it")
        if self.kind is Kind.NUMBER:
            return _number(self.name, text)
        return parse_partitions(text) if self.kind is Kind.PARTITIONS else text


def _number(name: str, text: str) -> int:
    if not re.fullmatch(WHOLE_NUMBER, text):
        raise CommandError(f"{name} {text[:100]!r}: write a whole number from 0")
    return int(text)


def _assignor(value: Mapping[str, Any]) -> NamedAssignor:
    options = value.get("options") or {}
    if not isinstance(options, Mapping):
        raise CommandError(
            f'options are {str(options)[:100]!r}; give a JSON object, such as {{"budget": 10}}'
        )
    return NamedAssignor(brief("assignor", str(value["name"])).strip(), dict(options))


@dataclass(frozen=True, slots=True)
class Standing:
    """An override in force: `on` says by field what it is about, `does` what it does if that does not say all;
    `override` has its author and reason."""

    on: Mapping[str, Any]
    override: Override
    does: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One command, as every surface offers it.

    `run` takes target, actor and the values of `fields` by name; it returns a `CommandOutcome`, or raises
    `CommandError` after which nothing is written. A command that leaves an override names the command that takes it
    back (`undo`), the override in an adjective (`override`) and those in force (`standing`). `unavailable` says why
    the command makes no sense now, '' if it does. `foresee` returns what `run`, with the same arguments, would do
    (`Foreseen`); each surface offers that before, and it changes nothing.

    Texts: `label` is the button, `title` completes "Muster: ...", `summary` is one sentence, `documentation` the
    rest, `question` is what the page asks (fields and `cluster` in braces), `did` completes "ann ...". `risky` marks
    what takes capacity away. `preview` is what the page's preview supposes (`WhatIfRequest`; fields in braces), None
    for no preview.
    """

    name: str
    label: str
    title: str
    summary: str
    question: str
    did: str
    run: Callable[..., CommandOutcome]
    fields: tuple[Field, ...] = ()
    undo: str = ""
    override: str = ""
    standing: Callable[[Overrides], Iterable[Standing]] = lambda _: ()
    documentation: str = ""
    risky: bool = False
    preview: Mapping[str, Any] | None = None
    foresee: Callable[..., Foreseen] | None = None
    unavailable: Callable[[Overrides], str] = lambda _: ""

    @property
    def subject(self) -> str:
        """What the command is about: `record`, `partitions`, the kind of its first field, or `cluster`."""
        kinds = [each.kind for each in self.fields if each.kind is not Kind.DESTINATION]
        if Kind.NUMBER in kinds:
            return "record"
        if any(each.kind is Kind.PARTITIONS and not each.optional for each in self.fields):
            return str(Kind.PARTITIONS)
        return str(kinds[0]) if kinds else "cluster"
