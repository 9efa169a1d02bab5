"""The options that suppose something (`--with`, `--without`, `--partitions`, `--assignor-option`), from text."""

from __future__ import annotations

import math
from typing import Any

import click
import yaml

from muster.core.preview import ATTRIBUTES, Joining
from muster.core.wire import WireError, check_id, check_topic
from muster.edges.consul_members import GREATEST_WEIGHT


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
        raise ValueError(f"{text!r} is not key=value, such as {ATTRIBUTES}")
    if key == "weight":
        return key, _weight(value)
    if key == "priority":
        return key, _priority(value)
    if key == "zone":
        return key, value or None
    if key == "topics":
        return key, frozenset(check_topic(name.strip()) for name in value.split("|") if name.strip()) or None
    raise ValueError(f"unknown attribute {key!r}; known are {ATTRIBUTES}")


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= GREATEST_WEIGHT:
        raise ValueError(f"weight {text!r} is not a number above 0 and up to {GREATEST_WEIGHT:g}")
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
