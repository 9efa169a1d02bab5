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
    *,
    ahead: bool = False,
) -> Transition | None:
    """Return the next write of a topic: `step` with what people ask of the flow, or a step for that alone; None if
    there is no step and the node says so already.

    Where the nodes may not be the newest (no state, or an epoch `ahead` of them) it waits for the next plan.
    """
    before = snapshot.assignment
    assignment = before if step is None else step.assignment
    if assignment is None or (step is None and (ahead or snapshot.state is None)):
        return step
    wanted = replace(assignment, paused=paused, seeks=dict(seeks))
    if step is not None:
        return replace(step, assignment=wanted)
    if wanted == before or snapshot.state is None:
        return None
    return Transition(snapshot, wanted, snapshot.state)
