"""Options of sinks and handlers, checked when these are made: errors have the option, its value, the next step."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping
from typing import Any


def expand(text: str, option: str = "path") -> str:
    """Fill in each `${VAR}` of an option from the environment. Raises ValueError for a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        if found := os.environ.get(match[1]):
            return found
        raise ValueError(f"{option!r} needs the environment variable {match[1]}, which is not set")

    return re.sub(r"\$\{(\w+)\}", value, text)


def text(option: str, given: object, such_as: str) -> str:
    """Return a text that is not empty. Raises ValueError for anything else."""
    if isinstance(given, str) and given.strip():
        return given
    raise ValueError(f"{option!r} is {reprlib.repr(given)}; give a text, such as {such_as}")


def flag(option: str, given: object) -> bool:
    """Return a truth value. Raises ValueError for anything else, a text such as 'false' among it."""
    if isinstance(given, bool):
        return given
    raise ValueError(f"{option!r} is {reprlib.repr(given)}; give true or false, without quotes")


def names(option: str, given: object) -> tuple[str, ...]:
    """Return the texts of a list. Raises ValueError for anything else, a single text among it."""
    if isinstance(given, list | tuple) and all(isinstance(each, str) and each for each in given):
        return tuple(given)
    raise ValueError(f"{option!r} is {reprlib.repr(given)}; give a list of names, such as [topic]")


def mapping(option: str, given: object, such_as: str) -> Mapping[str, Any]:
    """Return keys and values. Raises ValueError for anything else, which may be a secret and is not shown."""
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return given
    raise ValueError(f"{option!r} is {_kind(given)}; give keys and values, such as {such_as}")


def texts(option: str, given: object, such_as: str) -> dict[str, str]:
    """Return keys and texts, with variables filled in. Raises ValueError for anything else, which is not shown."""
    found = mapping(option, given, such_as)
    for name in (name for name, value in found.items() if not isinstance(value, str)):
        raise ValueError(f"'{option}.{name}' is {_kind(found[name])}; give a text, in quotes")
    return {name: expand(value, f"{option}.{name}") for name, value in found.items()}


def _kind(given: object) -> str:
    return "empty" if given is None else f"of type {type(given).__name__}"
