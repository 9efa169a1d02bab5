"""What people ask of the flow of records, on its way into the assignment node of a topic. Pure.

A pause of consumption and a seek change what the owner of a partition reads, and not who owns it. So neither needs a
state of its own: both stand in the assignment node beside the owners, and are written in the same multi as those, or
alone. The state and the epoch of the topic stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from muster.core.model import Seek, TopicSnapshot, Transition


def with_flow(
    snapshot: TopicSnapshot,
    step: Transition | None,
    paused: frozenset[int],
    seeks: Mapping[int, Seek],
) -> Transition | None:
    """Return the next write of a topic: `step` with what people ask of the flow, or a step for that alone; None if
    there is no step and the node says so already.

    A topic without a state has no owners, so there it waits for the first plan.
    """
    before = snapshot.assignment
    assignment = before if step is None else step.assignment
    if assignment is None or (step is None and snapshot.state is None):
        return step
    wanted = replace(assignment, paused=paused, seeks=dict(seeks))
    if step is not None:
        return replace(step, assignment=wanted)
    if wanted == before or snapshot.state is None:
        return None
    return Transition(snapshot, wanted, snapshot.state)
