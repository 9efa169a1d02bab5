"""Swaps for the sake of zones, which round-robin and co-partitioned share."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from muster.core.assignors.zones import swap_home
from tests.support.examples import examples

ZONE_OF = {"a": "x", "b": "x", "c": "y", "d": "z", "e": None}

some = examples(200)
deals = st.lists(
    st.tuples(st.sampled_from(sorted(ZONE_OF)), st.sampled_from(["x", "y", "z", "elsewhere", None])),
    max_size=20,
)


def at_home(owners: list[str], wanted: list[str | None]) -> int:
    return sum(
        rack is not None and ZONE_OF[owner] == rack for owner, rack in zip(owners, wanted, strict=True)
    )


@some
@given(deal=deals)
def test_swaps_bring_as_many_home_as_there_are_places_in_their_zone(
    deal: list[tuple[str, str | None]],
) -> None:
    before, wanted = [owner for owner, _ in deal], [rack for _, rack in deal]
    owners = list(before)
    swap_home(owners, wanted, ZONE_OF)
    places, asked = Counter(ZONE_OF[owner] for owner in before), Counter(wanted)
    assert Counter(owners) == Counter(before)
    assert at_home(owners, wanted) == sum(min(places[zone], asked[zone]) for zone in ("x", "y", "z"))


@some
@given(deal=deals, kept_from=st.sets(st.tuples(st.sampled_from(sorted(ZONE_OF)), st.integers(0, 19))))
def test_swaps_give_nothing_to_a_consumer_that_may_not_take_it(
    deal: list[tuple[str, str | None]], kept_from: set[tuple[str, int]]
) -> None:
    before, wanted = [owner for owner, _ in deal], [rack for _, rack in deal]
    owners = list(before)
    swap_home(owners, wanted, ZONE_OF, lambda place, consumer: (consumer, place) not in kept_from)
    assert Counter(owners) == Counter(before)
    assert at_home(owners, wanted) >= at_home(before, wanted)
    moved = {
        (owner, place) for place, (owner, old) in enumerate(zip(owners, before, strict=True)) if owner != old
    }
    assert not moved & kept_from
