"""The rules of the protocol of state that are the product's own code, left out one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from muster.consumer.state import shards, stores
from muster.consumer.state.position import Position, TakenUp
from muster.core.positions import Committed

RETENTION = 40
"""For how long the changelog keeps deletions."""


@contextmanager
def leaving_out(rule: str) -> Iterator[None]:
    """Leave out a rule that is the product's own code."""
    patches: dict[str, tuple[str, Any]] = {
        "compare": ("take_up", _take_all),
        "compare_all": ("take_up", _take_by_offset),
        "watermark": ("moved", lambda now, *more: _with_places(_moved(now, *more), now, "top")),
        "skip": ("moved", lambda *what: _with_places(_moved(*what), None, "done")),
        "every_place": ("take_up", _take_by_first),
        "whole_seek": ("_of_all", lambda *_: True),
        "rebuild": ("moved", lambda now, *more: replace(_moved(now, *more), rebuild=now.rebuild)),
        "history": ("follows", lambda *_: True),
        "choice": ("take_up", _take_any_choice),
        "afresh": ("_is_outdated", lambda _, read, before: bool(read) and not shards.follows(read, before)),
        "orphans": ("take_up", lambda *what: _taken(*what[:5])),
    }
    name, value = patches.get(rule, ("take_up", shards.take_up))
    oldest = float("inf") if rule == "age" else RETENTION / 2
    with mock.patch.object(stores, "OLDEST", oldest), mock.patch.object(shards, name, value):
        yield


def _with_places(new: Position, old: Position | None, name: str) -> Position:
    """Return `new` with a field of its places as in `old`, or 0."""
    values = {topic: 0 if old is None else getattr(old.places[topic], name) for topic in new.places}
    return replace(new, places={t: replace(place, **{name: values[t]}) for t, place in new.places.items()})


_taken, _moved = shards.take_up, shards.moved


Found = Mapping[str, Committed | None]


def _take_all(found: Position | None, committed: Found, *more: Any) -> TakenUp:
    taken = _taken(found, committed, *more)
    return TakenUp(found) if taken.position is None and found is not None else taken


def _take_any_choice(
    found: Position | None, committed: Found, topic_ids: Mapping[str, str], seek: str, *more: int
) -> TakenUp:
    taken = _taken(found, committed, topic_ids, seek and f"{seek}-again", *more)
    return replace(taken, chosen=seek) if taken.chosen else taken


def _take_by_first(found: Position | None, committed: Found, *more: Any) -> TakenUp:
    """Compare the first topic alone."""
    taken = _taken(found, committed, *more)
    if taken.position is not None or found is None:
        return taken
    first = min(committed)
    alone = replace(found, places={first: found.places[first]})
    same = _taken(alone, {first: committed[first]}, {first: "id"}).position is not None
    return TakenUp(found) if same else taken


def _take_by_offset(found: Position | None, committed: Found, *more: Any) -> TakenUp:
    taken = _taken(found, committed, *more)
    there = {topic: None if one is None else one.offset for topic, one in committed.items()}
    same = found is not None and {t: place.offset for t, place in found.places.items()} == there
    return TakenUp(found) if taken.position is None and same else taken
