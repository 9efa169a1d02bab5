"""The requested part of a list: filtered, sorted and cut. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

from muster.cluster.state import ClusterState

Order = Literal["asc", "desc"]


class _Row(Protocol):
    @property
    def state(self) -> str: ...


R = TypeVar("R", bound=_Row)
Key = Callable[[R], float | str | None]


def once_a_state(make: Callable[[ClusterState], list[R]]) -> Callable[[ClusterState], list[R]]:
    """Make the rows of a state once, however many ask for a part of them."""
    made: WeakKeyDictionary[ClusterState, list[R]] = WeakKeyDictionary()

    def rows(state: ClusterState) -> list[R]:
        if state not in made:
            made[state] = make(state)
        return made[state]

    return rows


@dataclass(frozen=True)
class Asked:
    """Which part of a list: of this state, with `search` (in any case) in a name, so many from `offset` on."""

    state: str | None = None
    search: str = ""
    order: Order = "asc"
    offset: int = 0
    limit: int = 50


def window(
    rows: Iterable[R], asked: Asked, key: Key[R], texts: Callable[[R], Iterable[str]]
) -> tuple[list[R], int]:
    """Return the rows that were asked for, sorted by `key`, and how many there are before they are cut.

    `texts` are those of a row that `search` may be in. What has no key comes last, in either order.
    """
    words = asked.search.casefold()
    fits = [
        row
        for row in rows
        if asked.state in {None, row.state} and any(words in text.casefold() for text in texts(row))
    ]
    return _sorted(fits, key, asked.order)[asked.offset : asked.offset + asked.limit], len(fits)


def _sorted(rows: Sequence[R], key: Key[R], order: Order) -> list[R]:
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=order == "desc"), *unknown]  # type: ignore[arg-type]
