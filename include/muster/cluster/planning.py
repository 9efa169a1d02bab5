"""Previews of a cluster: what would move if something were otherwise. Writes nothing.

A preview plans what a coordinator run would plan from the same readings, by the same code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.coordinator.asking import StatusPoller
from muster.coordinator.planning_context import ContextReader
from muster.core.assignors import Assignor, PlanningContext
from muster.core.model import ConsumerStatus, Membership, TopicPartition
from muster.core.preview import Joining, Preview, WhatIf, preview, what_if
from muster.core.state_moves import StateMove, state_moves
from muster.settings.assignor_choice import load_in_force


class NothingReadError(RuntimeError):
    """There is nothing to plan from, because a server was not read; the message says which."""


@dataclass(frozen=True)
class Previewed:
    """A preview under `what_if`, the `context` it was planned in, and `warnings` about what is unknown there.

    `states` has what the moves of partitions with state mean for that, by what consumers report.
    """

    what_if: WhatIf
    preview: Preview
    context: PlanningContext
    warnings: tuple[str, ...]
    states: Mapping[TopicPartition, StateMove] = field(default_factory=dict)

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Each reason in words with the number of moves, the most frequent first."""
        counts = Counter(move.reason for move in self.preview.moves)
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Planning:
    """What the plans of one `state` have in common: subscribed topics, consumers, and `own`, the assignor in force.

    Racks are read from `sources`; `poll` asks consumers for their load, where an assignor goes by it. Raises
    `NothingReadError`, and `AssignorError` if the assignor in force cannot be loaded.
    """

    def __init__(self, state: ClusterState, sources: Sources, poll: StatusPoller) -> None:
        self.state = state
        self.membership = _membership(state)
        self.snapshots = {t: s for t, s in state.snapshots.items() if t not in state.leaving}
        self.own = load_in_force(state.settings, state.overrides)
        self._poll = poll
        self._reader = ContextReader(sources, poll, lambda: state.at, state.settings.status_timeout)

    def context(self, assignor: Assignor) -> tuple[PlanningContext, tuple[str, ...]]:
        """Read what `assignor` plans with, and what is unknown or cannot be read, in words."""
        return self._reader.read(self.snapshots, self.membership.live, assignor, self.state.overrides)

    def suppose(
        self,
        without: Sequence[str],
        joining: Sequence[Joining],
        partitions: Sequence[tuple[str, int]],
        other: Assignor | None,
    ) -> WhatIf:
        """Put suppositions together. Raises `WhatIfError` for what does not fit what is there."""
        return what_if(without, joining, partitions, other, self.membership, self.state.unreadable_topics)

    def preview(self, supposed: WhatIf) -> Previewed:
        """Plan as `supposed`. Raises `WhatIfError` and `AssignorError`."""
        context, warnings = self.context(supposed.assignor or self.own)
        found = preview(self.snapshots.values(), self.membership, self.own, context, supposed)
        return Previewed(supposed, found, context, warnings, self._states(found))

    def _states(self, found: Preview) -> dict[TopicPartition, StateMove]:
        """Ask consumers what copies of state they have, if partitions with state move."""
        has_state, live = self.state.settings.state.has, self.membership.live
        if not any(has_state(move.topic) for move in found.moves):
            return {}
        answers = self._poll(live.values(), self.state.settings.status_timeout)
        statuses = {c: answer for c, answer in answers.items() if isinstance(answer, ConsumerStatus)}
        return state_moves(found.moves, statuses, has_state)


def _membership(state: ClusterState) -> Membership:
    reading = state.reading
    if reading.zookeeper.value is None or reading.consul.value is None:
        sources = (reading.zookeeper, reading.consul, reading.consumers, reading.kafka)
        errors = [source.why for source in sources if source.error is not None]
        raise NothingReadError("; ".join(errors) or "nothing was read yet; try again")
    if state.membership is None:
        raise NothingReadError(f"Consul's answer is not to be trusted now: {state.doubt}")
    return state.membership
