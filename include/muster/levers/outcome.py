"""Who pulls a lever and why, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST = 1_000
"""Characters of a name, a reason or a list of partitions."""


class LeverError(ValueError):
    """What was asked cannot be done; nothing was written. The message names the reason and the alternatives."""


@dataclass(frozen=True, slots=True)
class Word:
    """`who` asks, `why`, and when (`at`, seconds since the epoch).

    Raises `LeverError` without a why, and for words that cannot stand beside a decision: too long, or no Unicode.
    """

    who: str
    why: str
    at: float

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise LeverError("no reason was given; say why; it is recorded in the audit history")
        for what, text in (("reason", self.why), ("name of who decided it", self.who)):
            brief(what, text)
            if not text.isprintable() and text.encode("utf-8", "replace").decode() != text:
                raise LeverError(f"the {what} is not Unicode: {text[:100]!r}; write it again")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a lever did: `lines` in words, and `values` (plain JSON-able ones) to keep. `lever` is its name."""

    lines: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    lever: str = ""


def pulled(lever: str, cluster: str, word: Word, lines: Iterable[str], **values: Any) -> Outcome:
    """The outcome of `lever` in `cluster`: what it did, beside who pulled it, when and why."""
    kept = {"cluster": cluster, **values, "reason": word.why, "who": word.who, "at": word.at}
    return Outcome(tuple(lines), kept, lever)


def brief(what: str, text: str) -> str:
    """Return `text`, given as `what`, or raise `LeverError` if it is longer than `LONGEST`."""
    if len(text) > LONGEST:
        raise LeverError(f"the {what} has {len(text)} characters; {LONGEST} are the most, be brief")
    return text


def listed(names: Mapping[str, Any] | set[str] | frozenset[str] | tuple[str, ...]) -> str:
    """The names in order, `none` if there are none."""
    return ", ".join(sorted(names)) or "none"
