"""Subscribing a cluster to topics, on top of the settings, and unsubscribing it.

A topic that is subscribed is picked up with the next run, from the offset that the group committed, or else from the
earliest record. One that is unsubscribed is closed in order: its owners stop reading and commit, and when all have
reported so its nodes are removed. Subscribed again later, it continues from there. `muster.core.subscription` defines
which override counts where several cover one topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from muster.commands.actions.shared_state import check_unsubscribing
from muster.commands.command import Actor, CommandError, CommandOutcome, listed
from muster.core.overrides import TopicOverride
from muster.core.subscription import Subscription, check_pattern, matches
from muster.core.wire import WireError, check_topic

if TYPE_CHECKING:
    from muster.commands.target import Target

SHOWN = 10
"""So many topics are named in words."""


def subscribe(target: Target, actor: Actor, topic: str, pattern: bool) -> CommandOutcome:
    """Read `topic`, or with `pattern` all whose whole names match it, Kafka's internal ones left out.

    Raises `CommandError` if it is no topic's name or no regular expression, or if it is subscribed already.
    """
    consul, cluster, kind = target.consul, target.cluster, _kind(topic, pattern)
    reads = cluster.topics.read_with(consul.overrides.read().subscriptions)
    if _has(reads, topic, pattern):
        raise CommandError(
            f"cluster {cluster.name!r} is subscribed to {kind} {topic} already: {_why(reads, topic, pattern)}"
        )
    undone = tuple(
        d for d in reads.overrides if (d.selector, d.pattern, d.subscribed) != (topic, pattern, False)
    )
    # In this order: one that is unsubscribed as well stays so until the second step.
    if not _has(replace(reads, overrides=undone), topic, pattern):
        consul.overrides.decide_topic(
            topic, pattern=pattern, subscribed=True, by=actor.name, why=actor.reason, at=actor.at
        )
    consul.overrides.undo_topic(topic, pattern=pattern, subscribed=False)
    lines = (
        f"cluster {cluster.name} is subscribed to {kind} {topic}: {actor}",
        "what is in Kafka is picked up with the next run, from the group's committed offset, or the earliest record",
    )
    return CommandOutcome(lines, {kind: topic})


def unsubscribe(target: Target, actor: Actor, topic: str, pattern: bool) -> CommandOutcome:
    """Stop reading `topic`, or with `pattern` all whose whole names match it.

    Raises `CommandError` if it is no topic's name or no regular expression, or nothing of the kind is subscribed.
    """
    consul, cluster, kind = target.consul, target.cluster, _kind(topic, pattern)
    now = consul.overrides.read()
    reads = cluster.topics.read_with(now.subscriptions)
    with target.store() as store:
        standing = [each for each in store.topics() if reads.includes(each)]
    concerned = [each for each in standing if (matches(topic, each) if pattern else topic == each)]
    if not concerned and not _has(reads, topic, pattern):
        raise CommandError(
            f"cluster {cluster.name!r} is not subscribed to {kind} {topic}; its topics are: "
            f"{listed({*standing, *reads.named()})}"
        )
    undone = [d for d in now.subscriptions if (d.selector, d.pattern) != (topic, pattern)]
    decided = TopicOverride(
        selector=topic, pattern=pattern, subscribed=False, by=actor.name, at=actor.at, why=actor.reason
    )
    reads_then = cluster.topics.read_with([*undone, decided])
    check_unsubscribing(target, [each for each in concerned if not reads_then.includes(each)])
    # In this order: one that is subscribed as well counts as unsubscribed from the first step on.
    consul.overrides.decide_topic(
        topic, pattern=pattern, subscribed=False, by=actor.name, why=actor.reason, at=actor.at
    )
    consul.overrides.undo_topic(topic, pattern=pattern, subscribed=True)
    after = cluster.topics.read_with(consul.overrides.read().subscriptions)
    closed = [each for each in concerned if not after.includes(each)]
    stay = [each for each in concerned if after.includes(each)]
    gone = set(closed)
    pins = sum(of in gone for of, _ in now.pins)
    lines = [
        f"cluster {cluster.name} is unsubscribed from {kind} {topic}: {actor}",
        f"closed in order, and then gone: {_some(closed)}",
    ]
    if stay:
        lines.append(f"stay, because they are subscribed by their names: {_some(stay)}")
    if pins:
        lines.append(f"{pins} pin(s) on them stand, and count if they are subscribed again")
    return CommandOutcome(tuple(lines), {kind: topic, "closed": closed})


def _kind(topic: str, pattern: bool) -> str:
    """Return what it is called. Raises `CommandError` if it is no topic's name, or no pattern."""
    try:
        if pattern:
            check_pattern(topic)
        else:
            check_topic(topic)
    except WireError as error:
        raise CommandError(f"{error}; for several topics at once give a pattern") from error
    except ValueError as error:
        raise CommandError(f"pattern {error}") from error
    if not topic:
        raise CommandError("the pattern is empty; .* is every topic")
    return "pattern" if pattern else "topic"


def _has(reads: Subscription, topic: str, pattern: bool) -> bool:
    """Report whether the cluster is subscribed to this topic, or to this very pattern."""
    if not pattern:
        return reads.includes(topic)
    said = {d.subscribed for d in reads.overrides if d.pattern and d.selector == topic}
    return False not in said and (True in said or topic in reads.patterns)


def _why(reads: Subscription, topic: str, pattern: bool) -> str:
    """Say why `_has` is true."""
    if not pattern:
        return str(reads.override(topic) or "it is in the settings")
    said = (d for d in reads.overrides if d.pattern and d.selector == topic)
    return str(next(said, "it is in the settings"))


def _some(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return (", ".join(topics[:SHOWN]) or "none") + more
