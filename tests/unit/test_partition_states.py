"""How a partition stands, by what its owner reports."""

from __future__ import annotations

import pytest

from muster.cluster.partitions import PartitionState, topic_cells
from muster.core.model import (
    ConsumerStatus,
    FailingRecord,
    Restore,
    ShardState,
    State,
    TopicAssignment,
    TopicSnapshot,
    TopicState,
    TopicStatus,
)

HELD = frozenset({0})
NONE: frozenset[int] = frozenset()
PARKED = {0: FailingRecord(17, "ValueError: no date", 8, parked=True)}
RESTORED = {0: ShardState(restore=Restore(1, 2, 1.0, 0.0))}
DIFFERS = {0: ShardState(differs="the group has none")}
TRIED = {0: FailingRecord(17, "ValueError: no date", 3)}


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (TopicStatus(running=HELD), PartitionState.RUNNING),
        (TopicStatus(running=HELD, failing=TRIED), PartitionState.RUNNING),
        (TopicStatus(running=HELD, paused=HELD), PartitionState.PAUSED),
        (TopicStatus(running=HELD, failing=PARKED), PartitionState.PARKED),
        (TopicStatus(running=HELD, paused=HELD, failing=PARKED), PartitionState.PARKED),
        (TopicStatus(starting=HELD, failing=PARKED), PartitionState.PARKED),
        (TopicStatus(starting=HELD), PartitionState.STARTING),
        (TopicStatus(closing=HELD, failing=PARKED), PartitionState.STARTING),
        (TopicStatus(starting=HELD, shards=RESTORED), PartitionState.RESTORING),
        (TopicStatus(starting=HELD, shards=DIFFERS), PartitionState.PARKED),
        (TopicStatus(closing=HELD, shards=RESTORED), PartitionState.STARTING),
        (TopicStatus(running=HELD, shards={0: ShardState(3, 4096, 17, 2)}), PartitionState.RUNNING),
        (TopicStatus(), PartitionState.STARTING),
        (None, PartitionState.UNKNOWN),
    ],
)
def test_partition_stands_as_its_owner_reports(report: TopicStatus | None, state: PartitionState) -> None:
    assignment = TopicAssignment("k:9092", "g", {0: "a"})
    snapshot = TopicSnapshot("t", frozenset({0, 1}), assignment, state=TopicState(State.STABLE))
    statuses = {"a": ConsumerStatus("a", "one", {"t": report})} if report is not None else {}
    cells = topic_cells(snapshot, statuses, ["a"])
    assert cells.states == f"{state}U"
    assert cells.parked == (report.failing if report and state is PartitionState.PARKED else {})
    assert cells.shards == (report.shards if report else {})
