"""What an owner knows of how far its partition was read before: a sink's records below that are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from muster.commands.actions.moving_in import _stamp
from muster.consumer.source.batch_size import Bounds
from muster.coordinator.seeker import Seeker
from muster.core.model import Seek, TopicAssignment, TopicPartition
from muster.core.positions import UNKNOWN, Committed, Note, format_stamp, noted, parse_stamp, taken_up
from muster.settings.connections import KafkaSettings
from muster.sinks.batch import SinkReport
from muster.sinks.coverage import Coverage
from tests.support.planned_consumer import PlannedConsumer, PlannedKafka

TP = ("t", 0)
GONE_BACK = "after the partition had gone back from offset 100"
NOT_KNOWN = "though another program had set or deleted the committed offset"


class Group(PlannedKafka):
    """Has one partition, and takes commits of other programs."""

    def __init__(self) -> None:
        super().__init__(1)

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] | None = None
    ) -> None:
        self.committed.update(offsets)
        self.stamps.update({tp: (metadata or {}).get(tp, "") for tp in offsets})


class Owner(PlannedConsumer):
    """A consumer with a sink; batches have ten records."""

    def __init__(self, group: Group, sink: Coverage, name: str) -> None:
        self.sink = sink
        super().__init__(group, Bounds(records=10), holder=name)

    def process(self) -> None:
        batch = self.agent.batch_started()
        left = {}
        for tp, (begin, end) in batch.filled.items():
            missing = self.sink.missing(begin, end)
            if missing != [(begin, end)]:
                left[tp] = Coverage(missing).missing(begin, end)
            self.sink.add(begin, end)
        self.agent.batch_done(batch, None, sinks=SinkReport(left, {"sink": {TP: self.sink.ranges}}))

    def batch(self) -> None:
        if self.plan():
            self.process()
        self.commit()

    def read(self, to: int = 100) -> Owner:
        """Go on until so much is read and committed."""
        for _ in range(1_000):
            self.batch()
            if self.kafka.committed.get(TP) == to:
                return self
        raise AssertionError(f"it stands at {self.kafka.committed}")

    @property
    def left_out(self) -> tuple[int, int]:
        """How many records were expected, and how many a surprise."""
        found = self.agent.view().counters.left_out
        return found.expected, found.surprising

    @property
    def named(self) -> str:
        return str(self.page.get("/status").json()["errors"])


@pytest.fixture
def group() -> Group:
    found = Group()
    Owner(found, Coverage([]), "a1").read()
    return found


def sink() -> Coverage:
    return Coverage([(0, 100)])


def seek_without_owner(group: Group, seek: Seek) -> None:
    """The coordinator carries a seek out that no consumer can."""
    seeker = Seeker("c", KafkaSettings(config={"bootstrap.servers": "k:9092"}), fencing=False)
    seeker._groups["k:9092", "g"] = group  # type: ignore[assignment]
    node = TopicAssignment("k:9092", "g", {}, 1, topic_id="A")
    assert seeker.carry_out({TP: seek}, {"t": node}) == {}


def test_seek_of_the_coordinator_makes_left_out_records_surprising(group: Group) -> None:
    seek_without_owner(group, Seek("s1", 0))
    owner = Owner(group, sink(), "b2").read()
    assert owner.left_out == (0, 100)
    assert f"offsets 0 to 99 (100 record(s)) were left out {GONE_BACK}" in owner.named


def test_owner_after_one_that_died_names_left_out_records(group: Group) -> None:
    first = Owner(group, sink(), "b2")
    first.assign({0}, 2, {0: Seek("s1", 0)})
    first.read(30)
    second = Owner(group, sink(), "c3")
    second.assign({0}, 2, {0: Seek("s1", 0)})
    assert second.read().left_out == (0, 70)
    assert f"offsets 30 to 99 (70 record(s)) were left out {GONE_BACK}" in second.named


def test_uncommitted_records_of_last_owner_are_expected(group: Group) -> None:
    group.ends[TP] = 200
    group.commit({TP: 0}, {TP: format_stamp("c", "A", Note("s1", reached=100))})
    owner = Owner(group, Coverage([(0, 130)]), "b2").read(200)
    assert owner.left_out == (30, 100)
    assert f"offsets 0 to 99 (100 record(s)) were left out {GONE_BACK}" in owner.named


def test_note_ends_where_it_was_read_before(group: Group) -> None:
    seek_without_owner(group, Seek("s1", 0))
    seen = set()
    owner = Owner(group, sink(), "b2")
    while group.committed[TP] < 100:
        owner.batch()
        seen.add((group.committed[TP] < 100, noted(Committed(0, group.stamps[TP]), "A").reached))
    assert seen == {(True, 100), (False, 0)}


def test_rebuild_ends_the_note(group: Group) -> None:
    seek_without_owner(group, Seek("s1", 0))
    seek_without_owner(group, Seek("s2", 0, 7))
    owner = Owner(group, Coverage([(0, 30)]), "b2").read()
    assert owner.left_out == (30, 0), "stored since by an owner that died"


@pytest.mark.parametrize("forward", [Seek("s1", 100), Seek("s1", 150), Seek("s1", None)], ids=str)
def test_seek_that_goes_not_back_leaves_no_note(group: Group, forward: Seek) -> None:
    seek_without_owner(group, forward)
    assert noted(Committed(0, group.stamps[TP]), "A").reached == 0


def test_group_that_another_tool_reset_is_named(group: Group) -> None:
    group.commit({TP: 0})
    owner = Owner(group, sink(), "b2").read()
    assert owner.left_out == (0, 100)
    assert f"were left out {NOT_KNOWN}" in owner.named


def test_group_that_was_deleted_is_named(group: Group) -> None:
    group.committed.clear()
    owner = Owner(group, sink(), "b2").read()
    assert owner.left_out == (0, 100)
    assert NOT_KNOWN in owner.named


@pytest.mark.parametrize("to", [0, 20])
def test_reset_group_is_named_by_the_next_owner_too(group: Group, to: int) -> None:
    group.commit({TP: 0})
    first = Owner(group, sink(), "b2")
    first.plan()
    first.commit()
    if to:
        first.process()
        first.read(to)
    assert parse_stamp(group.stamps[TP]) is not None, "committed as it was taken up"
    second = Owner(group, sink(), "c3").read()
    assert second.left_out == (0, 100 - to)
    assert "were left out" in second.named


def test_group_of_others_without_stored_records_names_nothing(group: Group) -> None:
    group.commit({TP: 40})
    owner = Owner(group, Coverage([]), "b2").read()
    assert owner.left_out == (0, 0)
    assert "left out" not in owner.named
    assert noted(Committed(0, group.stamps[TP]), "A").reached == 0


def test_end_that_is_gone_is_a_way_back() -> None:
    owner = Owner(Group(), Coverage([]), "b2").read()
    owner.kafka.ends[TP] = 50
    owner.go(60.0)
    owner.kafka.ends[TP] = 80
    owner.read(80)
    assert owner.left_out == (0, 30)
    assert f"offsets 50 to 79 (30 record(s)) were left out {GONE_BACK}" in owner.named


@pytest.mark.parametrize("note", [Note("s1", reached=100), Note(reached=UNKNOWN)], ids=str)
def test_note_goes_with_the_metadata(note: Note) -> None:
    text = format_stamp("c", "A", note)
    assert text.endswith("?" if note.reached == UNKNOWN else ":100")
    assert taken_up(Committed(5, text), "A") == noted(Committed(5, f"{text}:more"), "A") == note
    assert note.gone_back(50) == note


def test_offset_without_our_metadata_tells_nothing() -> None:
    for there in (None, Committed(5), Committed(5, "others")):
        assert taken_up(there, "A") == Note(reached=UNKNOWN)
    assert taken_up(Committed(5, format_stamp("c", "A")), "A") == Note()
    assert taken_up(Committed(5, format_stamp("c", "B")), "A") == Note(), "of a topic that is gone"


def test_import_keeps_how_far_it_was_read() -> None:
    there = Committed(100, format_stamp("c", "A", Note("s1", rebuild=7)))
    assert _stamp("c", "A", there) == format_stamp("c", "A", Note("s1", rebuild=7, reached=100))
    assert _stamp("c", "A", replace(there, metadata="")) == format_stamp("c", "A", Note(reached=UNKNOWN))
