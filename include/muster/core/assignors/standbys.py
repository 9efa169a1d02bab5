"""Who stands by: asking an assignor for standbys, and checking what it says.

An assignor that has a method

    standbys(topics, consumers, assignment, previous_standbys) -> standbys

is asked, after `assign`, who is to take each partition over when its owner leaves: topic to partition to consumer
ids, the first to be promoted first. `topics` and `consumers` are those that `assign` was given, `assignment` is what
it returned, `previous_standbys` is what stood before and may name consumers and partitions that are gone. What is
left out has no standby. The promise of `Assignor.assign` holds here, too: pure, and deterministic.

That a standby is promoted is up to `assign`: it finds the standbys that stood before in its parameter `standbys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from muster.core.assignors.base import Assignor, AssignorError, blamed_on
from muster.core.assignors.circumstances import NOTHING_FURTHER, Circumstances, Standbys
from muster.core.assignors.exclusions import without_excluded
from muster.core.model import Assignment, Consumer


@runtime_checkable
class HasStandbys(Protocol):
    """An assignor that also says who stands by."""

    def standbys(
        self,
        topics: Mapping[str, frozenset[int]],
        consumers: Mapping[str, Consumer],
        assignment: Assignment,
        previous_standbys: Standbys,
        /,
    ) -> Standbys:
        """Return the standbys of each partition that is to have some."""
        ...


def run_standbys(
    assignor: Assignor,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    assignment: Assignment,
    circumstances: Circumstances = NOTHING_FURTHER,
) -> dict[str, dict[int, tuple[str, ...]]]:
    """Return the standbys of each partition, none if `assignor` knows no standbys; only what has some is in it.

    A consumer that a person keeps from a topic does not stand by for it either. Raises `AssignorError` naming the
    assignor if it raises anything, or if a standby is not live, not subscribed, the owner itself, or named twice.
    """
    if not isinstance(assignor, HasStandbys):
        return {}
    consumers = without_excluded(consumers, circumstances.exclusions, topics)
    with blamed_on(assignor, "failed to say who stands by"):
        found = assignor.standbys(topics, consumers, assignment, circumstances.standbys)
    if (offence := next(_offences(found, topics, consumers, assignment), None)) is not None:
        raise AssignorError(
            f"assignor {assignor.name!r} returned no valid standbys: {offence}; nothing is moved. Correct the "
            "assignor, or name another one in clusters.yaml"
        )
    standbys = {topic: {p: tuple(found[topic][p]) for p in sorted(found[topic])} for topic in sorted(found)}
    standbys = {t: {p: standing for p, standing in of.items() if standing} for t, of in standbys.items()}
    return {topic: of_topic for topic, of_topic in standbys.items() if of_topic}


def _offences(
    standbys: Any,
    topics: Mapping[str, frozenset[int]],
    consumers: Mapping[str, Consumer],
    assignment: Assignment,
) -> Iterator[str]:
    """What is wrong with `standbys`, which may be any value at all. Only the first one is sure to be meant so."""
    if not isinstance(standbys, Mapping):
        yield f"expected a mapping of topic to standbys, found {type(standbys).__name__}"
    for topic, of_topic in standbys.items():
        if topic not in topics:
            yield f"unknown topic {topic!r}"
        if not isinstance(of_topic, Mapping):
            yield f"topic {topic!r}: expected a mapping of partition to consumer ids, found {of_topic!r}"
        owners = assignment.get(topic, {})
        for partition, standing in of_topic.items():
            where = f"topic {topic!r}, partition {partition!r}"
            if type(partition) is not int or partition not in owners:
                yield f"{where}: no consumer owns such a partition, so none can stand by for it"
            if not isinstance(standing, tuple | list) or not all(isinstance(c, str) for c in standing):
                yield f"{where}: expected a tuple of consumer ids, found {standing!r}"
            if len(set(standing)) < len(standing):
                yield f"{where}: {', '.join(standing)} names a consumer twice"
            for consumer in standing:
                if consumer == owners[partition]:
                    yield f"{where}: standby {consumer!r} owns it"
                if (why := _hindrance(consumer, topic, consumers)) is not None:
                    yield f"{where}: standby {consumer!r} {why}"


def _hindrance(consumer: str, topic: str, consumers: Mapping[str, Consumer]) -> str | None:
    if consumer not in consumers:
        return "is not a live consumer"
    return None if consumers[consumer].subscribes(topic) else "does not subscribe to the topic"
