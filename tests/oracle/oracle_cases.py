"""Cases to hold against Kafka: what may happen to a group, grown from a seed so that each run has the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from muster.core.assignors import load_assignor
from muster.core.model import Assignment, Consumer
from tests.support.assignor_cases import Case


def equal_cases(count: int) -> Iterator[tuple[int, Case]]:
    """`count` seeds and cases in which all consumers subscribe to the same topics."""
    return ((seed, _grown(seed, mixed=False)) for seed in range(count))


def mixed_cases(count: int) -> Iterator[tuple[int, Case]]:
    """`count` seeds and cases in which consumers subscribe to different topics, or to none at all."""
    return ((seed, _grown(seed, mixed=True)) for seed in range(count))


def _grown(seed: int, *, mixed: bool) -> Case:
    random_ = random.Random(f"{seed} {mixed}")
    names = [f"c{i:02d}" for i in range(random_.randint(1, random_.choice([3, 6, 12, 40])))]
    sizes = [0, 1, 2, 3, 5, 8, 13] if random_.random() < 0.7 else [4]
    topics = {f"t{i}": frozenset(range(random_.choice(sizes))) for i in range(random_.randint(1, 8))}
    subscriptions = [frozenset(topics)]
    if mixed:
        # A few teams, or everyone for itself.
        teams = random_.choice([2, 3, len(names)])
        subscriptions = [
            frozenset(random_.sample(sorted(topics), random_.randint(0, len(topics)))) for _ in range(teams)
        ]
    consumers = {name: Consumer(name, topics=random_.choice(subscriptions)) for name in names}
    before = Case(topics, consumers, {})
    previous = random_.choice([_nothing, _nonsense, _at_rest, _at_rest])(random_, before)
    return random_.choice([_as_it_is, _leave, _leave, _join, _join, _grow, _resubscribe])(
        random_, Case(topics, consumers, previous), subscriptions
    )


def _nothing(_random: random.Random, _case: Case) -> Assignment:
    return {}


def _nonsense(random_: random.Random, case: Case) -> Assignment:
    """Anything that a plan of long ago may have left behind, balanced or not."""
    owners = ["left", *random_.sample(sorted(case.consumers), random_.randint(1, len(case.consumers)))]
    return {
        topic: {p: random_.choice(owners) for p in sorted(partitions) if random_.random() < 0.9}
        for topic, partitions in case.topics.items()
    }


def _at_rest(_random: random.Random, case: Case) -> Assignment:
    return load_assignor("sticky").assign(case.topics, case.consumers, {})


def _as_it_is(_random: random.Random, case: Case, _subscriptions: list[frozenset[str]]) -> Case:
    return case


def _leave(random_: random.Random, case: Case, _subscriptions: list[frozenset[str]]) -> Case:
    gone = random_.sample(sorted(case.consumers), min(random_.choice([1, 1, 3]), len(case.consumers) - 1))
    return Case(case.topics, {c: v for c, v in case.consumers.items() if c not in gone}, case.previous)


def _join(random_: random.Random, case: Case, subscriptions: list[frozenset[str]]) -> Case:
    # Names between the others, so that the order of consumers changes, too.
    joined = [f"c{random_.randint(0, 40):02d}-new" for _ in range(random_.choice([1, 1, 3]))]
    newcomers = {name: Consumer(name, topics=random_.choice(subscriptions)) for name in joined}
    return Case(case.topics, {**case.consumers, **newcomers}, case.previous)


def _grow(random_: random.Random, case: Case, _subscriptions: list[frozenset[str]]) -> Case:
    grown = {topic: frozenset(range(len(p) + random_.randint(0, 6))) for topic, p in case.topics.items()}
    return Case(grown, case.consumers, case.previous)


def _resubscribe(random_: random.Random, case: Case, subscriptions: list[frozenset[str]]) -> Case:
    changed = random_.choice(sorted(case.consumers))
    return case.joined_by(Consumer(changed, topics=random_.choice(subscriptions)))
