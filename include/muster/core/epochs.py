"""Whether the nodes of a topic are the newest, and which consumers have to say what they hold if they may not be.

Epochs only grow, and each is noted in Consul before it is written. A topic is *ahead* of its nodes when an epoch that
is noted, or that a consumer reports, is higher than the assignment node's, or the two nodes have different epochs.
Then one of these has happened:

- ZooKeeper was restored from a backup. Any consumer may hold what the nodes give to another, so each live one has to
  answer.
- A write was noted and not made, or not yet. The consumers hold what the nodes say.

The second looks like a ZooKeeper that was restored to just before that write. But a note names the epoch
that its write is built `over`, and the consumers that gain partitions by it. While the node has that very epoch, only
these consumers can hold more than the nodes say, whatever was written since. So only they have to answer. If one of
them does hold more, ZooKeeper was restored, and all have to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.core.model import ConsumerStatus, TopicSnapshot, Transition


@dataclass(frozen=True, slots=True)
class Noted:
    """The highest `epoch` of a topic that was ever about to be written.

    All that was noted above the epoch `over` were writes over a node of that epoch; `gaining` are the consumers that
    gain partitions by any of them. `over` is None where that is unknown, or a write was made.
    """

    epoch: int
    over: int | None = None
    gaining: frozenset[str] = frozenset()

    def merged(self, other: Noted) -> Noted:
        """Return what is noted with `other`, whichever came first."""
        lower, higher = sorted((self, other), key=lambda note: note.epoch)
        if higher.over is not None and higher.over == lower.over:
            return Noted(higher.epoch, higher.over, lower.gaining | higher.gaining)
        built_on_it = higher.over is not None and higher.over >= lower.epoch
        return higher if built_on_it else Noted(higher.epoch)


def to_note(step: Transition) -> Noted:
    """Return what is to be noted before `step` is written."""
    before, after = step.before.assignment, step.assignment
    if before is None:
        return Noted(after.epoch)
    gaining = frozenset(owner for p, owner in after.owners.items() if before.owners.get(p) != owner)
    return Noted(after.epoch, before.epoch, gaining)


def highest_epochs(answers: Iterable[ConsumerStatus], noted: Mapping[str, Noted]) -> dict[str, int]:
    """Return the highest epoch of each topic, of those `noted` and those that `answers` report."""
    found = {topic: note.epoch for topic, note in noted.items()}
    for answer in answers:
        for topic, status in answer.topics.items() if answer.epochs else ():
            if status.epoch is not None and status.epoch > found.get(topic, 0):
                found[topic] = status.epoch
    return found


def epoch_ahead(snapshot: TopicSnapshot, highest: Mapping[str, int]) -> int | None:
    """Return the highest epoch that is known of a topic, if its nodes may not be the newest; else None."""
    assignment, state = snapshot.assignment, snapshot.state
    if assignment is None:
        return None
    epochs = {assignment.epoch, assignment.epoch if state is None else state.epoch}
    known = max(*epochs, assignment.epoch, highest.get(snapshot.topic, 0))
    return None if epochs == {known} else known
