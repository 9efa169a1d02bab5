"""What holds for co-partitioned whatever it is given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from muster.core.assignors import AssignorError, PlanningContext, load_assignor, run_assignor
from muster.core.assignors.api import Standbys
from muster.core.assignors.co_partitioned.tasks import Grouping, tasks_of
from muster.core.assignors.run import run_standbys
from muster.core.model import Assignment, Consumer
from tests.support.assignor_cases import (
    WEIGHTS,
    Case,
    changed,
    large_cases,
    loads,
    shuffled,
    small_cases,
    tangled_cases,
)
from tests.support.examples import examples

some = examples(50)
many = examples(200)

GROUPS = st.sampled_from([None, [["a", "b"], ["t.*"]], [["t0", "t1", "t2"], ["[ac]"]], [[".*"]]])
CASES = small_cases() | tangled_cases() | large_cases()
EVEN_CASES = small_cases(mixed=False, weighted=False) | large_cases(mixed=False, weighted=False)


@dataclass(frozen=True)
class Cluster:
    """An assignor with its options, and what it is given."""

    case: Case
    groups: list[list[str]] | None
    wanted: int = 0
    standing: Standbys = field(default_factory=dict)

    def assign(self, pins: Assignment | None = None) -> Assignment:
        return run_assignor(
            load_assignor("co-partitioned", {"groups": self.groups, "standbys": self.wanted}),
            self.case.topics,
            self.case.consumers,
            self.case.previous,
            PlanningContext(pins=pins or {}, standbys=self.standing),
        )

    def stand_by(self, assignment: Assignment) -> Standbys:
        return run_standbys(
            load_assignor("co-partitioned", {"groups": self.groups, "standbys": self.wanted}),
            self.case.topics,
            self.case.consumers,
            assignment,
            PlanningContext(standbys=self.standing),
        )

    def planned(self) -> Cluster:
        """The cluster after this plan was carried out."""
        assignment = self.assign()
        return replace(self, case=replace(self.case, previous=assignment), standing=self.stand_by(assignment))

    def at_rest(self) -> Cluster:
        """The cluster when nothing more happens: one plan for promotions, one for balance."""
        return self.planned().planned()

    def with_consumers(self, consumers: Mapping[str, Consumer]) -> Cluster:
        return replace(self, case=replace(self.case, consumers=consumers))

    def without(self, consumer: str) -> Cluster:
        return replace(self, case=self.case.without(consumer))


@st.composite
def clusters(draw: st.DrawFn, cases: st.SearchStrategy[Case] = CASES, most: int = 2) -> Cluster:
    return Cluster(draw(cases), draw(GROUPS), draw(st.integers(0, most)))


@st.composite
def clusters_with_zones(draw: st.DrawFn, cases: st.SearchStrategy[Case] = CASES) -> Cluster:
    cluster = draw(clusters(cases))
    zones = draw(st.sampled_from([(None,), ("x", "y"), ("x", "x", "x", "y", None)]))
    return cluster.with_consumers(
        {
            name: replace(consumer, zone=zones[position % len(zones)])
            for position, (name, consumer) in enumerate(sorted(cluster.case.consumers.items()))
        }
    )


@st.composite
def crowded_clusters(draw: st.DrawFn) -> Cluster:
    """Few consumers with many standbys, weights and zones, so that hardly anything comes out even."""
    random_ = random.Random(draw(st.integers(0, 2**32)))
    names = [f"c{i}" for i in range(random_.randint(1, 14))]
    topics = {f"t{i}": frozenset(range(random_.choice([1, 3, 7, 20]))) for i in range(random_.randint(1, 4))}
    zones = random_.choice([(None,), ("x", "y"), ("x", "x", "x", "y", None)])
    weights = random_.choice([(1.0,), WEIGHTS])
    wanted = random_.choice(
        [None, frozenset(random_.sample(sorted(topics), random_.randint(1, len(topics))))]
    )
    consumers = {
        name: Consumer(
            name,
            weight=random_.choice(weights),
            zone=random_.choice(zones),
            topics=random_.choice([None, wanted]),
        )
        for name in names
    }
    previous = {
        topic: {p: random_.choice([*names, "left"]) for p in sorted(partitions) if random_.random() < 0.6}
        for topic, partitions in topics.items()
    }
    groups = random_.choice([None, [["t0", "t1"]], [["t.*"]]])
    return Cluster(Case(topics, consumers, previous), groups, random_.randint(0, 3))


def task_sizes(cluster: Cluster) -> list[int]:
    return [task.size for task in tasks_of(groups_of(cluster), cluster.case.topics)]


def groups_of(cluster: Cluster) -> tuple[object, ...]:
    return Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers)


@some
@given(cluster=clusters())
def test_every_partition_n_of_a_group_goes_to_one_consumer(cluster: Cluster) -> None:
    assignment = cluster.assign()
    for group in Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers):
        readers: dict[int, set[str]] = {}
        for topic in group.topics:
            assert assignment[topic].keys() == cluster.case.topics[topic]
            for number, owner in assignment[topic].items():
                readers.setdefault(number, set()).add(owner)
        assert all(len(names) == 1 for names in readers.values())


@some
@given(cluster=clusters(EVEN_CASES))
def test_no_two_consumers_differ_by_more_than_the_largest_task(cluster: Cluster) -> None:
    load = loads(cluster.assign(), cluster.case.consumers)
    assert max(load.values()) - min(load.values()) <= max(task_sizes(cluster), default=0)


@some
@given(cluster=clusters())
def test_no_hand_over_of_one_task_makes_it_more_even(cluster: Cluster) -> None:
    assignment = cluster.assign()
    load = loads(assignment, cluster.case.consumers)
    weight = {name: Fraction(consumer.weight) for name, consumer in cluster.case.consumers.items()}
    groups = Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers)
    kinds = {
        (assignment[task.topics[0]][task.number], task.size, task.group)
        for task in tasks_of(groups, cluster.case.topics)
    }
    for owner, size, group in kinds:
        least = min((2 * load[c] + size) / weight[c] for c in groups[group].consumers)
        assert (2 * load[owner] - size) / weight[owner] <= least


@some
@given(cluster=clusters(EVEN_CASES), data=st.data())
def test_leaving_moves_only_the_leavers_partitions_unless_balance_needs_more(
    cluster: Cluster, data: st.DataObject
) -> None:
    assume(len(cluster.case.consumers) > 1)
    rest = cluster.at_rest()
    gone = data.draw(st.sampled_from(sorted(cluster.case.consumers)))
    after = rest.without(gone)
    moved = changed(rest.case.previous, after.assign())
    if cluster.wanted or len(set(task_sizes(cluster))) <= 1:
        assert {source for source, _ in moved.values()} <= {gone}


@some
@given(cluster=clusters(EVEN_CASES))
def test_tasks_of_one_size_move_only_to_a_newcomer_and_no_more_than_its_share(
    cluster: Cluster,
) -> None:
    sizes = task_sizes(cluster)
    assume(len(set(sizes)) == 1)
    rest = cluster.at_rest()
    after = rest.with_consumers({**rest.case.consumers, "newcomer": Consumer("newcomer")})
    moved = changed(rest.case.previous, after.assign())
    assert {target for _, target in moved.values()} <= {"newcomer"}
    assert len(moved) == len(sizes) // len(after.case.consumers) * sizes[0]


@some
@given(cluster=clusters(EVEN_CASES), grown=st.integers(1, 256))
def test_new_partitions_move_nothing_where_tasks_have_one_size(cluster: Cluster, grown: int) -> None:
    cluster = replace(cluster, groups=[["nothing"]])
    rest = cluster.at_rest()
    topics = {topic: p | frozenset(range(grown)) for topic, p in cluster.case.topics.items()}
    after = replace(rest, case=replace(rest.case, topics=topics))
    assert not changed(rest.case.previous, after.assign())


@some
@given(cluster=clusters_with_zones(), seed=st.integers(0, 2**32))
def test_deterministic_and_at_rest_after_one_plan(cluster: Cluster, seed: int) -> None:
    first = cluster.planned()
    again = replace(cluster, case=shuffled(cluster.case, seed)).planned()
    assert again.case.previous == first.case.previous
    assert again.standing == first.standing
    second = first.planned()
    assert second.case.previous == first.case.previous
    assert second.standing == first.standing


@examples(500)
@given(cluster=crowded_clusters(), data=st.data())
def test_group_is_at_rest_after_one_plan_and_again_when_a_consumer_has_left(
    cluster: Cluster, data: st.DataObject
) -> None:
    rest = cluster.planned()
    assert rest.planned() == rest
    assume(len(cluster.case.consumers) > 1)
    after = rest.without(data.draw(st.sampled_from(sorted(cluster.case.consumers)))).at_rest()
    assert after.planned() == after


# Standbys


@some
@given(cluster=clusters_with_zones())
def test_standbys_are_as_many_as_can_be_and_the_same_over_a_group(cluster: Cluster) -> None:
    assignment = cluster.assign()
    standing = cluster.stand_by(assignment)  # raises if one of them is no valid standby
    for group in Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers):
        of_number: dict[int, set[tuple[str, ...]]] = {}
        for topic in group.topics:
            for number in cluster.case.topics[topic]:
                of_number.setdefault(number, set()).add(standing.get(topic, {}).get(number, ()))
        for found in of_number.values():
            assert [len(names) for names in found] == [min(cluster.wanted, len(group.consumers) - 1)]


@some
@given(cluster=clusters(EVEN_CASES))
def test_standbys_are_even(cluster: Cluster) -> None:
    """Two consumers that take part in none of each other's tasks differ by the largest task at most; and who takes
    part in all of another one's tasks as their owner or other standby is excused."""
    rest = cluster.at_rest()
    carries: Counter[str] = Counter()
    tasks_of_standby: dict[str, list[tuple[str, int]]] = {}
    for topic, of_topic in rest.standing.items():
        for number, names in of_topic.items():
            for name in names:
                carries[name] += 1
                tasks_of_standby.setdefault(name, []).append((topic, number))
    largest = max(task_sizes(cluster), default=0)
    for heavy, held in tasks_of_standby.items():
        for light in rest.case.consumers:
            if carries[heavy] - carries[light] > largest:
                for topic, number in held:
                    taken = {rest.case.previous[topic][number], *rest.standing[topic][number]}
                    assert light in taken


@some
@given(cluster=clusters_with_zones())
def test_a_standby_shares_the_zone_of_the_owner_only_where_there_is_no_other(cluster: Cluster) -> None:
    cluster = replace(cluster, wanted=1)
    assignment = cluster.assign()
    standing = cluster.stand_by(assignment)
    zone = {name: consumer.zone for name, consumer in cluster.case.consumers.items()}
    for group in Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers):
        for topic in group.topics:
            for number, (standby,) in standing.get(topic, {}).items():
                own = zone[assignment[topic][number]]
                if own is not None and zone[standby] == own:
                    assert all(zone[c] == own for c in group.consumers)


@some
@given(cluster=clusters_with_zones(), data=st.data())
def test_the_first_live_standby_is_promoted_and_nothing_else_moves(
    cluster: Cluster, data: st.DataObject
) -> None:
    cluster = replace(cluster, wanted=max(1, cluster.wanted))
    rest = cluster.at_rest()
    names = sorted(rest.case.consumers)
    gone = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
    after = rest.with_consumers({n: c for n, c in rest.case.consumers.items() if n not in gone})
    # Where the subscribers of a topic change, groups change with them; that is another story.
    assume(len({consumer.topics for consumer in rest.case.consumers.values()}) == 1)
    assignment = after.assign()
    promoted = False
    for topic, owners in assignment.items():
        for number, owner in owners.items():
            before = rest.case.previous[topic][number]
            ready = [c for c in rest.standing.get(topic, {}).get(number, ()) if c not in gone]
            if before in gone and ready:
                assert owner == ready[0]
                promoted = True
    if promoted:
        assert {source for source, _ in changed(rest.case.previous, assignment).values()} <= gone


@some
@given(cluster=clusters(EVEN_CASES), data=st.data())
def test_balance_is_back_with_the_second_plan_after_a_promotion(
    cluster: Cluster, data: st.DataObject
) -> None:
    assume(len(cluster.case.consumers) > 1)
    rest = cluster.at_rest()
    after = rest.without(data.draw(st.sampled_from(sorted(rest.case.consumers)))).at_rest()
    load = loads(after.case.previous, after.case.consumers)
    assert max(load.values()) - min(load.values()) <= max(task_sizes(after), default=0)
    assert after.planned() == after


@some
@given(cluster=clusters_with_zones(), data=st.data())
def test_standbys_keep_their_order_when_a_consumer_leaves(cluster: Cluster, data: st.DataObject) -> None:
    """A standby is dropped only if it became the owner, or for the sake of zones or evenness elsewhere: what is kept
    keeps its order."""
    assume(cluster.case.consumers)
    rest = cluster.at_rest()
    gone = data.draw(st.sampled_from(sorted(rest.case.consumers)))
    after = rest.without(gone).planned()
    for topic, of_topic in after.standing.items():
        for number, names in of_topic.items():
            before = rest.standing.get(topic, {}).get(number, ())
            kept = [name for name in names if name in before]
            assert kept == [name for name in before if name in kept]


# Pins


@some
@given(cluster=clusters(), data=st.data())
def test_a_pin_is_obeyed_and_takes_its_task_along(cluster: Cluster, data: st.DataObject) -> None:
    groups = Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers)
    assume(groups)
    group = data.draw(st.sampled_from(groups))
    topic = data.draw(st.sampled_from(group.topics))
    number = data.draw(st.sampled_from(sorted(cluster.case.topics[topic])))
    consumer = data.draw(st.sampled_from(group.consumers))
    assignment = cluster.assign(pins={topic: {number: consumer}})
    for other in group.topics:
        assert assignment[other].get(number, consumer) == consumer


@some
@given(cluster=clusters(small_cases()), data=st.data())
def test_any_pins_at_all_leave_a_valid_assignment(cluster: Cluster, data: st.DataObject) -> None:
    owners = st.dictionaries(
        st.integers(0, 5), st.sampled_from([*cluster.case.consumers, "gone"]), max_size=4
    )
    pins = {topic: data.draw(owners) for topic in ("a", "b", "gone")}
    try:
        assignment = cluster.assign(pins)
    except AssignorError as refused:
        raise AssertionError(f"pins {pins}") from refused
    for topic, pinned in pins.items():
        for number, consumer in pinned.items():
            live = cluster.case.consumers.get(consumer)
            if number in cluster.case.topics.get(topic, ()) and live is not None and live.subscribes(topic):
                assert assignment[topic][number] == consumer


@st.composite
def with_pins(draw: st.DrawFn) -> tuple[Cluster, Assignment]:
    """Pins that can be obeyed, many of which contradict each other or take their partition out of the group."""
    cluster = draw(clusters(small_cases() | tangled_cases(), most=3))
    random_ = random.Random(draw(st.integers(0, 2**32)))
    part = draw(st.sampled_from([0.1, 0.5, 1.0]))
    pins: dict[str, dict[int, str]] = {}
    for topic, partitions in cluster.case.topics.items():
        takers = [name for name, c in sorted(cluster.case.consumers.items()) if c.subscribes(topic)]
        for number in sorted(partitions) if takers else ():
            if random_.random() < part:
                pins.setdefault(topic, {})[number] = random_.choice(takers)
    return cluster, pins


@many
@given(found=with_pins())
def test_partitions_pinned_out_of_their_task_count_in_the_balance(found: tuple[Cluster, Assignment]) -> None:
    cluster, pins = found
    assignment = cluster.assign(pins)
    load = loads(assignment, cluster.case.consumers)
    weight = {name: Fraction(consumer.weight) for name, consumer in cluster.case.consumers.items()}
    groups = Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers)
    for task in tasks_of(groups, cluster.case.topics):
        takers = groups[task.group].consumers
        pinned = {topic: pins.get(topic, {}).get(task.number) for topic in task.topics}
        rest = [topic for topic in task.topics if pinned[topic] is None]
        if rest and not set(takers).intersection(pinned.values()):
            owner, size = assignment[rest[0]][task.number], len(rest)
            least = min((2 * load[c] + size) / weight[c] for c in takers)
            assert (2 * load[owner] - size) / weight[owner] <= least


@many
@given(found=with_pins())
def test_standbys_are_complete_and_stable_under_any_pins(
    found: tuple[Cluster, Assignment],
) -> None:
    cluster, pins = found
    assignment = cluster.assign(pins)
    standing = cluster.stand_by(assignment)
    for group in Grouping(cluster.groups).of(cluster.case.topics, cluster.case.consumers):
        for topic in group.topics:
            for number, owner in assignment[topic].items():
                others = [consumer for consumer in group.consumers if consumer != owner]
                there = standing.get(topic, {}).get(number, ())
                assert len(there) == min(cluster.wanted, len(others))
    after = replace(cluster, case=replace(cluster.case, previous=assignment), standing=standing)
    assert after.assign(pins) == assignment
    assert after.stand_by(assignment) == standing
