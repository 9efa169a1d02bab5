"""A preview is what a coordinator's runs then do, when what was supposed really happens."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.core.assignors import BUILT_IN, load_assignor
from muster.core.model import Consumer, State, TopicSnapshot
from muster.core.patience import DOUBT
from muster.core.preview import Preview, WhatIf, preview
from tests.support.examples import examples
from tests.support.runs import Topics, run, state_of
from tests.support.simulated import SimulatedCluster

ASSIGNORS = tuple(sorted(BUILT_IN))

attributes = st.builds(
    Consumer,
    id=st.just(""),
    weight=st.sampled_from([0.5, 1.0, 1.0, 2.0]),
    topics=st.sampled_from([None, None, None, frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"})]),
)


def stand_up(consumers: dict[str, Consumer], topics: Topics, assignor: str) -> SimulatedCluster:
    world = SimulatedCluster()
    change(world, consumers)
    run_until_stable(world, topics, assignor)
    return world


def change(world: SimulatedCluster, consumers: dict[str, Consumer]) -> None:
    for gone in world.consumers.keys() - consumers.keys():
        world.consumers[gone].alive = False
    world.join(*(consumers.keys() - world.consumers.keys()))
    world.attributes.update(consumers)


def run_until_stable(world: SimulatedCluster, topics: Topics, assignor: str) -> None:
    for _ in range(10):
        before = world.store.writes
        run(world, topics, assignor)
        world.pause(DOUBT + 1)  # those that go may be more than half of all
        if world.store.writes == before:
            break
    assert all(state_of(world, topic) in {State.STABLE, State.INITIAL} for topic in topics.topics)


def read(world: SimulatedCluster) -> list[TopicSnapshot]:
    return [snapshot for snapshot in world.store.snapshots().values() if isinstance(snapshot, TopicSnapshot)]


def previewed(world: SimulatedCluster, usual: str, what_if: WhatIf) -> Preview:
    membership = world.members().membership
    assert membership is not None
    before = dict(world.store.nodes), dict(world.store.states), world.store.writes
    found = preview(read(world), membership, load_assignor(usual), what_if=what_if)
    assert before == (world.store.nodes, world.store.states, world.store.writes)
    return found


@given(data=st.data(), usual=st.sampled_from(ASSIGNORS))
@examples(150)
def test_the_preview_is_what_the_runs_do(data: st.DataObject, usual: str) -> None:
    drawn = data.draw(st.dictionaries(st.sampled_from("abcde"), attributes, min_size=1, max_size=4))
    consumers = {c: replace(made, id=c) for c, made in drawn.items()}
    topics = Topics(t=data.draw(st.integers(1, 8)), u=data.draw(st.integers(1, 5)))
    world = stand_up(consumers, topics, usual)

    without = data.draw(st.frozensets(st.sampled_from(sorted(consumers)), max_size=len(consumers) - 1))
    joining = {
        c: replace(made, id=c)
        for c, made in data.draw(st.dictionaries(st.sampled_from("adxy"), attributes, max_size=2)).items()
        if c not in without
    }
    counts = data.draw(st.dictionaries(st.sampled_from(["t", "u"]), st.integers(1, 10), max_size=2))
    if 2 * len(without) > len(consumers):
        # They are doubted and keep what they have for a while: what else happens would be planned before that.
        joining, counts = {}, {}
    assignor = data.draw(st.sampled_from([None, *ASSIGNORS]))
    what_if = WhatIf(without, joining, counts, load_assignor(assignor) if assignor else None)
    found = previewed(world, usual, what_if)

    standing = {topic: world.owners(topic) for topic in ("t", "u")}
    change(world, {c: made for c, made in {**consumers, **joining}.items() if c not in without})
    topics.topics |= counts
    run_until_stable(world, topics, assignor or usual)

    really = {topic: world.owners(topic) for topic in ("t", "u")}
    assert found.owners == really
    assert [(m.topic, m.partition, m.source, m.target) for m in found.moves] == [
        (topic, p, standing[topic].get(p), really[topic].get(p))
        for topic in ("t", "u")
        for p in sorted(standing[topic].keys() | really[topic].keys())
        if standing[topic].get(p) != really[topic].get(p)
    ]
    assert sum(s.after for s in found.shares) == found.after.partitions
