"""The options that suppose something (`--with`, `--without`, `--partitions`, `--assignor-option`), from text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import yaml

from muster.core.assignors import Assignor
from muster.core.model import Consumer, Membership
from muster.core.preview import WhatIf, WhatIfError
from muster.core.wire import WireError, check_id, check_topic

_ATTRIBUTES = "weight=2, zone=b, priority=1, topics=a|b"


@dataclass(frozen=True)
class Joining:
    """`--with`: a consumer, and the attributes that were given."""

    consumer: str
    attributes: Mapping[str, Any]


class JoiningType(click.ParamType[Joining]):
    """`consumer[:key=value,...]`; topics are separated by `|`, and `topics=` means all of them."""

    name = "consumer[:weight=2,zone=b,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Joining:
        """Parse one value of the option."""
        consumer, _, rest = str(value).partition(":")
        try:
            attributes = dict(_attribute(part) for part in rest.split(",") if part.strip())
            return Joining(check_id(consumer), attributes)
        except (ValueError, WireError) as error:
            self.fail(f"{str(value)[:100]!r}: {error}", param, ctx)


def _attribute(text: str) -> tuple[str, Any]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise ValueError(f"{text!r} is not key=value, such as {_ATTRIBUTES}")
    if key == "weight":
        return key, _weight(value)
    if key == "priority":
        return key, _priority(value)
    if key == "zone":
        return key, value or None
    if key == "topics":
        return key, frozenset(check_topic(name.strip()) for name in value.split("|") if name.strip()) or None
    raise ValueError(f"unknown attribute {key!r}; known are {_ATTRIBUTES}")


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise ValueError(f"weight {text!r} is not a number above 0")
    return weight


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"priority {text!r} is not a whole number") from None


class PairType(click.ParamType[tuple[str, Any]]):
    """`key=value`; `number` says that the value has to be a whole number."""

    def __init__(self, key: str, value: str, *, number: bool = False) -> None:
        self.name = f"{key}={value}"
        self._number = number

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Parse one value of the option. Values that are no text by YAML's rules become what they look like."""
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{str(value)[:100]!r} is not {self.name}", param, ctx)
        try:
            return key, int(text) if self._number else yaml.safe_load(text)
        except (ValueError, RecursionError, yaml.YAMLError):
            self.fail(
                f"{key[:100]!r}: {text[:100]!r} is not a {'whole number' if self._number else 'value'}",
                param,
                ctx,
            )


def what_if(
    without: Sequence[str],
    joining: Sequence[Joining],
    partitions: Sequence[tuple[str, int]],
    assignor: Assignor | None,
    membership: Membership,
    left_alone: Mapping[str, str],
) -> WhatIf:
    """Put the options together. A consumer that is live keeps the attributes that are not given.

    `left_alone` maps the topics that cannot be read to the reason. Raises `WhatIfError` for options that do not fit
    what is there.
    """
    for topic, _ in partitions:
        if topic in left_alone:
            raise WhatIfError(f"topic {topic!r} cannot be read: {left_alone[topic]}")
    supposed: dict[str, Consumer] = {}
    for each in joining:
        there = membership.live.get(each.consumer)
        if there is not None and not each.attributes:
            raise WhatIfError(
                f"consumer {each.consumer!r} is live already; to suppose other attributes, name them: {_ATTRIBUTES}"
            )
        supposed[each.consumer] = replace(there or Consumer(each.consumer), **each.attributes)
    return WhatIf(frozenset(without), supposed, dict(partitions), assignor)
