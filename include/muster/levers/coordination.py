"""Holding a cluster's coordination still, letting it go on, and asking for a rebalance now.

Paused, the coordinator plans nothing and writes nothing, and each of its runs says who paused it and why. Consumers
go on with what they have; what is in the middle of a hand-over waits. Unlike pausing the coordinator's DAG it is a
decision with a name and a reason, it shows wherever the cluster does, and it takes effect in mid-run.

A rebalance now ends the waits: for absent consumers (`rebalance_delay`), and of assignors that keep something where
it is until a person says otherwise. What a setting bounds stays bounded. docs/decisions/0015 has the reasons.
"""

from __future__ import annotations

from muster.edges.consul import Discovery
from muster.levers.outcome import LeverError, Outcome, Word, pulled
from muster.settings.clusters import ClusterSettings


def pause(discovery: Discovery, cluster: ClusterSettings, word: Word) -> Outcome:
    """Hold coordination still. Raises `LeverError` if it is paused already."""
    if not discovery.pause(by=word.who, why=word.why, at=word.at):
        found = discovery.decisions().paused
        raise LeverError(
            f"cluster {cluster.name!r} is {found or 'paused'} already; resume it first to give another reason"
        )
    lines = (
        f"coordination of cluster {cluster.name} is paused: {word.why} (by {word.who})",
        "nothing is planned or written until it is resumed; consumers go on with what they have, and one that dies "
        "is not replaced",
    )
    return pulled("pause", cluster.name, word, lines)


def resume(discovery: Discovery, cluster: ClusterSettings, word: Word) -> Outcome:
    """End the pause. Raises `LeverError` if coordination is not paused."""
    before = discovery.decisions().paused
    if not discovery.resume():
        raise LeverError(
            f"cluster {cluster.name!r} is not paused by Muster's lever; the coordinator's DAG may be"
        )
    lines = [f"coordination of cluster {cluster.name} goes on: {word.why} (by {word.who})"]
    if before is not None:
        lines.append(f"it was {before}")
    return pulled("resume", cluster.name, word, lines)


def rebalance_now(discovery: Discovery, cluster: ClusterSettings, word: Word) -> Outcome:
    """Have the coordinator rebalance at once. Raises `LeverError` if coordination is paused.

    An earlier request that was not carried out yet is replaced.
    """
    before = discovery.decisions()
    if before.paused is not None:
        raise LeverError(
            f"cluster {cluster.name!r} is {before.paused}: nothing can be rebalanced now; resume it first"
        )
    discovery.ask_for_rebalance(by=word.who, why=word.why, at=word.at)
    lines = [
        f"cluster {cluster.name} is rebalanced now: {word.why} (by {word.who})",
        "absent consumers are not waited for, and what the assignor keeps where it is until a person asks goes where "
        "it belongs; a cluster that is balanced stays as it is",
    ]
    if before.rebalance is not None:
        lines.append(f"in place of: {before.rebalance}")
    return pulled("rebalance", cluster.name, word, lines)
