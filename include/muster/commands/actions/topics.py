"""Subscribing a cluster to topics, on top of clusters.yaml, and unsubscribing it.

A topic that is subscribed is picked up with the next run, from the offset that the group committed, or else from the
earliest record. One that is unsubscribed is closed in order: its owners stop reading and commit, and when all have
reported so its nodes are removed. Subscribed again later, it continues from there. `muster.core.subscription` defines
which override counts where several cover one topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.commands.command import Actor, Outcome, done
from muster.commands.refusal import CommandError, listed
from muster.core.overrides import Overrides
from muster.core.subscription import Subscription, check_pattern, matches
from muster.core.wire import WireError, check_topic
from muster.settings.clusters import ClusterSettings

if TYPE_CHECKING:
    from muster.commands.target import Target

SHOWN = 10
"""So many topics are named in words."""


def subscribe(target: Target, actor: Actor, topic: str, pattern: bool) -> Outcome:
    """Read `topic`, or with `pattern` all whose whole names match it, Kafka's internal ones left out.

    Raises `CommandError` if it is no topic's name or no regular expression, or if it is subscribed already.
    """
    discovery, cluster, selector = target.discovery, target.cluster, topic
    _check(selector, pattern)
    now = discovery.decisions()
    if _has(cluster, now, selector, pattern):
        raise CommandError(
            f"cluster {cluster.name!r} is subscribed to {_called(selector, pattern)} already: "
            f"{_why(cluster, now, selector, pattern)}"
        )
    # In this order: one that is unsubscribed as well stays so until the second step.
    if not _has(cluster, _without(now, selector, pattern, subscribed=False), selector, pattern):
        discovery.decide_topic(
            selector, pattern=pattern, subscribed=True, by=actor.name, why=actor.reason, at=actor.at
        )
    discovery.undo_topic(selector, pattern=pattern, subscribed=False)
    lines = [
        f"cluster {cluster.name} is subscribed to {_called(selector, pattern)}: {actor}",
        "what is in Kafka is picked up with the next run, from the group's committed offset, or the earliest record",
    ]
    return done("subscribe", cluster.name, actor, lines, **_value(selector, pattern))


def unsubscribe(target: Target, actor: Actor, topic: str, pattern: bool) -> Outcome:
    """Stop reading `topic`, or with `pattern` all whose whole names match it.

    Raises `CommandError` if it is no topic's name or no regular expression, or nothing of the kind is subscribed.
    """
    discovery, cluster, selector = target.discovery, target.cluster, topic
    _check(selector, pattern)
    now = discovery.decisions()
    with target.store() as store:
        standing = store.topics()
    reads = _reads(cluster, now)
    concerned = [
        t for t in standing if (matches(selector, t) if pattern else t == selector) and reads.includes(t)
    ]
    if not concerned and not _has(cluster, now, selector, pattern):
        raise CommandError(
            f"cluster {cluster.name!r} is not subscribed to {_called(selector, pattern)}; its topics are: "
            f"{listed({topic for topic in standing if reads.includes(topic)} | reads.named())}"
        )
    # In this order: one that is subscribed as well counts as unsubscribed from the first step on.
    discovery.decide_topic(
        selector, pattern=pattern, subscribed=False, by=actor.name, why=actor.reason, at=actor.at
    )
    discovery.undo_topic(selector, pattern=pattern, subscribed=True)
    after = _reads(cluster, discovery.decisions())
    closed = [topic for topic in concerned if not after.includes(topic)]
    stay = [topic for topic in concerned if after.includes(topic)]
    lines = [
        f"cluster {cluster.name} is unsubscribed from {_called(selector, pattern)}: {actor}",
        f"closed in order, and then gone: {_some(closed)}",
        *([f"stay, because they are subscribed by their names: {_some(stay)}"] if stay else []),
        *_pins(now, closed),
    ]
    return done("unsubscribe", cluster.name, actor, lines, **_value(selector, pattern), closed=closed)


def _check(selector: str, pattern: bool) -> None:
    try:
        if pattern:
            check_pattern(selector)
        else:
            check_topic(selector)
    except WireError as error:
        raise CommandError(f"{error}; for several topics at once give a pattern") from error
    except ValueError as error:
        raise CommandError(f"pattern {error}") from error
    if not selector:
        raise CommandError("the pattern is empty; .* is every topic")


def _reads(cluster: ClusterSettings, decisions: Overrides) -> Subscription:
    return cluster.topics.read_with(decisions.subscriptions)


def _without(decisions: Overrides, selector: str, pattern: bool, *, subscribed: bool) -> Overrides:
    """The decisions as if this one had not been made."""
    kept = tuple(
        d
        for d in decisions.subscriptions
        if (d.selector, d.pattern, d.subscribed) != (selector, pattern, subscribed)
    )
    return Overrides(subscriptions=kept)


def _has(cluster: ClusterSettings, decisions: Overrides, selector: str, pattern: bool) -> bool:
    """Whether the cluster is subscribed to this topic, or to this very pattern."""
    if not pattern:
        return _reads(cluster, decisions).includes(selector)
    said = {d.subscribed for d in decisions.subscriptions if d.pattern and d.selector == selector}
    return False not in said and (True in said or selector in cluster.topics.patterns)


def _why(cluster: ClusterSettings, decisions: Overrides, selector: str, pattern: bool) -> str:
    for decision in decisions.subscriptions:
        if decision.subscribed and (decision.selector, decision.pattern) == (selector, pattern):
            return str(decision)
    counts = None if pattern else _reads(cluster, decisions).override(selector)
    return str(counts) if counts is not None else "it is in clusters.yaml"


def _called(selector: str, pattern: bool) -> str:
    return f"{'pattern' if pattern else 'topic'} {selector}"


def _value(selector: str, pattern: bool) -> dict[str, str]:
    return {"pattern" if pattern else "topic": selector}


def _some(topics: list[str]) -> str:
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return (", ".join(topics[:SHOWN]) or "none") + more


def _pins(decisions: Overrides, topics: Iterable[str]) -> list[str]:
    chosen = set(topics)
    count = sum(topic in chosen for topic, _ in decisions.pins)
    return [f"{count} pin(s) on them stand, and count if they are subscribed again"] if count else []
