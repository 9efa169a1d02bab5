"""Cases for the assignors: small ones that Hypothesis draws value by value, and large ones grown from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from muster.core.model import Assignment, Consumer

WEIGHTS = (0.5, 1.0, 2.0, 3.0)


@dataclass(frozen=True)
class Case:
    """What an assignor is called with."""

    topics: Mapping[str, frozenset[int]]
    consumers: Mapping[str, Consumer]
    previous: Assignment

    def without(self, consumer: str) -> Case:
        return replace(self, consumers={c: v for c, v in self.consumers.items() if c != consumer})

    def joined_by(self, consumer: Consumer) -> Case:
        return replace(self, consumers={**self.consumers, consumer.id: consumer})


def loads(assignment: Assignment, consumers: Mapping[str, Consumer]) -> Counter[str]:
    """Partitions a consumer, those without any included."""
    result: Counter[str] = Counter(dict.fromkeys(consumers, 0))
    for owners in assignment.values():
        result.update(owners.values())
    return result


def changed(before: Assignment, after: Assignment) -> dict[tuple[str, int], tuple[str, str | None]]:
    """The partitions that had an owner before and have another one now, or none: from which consumer to which."""
    return {
        (topic, partition): (owner, after.get(topic, {}).get(partition))
        for topic, owners in before.items()
        for partition, owner in owners.items()
        if after.get(topic, {}).get(partition) != owner
    }


def may_stay(case: Case) -> dict[tuple[str, int], str]:
    """The partitions that exist and whose previous owner is live and subscribed."""
    return {
        (topic, partition): owner
        for topic, owners in case.previous.items()
        for partition, owner in owners.items()
        if partition in case.topics.get(topic, ())
        and owner in case.consumers
        and case.consumers[owner].subscribes(topic)
    }


def moves(case: Case, after: Assignment) -> int:
    """How many partitions moved that could have stayed."""
    return sum(after[topic][p] != owner for (topic, p), owner in may_stay(case).items())


@st.composite
def small_cases(draw: st.DrawFn, *, mixed: bool = True, weighted: bool = True) -> Case:
    """Up to 5 consumers and 12 partitions; the previous assignment may be any nonsense that parses."""
    names = [f"c{i}" for i in range(draw(st.integers(1, 5)))]
    numbers = st.frozensets(st.integers(0, 5), max_size=4)
    topics = {topic: draw(numbers) for topic in ("a", "b", "c")}
    subscriptions = st.none() | st.frozensets(st.sampled_from(["a", "b", "c", "gone"]))
    consumers = {
        name: Consumer(
            name,
            topics=draw(subscriptions) if mixed else None,
            weight=draw(st.sampled_from(WEIGHTS)) if weighted else 1.0,
        )
        for name in names
    }
    owners = st.dictionaries(st.integers(0, 6), st.sampled_from([*names, "left"]), max_size=7)
    previous = {topic: draw(owners) for topic in ("a", "b", "c", "gone") if draw(st.booleans())}
    return Case(topics, consumers, previous)


@st.composite
def tangled_cases(draw: st.DrawFn) -> Case:
    """Each consumer takes two or three of six small topics, so that balance needs chains of hand-overs."""
    random_ = random.Random(draw(st.integers(0, 2**32)))
    names = [f"c{i}" for i in range(random_.randint(3, 7))]
    topics = {f"t{i}": frozenset(range(random_.randint(0, 5))) for i in range(6)}
    weights = draw(st.sampled_from([(1.0,), WEIGHTS]))
    consumers = {
        name: Consumer(
            name,
            topics=frozenset(random_.sample(sorted(topics), random_.randint(2, 3))),
            weight=random_.choice(weights),
        )
        for name in names
    }
    owners = random_.sample(names, random_.randint(1, len(names)))
    previous = {
        topic: {p: random_.choice(owners) for p in sorted(partitions) if random_.random() < 0.8}
        for topic, partitions in topics.items()
    }
    return Case(topics, consumers, previous)


@st.composite
def large_cases(draw: st.DrawFn, *, mixed: bool = True, weighted: bool = True) -> Case:
    """Up to 1,024 consumers, 4 topics and 256 partitions a topic."""
    random_ = random.Random(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([1, 2, 3, 10, 50, 256, 1024]))
    names = [f"c{i}" for i in range(random_.randint((size + 1) // 2, size))]
    topics = {
        f"t{i}": frozenset(random_.sample(range(300), draw(st.sampled_from([0, 1, 7, 64, 256]))))
        for i in range(draw(st.integers(0, 4)))
    }
    choices = [None, *(frozenset(t for t in topics if random_.random() < 0.6) for _ in range(4))]
    consumers = {
        name: Consumer(
            name,
            topics=random_.choice(choices) if mixed else None,
            weight=random_.choice(WEIGHTS) if weighted else 1.0,
        )
        for name in names
    }
    held = draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]))
    # Few previous owners make it unbalanced, and one that left is always among them.
    owners = ["left", *random_.sample(names, random_.randint(1, len(names)))]
    previous = {
        topic: {p: random_.choice(owners) for p in sorted(partitions) if random_.random() < held}
        for topic, partitions in topics.items()
    }
    return Case(topics, consumers, previous)


def equally_weighted(case: Case) -> Case:
    """The same case with one weight for all."""
    return replace(case, consumers={c: replace(v, weight=2.0) for c, v in case.consumers.items()})


def shuffled(case: Case, seed: int) -> Case:
    """The same case with every mapping and set built in another order."""
    random_ = random.Random(seed)

    def other_order(mapping: Mapping[object, object]) -> dict[object, object]:
        items = list(mapping.items())
        random_.shuffle(items)
        return dict(items)

    def set_in_other_order(values: frozenset[object]) -> frozenset[object]:
        items = list(values)
        random_.shuffle(items)
        return frozenset(items)

    consumers = {
        name: replace(
            consumer, topics=None if consumer.topics is None else set_in_other_order(consumer.topics)
        )
        for name, consumer in case.consumers.items()
    }
    return Case(
        other_order({topic: set_in_other_order(p) for topic, p in case.topics.items()}),
        other_order(consumers),
        other_order({topic: other_order(owners) for topic, owners in case.previous.items()}),
    )
