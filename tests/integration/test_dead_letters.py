"""Dead letters on a real Kafka: whatever record Kafka took, in one transaction with the offset after it, and back."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from muster.commands.actions import dead_letters
from muster.commands.audit import carry_out, foreseen
from muster.commands.command import Actor, CommandError
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.core.history import CommandEntry
from muster.core.model import TopicAssignment, TopicPartition
from muster.core.ownership import BatchPlan
from muster.core.parking import Answer
from muster.core.turns import Failure
from muster.edges import record_reader
from muster.edges.dead_letters import (
    HEADERS,
    DeadLetterTopic,
    Letter,
    Record,
    Replay,
    letter,
    read_letters,
)
from muster.edges.kafka import GroupOffsets, KafkaError
from muster.edges.kafka_fencing import FencedCommits, _Fence
from muster.edges.record_reader import RecordReader
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.obedient_consumers import coordinator
from tests.support.site import Site, site

__all__ = ["site"]

pytestmark = pytest.mark.timeout(300)

CLUSTER = "c"
ROOT = Path(__file__).parents[2]
LARGE = 5_000_000
Written = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
SAID = {"error": "ValueError: no", "attempts": 3, "cluster": CLUSTER, "consumer": "one", "by": "on_poison"}

RECORDS: dict[str, Written] = {
    "plain": (b"key", b"value", []),
    "bytes": (
        bytes(range(256)),
        bytes(reversed(range(256))),
        [("\N{GREEK SMALL LETTER ALPHA}", b"\xff\x00")],
    ),
    "no key": (None, b"value", []),
    "tombstone": (b"key", None, [("why", b"gone")]),
    "nothing": (None, None, []),
    "headers": (
        b"k",
        b"v",
        [("a", b"1"), ("a", None), ("", b""), ("muster.error", b"mine"), ("muster.topic", b"mine")],
    ),
    "empty": (b"", b"", []),
    "large": (b"k", random.Random(1).randbytes(4_900_000), [("h", bytes(50_000))]),
}


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:8]}"


@pytest.fixture
def letters_to(kafka: KafkaSettings) -> str:
    return f"__letters-{uuid4().hex[:8]}"


def make_topic(kafka: KafkaSettings, **config: str) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient(dict(kafka.config))  # kept until the answer is there
    admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(60)
    return name


def produce(kafka: KafkaSettings, topic: str, *records: Written, partition: int = 0) -> None:
    """Write them in this order, whatever has to be sent again."""
    failed: list[object] = []
    config = {"message.max.bytes": str(2 * LARGE), "enable.idempotence": True}
    producer = Producer({**kafka.config, **config})
    for key, value, headers in records:
        producer.produce(
            topic,
            value,
            key,
            partition=partition,
            headers=headers,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert (producer.flush(60), failed) == (0, [])


def contents(
    kafka: KafkaSettings, topic: str, partition: int = 0, isolation: str = "read_committed"
) -> list[Any]:
    """All messages of a partition."""
    config = {"group.id": "r", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer({**kafka.config, **config})
    try:
        consumer.assign([KafkaPartition(topic, partition, 0)])
        found = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            found.append(message)
        assert message is not None, "no answer"
        return found
    finally:
        consumer.close()


class Owner:
    """A consumer whose planner and handler the test plays: it fails with one record of partition 0."""

    def __init__(self, kafka: KafkaSettings, topic: str, group: GroupOffsets, letters_to: str) -> None:
        self.topic = topic
        self.agent = Agent("one", fencing=True)
        self.committer = Committer(self.agent, kafka, CLUSTER, True, letters_to)
        node = TopicAssignment(kafka.bootstrap_servers, group.group_id, {0: "one"}, 1)
        self.agent.assigned(topic, node, 1)
        self.token = self.agent.query_started()
        self.stands: dict[str, dict[int, tuple[int, int]]] = {}
        self.thread = threading.Thread(target=self.committer.run, args=(lambda: None,), daemon=True)
        self.thread.start()

    @property
    def tp(self) -> TopicPartition:
        return self.topic, 0

    def fail_at(self, offset: int, eventually: Eventually) -> None:
        """Process what is before the record, and fail with it, twice: the first time it is a batch."""
        stands: dict[str, dict[int, tuple[int, int]]] = {}
        eventually(lambda: bool(self.agent.offer(self.token).topics), 60, "claimed")
        bad = (offset, offset + 1)
        for begin, end in ((0, offset), bad, (offset, offset), bad):
            after = {self.topic: {0: (begin, end)}}
            asked = self.agent.offer(self.token).asked
            self.agent.planned(self.token, asked, stands, after, {self.tp: offset + 1}, [])
            stands = after
            plan = self.agent.batch_started()
            self.agent.batch_done(plan, None if end == offset else Failure("ValueError: no"))

    def reject(self, bad: set[int], end: int, eventually: Eventually, begin: int = 0) -> str:
        """Process a batch, and reject some of its records; returns why that is refused, '' if it is not."""
        eventually(lambda: bool(self.offered()), 60, "offered")
        plan = self.plan({self.topic: {0: (begin, end)}})
        rejected = {self.tp: {at: f"ValueError: no {at}" for at in bad}}
        why = self.agent.may_reject(plan, rejected)
        self.agent.batch_done(plan, Failure(why) if why else None, rejected)
        return why

    def offered(self) -> Mapping[str, object]:
        """What the next batch may hold, once what is confirmed to this consumer is taken up again."""
        self.agent.blocks.is_registered(time.monotonic())
        self.agent.blocks.has_read(self.agent.blocks.reading_wanted() or 0)
        topics = self.agent.offer(self.token).topics
        return {name: of for name, of in topics.items() if of.partitions}

    def plan(self, batch: dict[str, dict[int, tuple[int, int]]]) -> BatchPlan:
        """Begin a batch."""
        asked = self.agent.offer(self.token).asked
        ends = {(topic, number): end for topic, of in batch.items() for number, (_, end) in of.items()}
        self.agent.planned(self.token, asked, self.stands, batch, ends, [])
        self.stands = batch
        return self.agent.batch_started()

    def close(self) -> None:
        self.committer.stop()
        self.thread.join(30)


@pytest.fixture
def owner(kafka: KafkaSettings, group: str, letters_to: str) -> Iterator[Callable[[str], Owner]]:
    offsets, made = GroupOffsets(kafka, group), []

    def make(topic: str) -> Owner:
        made.append(Owner(kafka, topic, offsets, letters_to))
        return made[-1]

    yield make
    for one in made:
        one.close()
    offsets.close()


@pytest.mark.parametrize("bad", [{3, 4, 999}, {*range(0, 5_000, 5)}, {7, 30_000}], ids=len)
def test_rejected_records_are_read_and_written_in_bulk(
    bad: set[int],
    kafka: KafkaSettings,
    owner: Callable[[str], Owner],
    group: str,
    letters_to: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, open_one = [], record_reader.open_reader

    def counted(*arguments: Any) -> Any:
        opened.append(arguments)
        return open_one(*arguments)

    monkeypatch.setattr(record_reader, "open_reader", counted)
    topic, end = make_topic(kafka), max(bad) + 1
    produce(kafka, topic, *((b"k", str(at).encode(), []) for at in range(end)))
    one = owner(topic)
    one.reject(bad, end, eventually)
    offsets = GroupOffsets(kafka, group)
    eventually(lambda: offsets.committed([one.tp]) == {one.tp: end}, 60, "committed")
    found = contents(kafka, letters_to)
    assert [int(message.value()) for message in found] == sorted(bad)
    said = [dict(message.headers())["muster.error"].decode() for message in found]
    assert said == [f"ValueError: no {at}" for at in sorted(bad)]
    assert len(opened) in range(1, 4), "a client for all of them, and for one more try or two"
    eventually(lambda: one.agent.view().counters.dead_lettered == {topic: len(bad)}, 60, "counted")


@pytest.mark.parametrize("what", RECORDS)
def test_letter_holds_the_record_and_says_where_it_was(
    what: str,
    kafka: KafkaSettings,
    owner: Callable[[str], Owner],
    group: str,
    letters_to: str,
    eventually: Eventually,
) -> None:
    topic = make_topic(kafka, **{"max.message.bytes": str(LARGE)})
    produce(kafka, topic, (None, b"before", []), RECORDS[what], (None, b"after", []))
    one = owner(topic)
    one.fail_at(1, eventually)
    assert one.agent.answers.answer(one.tp, 1, Answer.DEAD_LETTER, "ann (keep it)")
    eventually(lambda: not one.agent.answers.failing, 60, "written")
    offsets = GroupOffsets(kafka, group)
    eventually(lambda: offsets.committed([one.tp]) == {one.tp: 2}, 60, "committed")
    offsets.close()
    (found,) = contents(kafka, letters_to)
    key, value, headers = RECORDS[what]
    same = (found.key(), found.value()) == (key, value)  # too long to be shown
    assert same, (found.key(), (found.value() or b"")[:100], found.headers())
    assert found.headers()[: len(headers)] == headers
    said = {name: held.decode() for name, held in found.headers()[len(headers) :]}
    moment = int(said.pop("muster.timestamp"))
    assert abs(moment - found.timestamp()[1]) < 120_000
    assert said == {
        "muster.topic": topic,
        "muster.partition": "0",
        "muster.offset": "1",
        "muster.error": "ValueError: no",
        "muster.attempts": "1",
        "muster.cluster": CLUSTER,
        "muster.consumer": "one",
        "muster.by": "ann (keep it)",
    }


def too_small(kafka: KafkaSettings, letters_to: str) -> AdminClient:
    """Make a dead-letter topic for small letters."""
    admin = AdminClient(dict(kafka.config))
    made = admin.create_topics([NewTopic(letters_to, 1, 1, config={"max.message.bytes": "1000"})])
    made[letters_to].result(60)
    return admin


def test_letter_larger_than_its_topic_allows_parks_its_record(
    kafka: KafkaSettings, owner: Callable[[str], Owner], letters_to: str, eventually: Eventually
) -> None:
    topic = make_topic(kafka, **{"max.message.bytes": str(LARGE)})
    produce(kafka, topic, RECORDS["large"])
    admin = too_small(kafka, letters_to)
    one = owner(topic)
    one.fail_at(0, eventually)
    limit = f"raise max.message.bytes of topic '{letters_to}', the letter has 4950"
    for by in ("ann (keep it)", "ann (once more)"):
        assert one.agent.answers.answer(one.tp, 0, Answer.DEAD_LETTER, by)
        eventually(lambda: not one.agent.answers.failing[one.tp].answer, 60, "a person is asked again")
        assert one.agent.answers.failing[one.tp].error.count(limit) == 1
        assert one.agent.answers.failing[one.tp].parked
    assert any(limit in text for text in one.agent.view().problems.values())
    admin.delete_topics([letters_to])[letters_to].result(60)
    assert one.agent.answers.answer(one.tp, 0, Answer.DEAD_LETTER, "ann (there is room)")
    eventually(lambda: not one.agent.answers.failing, 90, "written, to a topic that was made for it")
    (found,) = contents(kafka, letters_to)
    assert dict(found.headers())["muster.error"] == b"ValueError: no"


def test_rejected_record_with_too_large_letter_is_parked(
    kafka: KafkaSettings,
    owner: Callable[[str], Owner],
    group: str,
    letters_to: str,
    eventually: Eventually,
) -> None:
    topic = make_topic(kafka, **{"max.message.bytes": str(LARGE)})
    small: Written = (None, b"v", [])
    produce(kafka, topic, small, RECORDS["large"], small)
    too_small(kafka, letters_to)
    one = owner(topic)
    one.reject({0, 1}, 3, eventually)
    eventually(lambda: bool(one.agent.view().refusals), 60, "it is refused")
    one.agent.batch_done(one.plan({}), None)
    limit = f"raise max.message.bytes of topic '{letters_to}', the letter has 4950"
    assert limit in one.reject({0, 1}, 3, eventually)
    assert not one.reject({0}, 1, eventually)
    offsets = GroupOffsets(kafka, group)
    eventually(lambda: offsets.committed([one.tp]) == {one.tp: 1}, 60, "the first has its letter")
    assert limit in one.reject({1}, 2, eventually, begin=1)
    assert limit in one.agent.answers.failing[one.tp].error
    assert one.agent.answers.failing[one.tp].offset == 1
    assert one.agent.answers.answer(one.tp, 1, Answer.SKIP, "ann (too large)")
    eventually(lambda: offsets.committed([one.tp]) == {one.tp: 2}, 60, "read on")


def test_record_that_kafka_has_no_more_is_passed_over(
    kafka: KafkaSettings, owner: Callable[[str], Owner], letters_to: str, eventually: Eventually
) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, *[(None, b"v", [])] * 3)
    one = owner(topic)
    one.fail_at(0, eventually)
    admin = AdminClient(dict(kafka.config))
    for future in admin.delete_records([KafkaPartition(topic, 0, 2)]).values():
        future.result(60)
    assert one.agent.answers.answer(one.tp, 0, Answer.DEAD_LETTER, "ann (keep it)")
    eventually(lambda: not one.agent.answers.failing, 60, "passed over")
    counters = one.agent.view().counters
    assert (counters.skipped, counters.dead_lettered) == ({topic: 1}, {})


@pytest.mark.parametrize(("when", "landed"), [("written", False), ("committed", True)])
def test_consumer_that_is_killed_leaves_letter_and_offset_or_neither(
    when: str, landed: bool, kafka: KafkaSettings, group: str, letters_to: str, eventually: Eventually
) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, RECORDS["plain"])
    DeadLetterTopic(kafka, letters_to).ensure()
    told = {"kafka": kafka.config, "cluster": CLUSTER, "topic": topic, "group": group, "to": letters_to}
    command = [
        sys.executable,
        "-m",
        "tests.support.dying_letter_writer",
        json.dumps(told),
        when,
        json.dumps(SAID),
    ]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == 9, died.stderr
    assert len(contents(kafka, letters_to, isolation="read_uncommitted")) == 1, "it was written"
    tp = (topic, 0)
    offsets = GroupOffsets(kafka, group)
    commits = FencedCommits(kafka, CLUSTER, offsets)
    eventually(lambda: not commits.claim([tp]).failed, 60, "claimed by the next owner")
    assert offsets.committed([tp]) == {tp: 1 if landed else None}
    assert len(contents(kafka, letters_to)) == (1 if landed else 0)
    record = RecordReader(kafka, group).read(tp, 0)
    assert record is not None
    if not landed:
        again = {tp: {0: letter(record, letters_to, SAID)}}
        eventually(
            lambda: commits.commit({tp: 1}, letters=again).done == {tp: 1}, 60, "written by the next owner"
        )
        assert len(contents(kafka, letters_to)) == 1
    commits.close()
    offsets.close()


def test_letter_of_a_producer_that_was_stuck_is_not_written_again(
    kafka: KafkaSettings, group: str, letters_to: str, eventually: Eventually
) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, RECORDS["plain"])
    DeadLetterTopic(kafka, letters_to).ensure()
    offsets = GroupOffsets(kafka, group)
    commits = FencedCommits(kafka, CLUSTER, offsets)
    tp = (topic, 0)
    eventually(lambda: not commits.claim([tp]).failed, 60, "claimed")
    record = RecordReader(kafka, group).read(tp, 0)
    assert record is not None
    found = {tp: {0: letter(record, letters_to, SAID)}}
    eventually(lambda: commits.commit({tp: 1}, letters=found).done == {tp: 1}, 60, "written")
    commits._fences[tp] = _Fence(commits._open(tp), topic, replaces=True)
    eventually(lambda: commits.commit({tp: 1}, letters=found).done == {tp: 1}, 60, "acknowledged")
    assert len(contents(kafka, letters_to)) == 1
    commits.close()
    offsets.close()


def test_preview_of_an_answer_shows_what_the_record_holds_and_changes_nothing(
    site: Site, kafka: KafkaSettings, eventually: Eventually
) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, RECORDS["tombstone"], (b"k" * 300, "\N{SNOWMAN}".encode(), []))
    site.variables["AIRFLOW_CONN_MUSTER_KAFKA"] = json.dumps(
        {"conn_type": "kafka", "extra": dict(kafka.config)}
    )
    site.store.create_topic(topic, kafka.bootstrap_servers, site.name)
    site.store.set_partitions(topic, frozenset({0, 1}))
    one = coordinator(site.write(topics=["t", "u", topic]), site.store, site.discovery)
    eventually(lambda: one.advance(20).stable, 120, "stable")

    def preview(command: str, offset: int) -> list[str]:
        site.failing[topic, 0] = {"offset": offset, "attempts": 8, "error": "ValueError: no", "parked": True}
        done = site.ask(topic, "0", str(offset), "--preview", command=command)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    lines = preview("skip-record", 0)
    assert lines[-1] == f"the record at offset 0 of partition 0 of topic {topic!r} is skipped"
    assert lines[-2].startswith("it failed 8 times alone at consumer ")
    assert lines[:-2] == ["key: 'key' (3 bytes)", "value: null", "headers: why 'gone' (4 bytes)"]
    lines = preview("dead-letter-record", 1)
    assert lines[:-2] == [
        f"key: '{'k' * 200}'... (300 bytes)",
        "value: '\N{SNOWMAN}' (3 bytes)",
        "headers: none",
    ]
    admin = AdminClient(dict(kafka.config))
    for future in admin.delete_records([KafkaPartition(topic, 0, 1)]).values():
        future.result(60)
    assert preview("retry-record", 0)[:-2] == ["Kafka has no record there any more"]
    assert site.discovery.answers.all() == {}


# -- listing and replay ---------------------------------------------------------------------------------


@pytest.fixture
def lettered(site: Site, kafka: KafkaSettings) -> tuple[Site, str, str]:
    """A cluster with five letters of two partitions, its topic and its dead-letter topic."""
    topic = make_topic(kafka)
    site.variables["AIRFLOW_CONN_MUSTER_KAFKA"] = json.dumps(
        {"conn_type": "kafka", "extra": dict(kafka.config)}
    )
    letters_to = site.write().dead_letter_topic
    DeadLetterTopic(kafka, letters_to).ensure()
    producer = Producer(dict(kafka.config))
    for partition, errors in (
        (0, ["ValueError: a", "KeyError: b", "ValueError: c"]),
        (1, ["ValueError: d"] * 2),
    ):
        values = [RECORDS["plain"], RECORDS["headers"], RECORDS["tombstone"]][: len(errors)]
        produce(kafka, topic, *values, partition=partition)
        for offset, error in enumerate(errors):
            record = RecordReader(kafka, site.name).read((topic, partition), offset)
            assert record is not None
            made = letter(record, letters_to, SAID | {"error": error, "cluster": site.name})
            producer.produce(letters_to, made.value, made.key, headers=list(made.headers))
    assert producer.flush(60) == 0
    return site, topic, letters_to


def listed(site: Site, *args: str) -> list[dict[str, Any]]:
    done = site.ask("--json", *args, command="deadletters")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["letters"])


def test_letters_are_listed_filtered_and_bounded(lettered: tuple[Site, str, str]) -> None:
    site, topic, letters_to = lettered
    found = listed(site)
    assert [(one["partition"], one["offset"]) for one in found] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert found[0] | {"written": "", "timestamp": 0} == {
        "letter": "0/0",
        "written": "",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "error": "ValueError: a",
        "attempts": 3,
        "cluster": site.name,
        "consumer": "one",
        "by": "on_poison",
        "replayed": False,
        "key": "key",
        "value": "value",
    }
    assert found[2]["value"] is None
    assert [one["letter"] for one in listed(site, "--partition", "1", "--error", "ValueError")] == [
        "0/3",
        "0/4",
    ]
    assert [one["letter"] for one in listed(site, "--limit", "2")] == ["0/3", "0/4"]
    assert listed(site, "--topic", "another") == []
    assert len(listed(site, "--since", "1h")) == 5
    shown = site.run("--error", "KeyError", command="deadletters").stdout
    assert f"{topic}/0/1" in shown
    assert f"topic {letters_to}, 1 letter(s)" in shown


def test_replay_writes_each_record_back_once_where_it_came_from(
    lettered: tuple[Site, str, str], kafka: KafkaSettings
) -> None:
    site, topic, letters_to = lettered

    def replay(*args: str, how: Callable[..., subprocess.CompletedProcess[str]] = site.ask) -> int:
        done = how("--json", "--reason", "mended", "--by", "ann", *args, command="deadletters replay")
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["replayed"])

    assert replay("--error", "ValueError", "--partition", "0", how=site.run) == 2
    assert [one["replayed"] for one in listed(site)] == [True, False, True, False, False]
    came = contents(kafka, topic, 0)[3:]
    assert [(one.key(), one.value()) for one in came] == [RECORDS["plain"][:2], RECORDS["tombstone"][:2]]
    assert came[0].headers() == [("muster.replay", f"{letters_to}/0/0".encode())]
    assert came[1].headers()[0] == ("why", b"gone")
    assert len(contents(kafka, topic, 1)) == 2
    assert replay() == 3, "the others"
    assert replay() == 0, "all of them were written back"
    assert len(contents(kafka, topic, 0)) == 6
    assert [one.headers()[:2] for one in contents(kafka, topic, 0)[-1:]] == [[("a", b"1"), ("a", None)]]
    assert replay("--again", "--letter", "0/1") == 1
    elsewhere = make_topic(kafka)
    assert replay("--again", "--to", elsewhere, "--limit", "4") == 4
    assert sum(len(contents(kafka, elsewhere, number)) for number in (0, 1)) == 4
    found = replays(site)
    assert [one.details["letters"] for one in found] == [4, 1, 3, 2]
    assert {(one.who, one.why, one.via) for one in found} == {("ann", "mended", "command line")}


ANN = Actor("ann", "mended", 1_700_000_000.0)


def target_of(site: Site, kafka: KafkaSettings) -> Target:
    def store() -> TopicStore:
        return TopicStore(site.zookeeper, site.name, read_only=True)

    return Target(site.write(), site.discovery, store, lambda: kafka)


def replays(site: Site) -> list[CommandEntry]:
    entries = [found.entry for found in site.store.history(limit=100).records]
    return [one for one in entries if isinstance(one, CommandEntry) and one.what == "replay-deadletters"]


def test_preview_of_a_replay_counts_letters_by_topic_and_ends_no_replay_under_way(
    lettered: tuple[Site, str, str], kafka: KafkaSettings
) -> None:
    site, topic, letters_to = lettered
    target, command = target_of(site, kafka), COMMANDS["replay-deadletters"]
    under_way = target.replay()
    seen = foreseen(command, target, ANN, {"error": "ValueError"})
    assert seen.lines() == (
        f"topic {topic}, partition 0: 2 letter(s) to write back, 0 written back before",
        f"topic {topic}, partition 1: 2 letter(s) to write back, 0 written back before",
        f"together 4 letter(s) are written back ({topic} 4), 0 were written back before",
    )
    assert seen.values == {"letters": {topic: 4}, "before": {}, "left_out": ()}
    assert not any(one.replayed for one in read_letters(kafka, letters_to, site.name))
    [*_, last] = target.dead_letters()
    under_way.write([last])
    assert foreseen(command, target, ANN, {"topic": topic, "partitions": "1"}).lines()[0] == (
        f"topic {topic}, partition 1: 1 letter(s) to write back, 1 written back before"
    )
    none = "together 0 letter(s) are written back (none), 0 were written back before"
    assert foreseen(command, target, ANN, {"topic": "another"}).lines() == (none,)
    done = site.run("--preview", command="replay-deadletters")
    assert done.stdout.splitlines()[-1].startswith("together 4 letter(s)"), done.stderr
    assert replays(site) == []


def test_replay_by_the_table_writes_back_what_the_fields_name(
    lettered: tuple[Site, str, str], kafka: KafkaSettings
) -> None:
    site, topic, _ = lettered
    target, command = target_of(site, kafka), COMMANDS["replay-deadletters"]
    given = {"topic": topic, "partitions": "0", "error": "ValueError"}
    outcome = carry_out(command, target, ANN, given, "test")
    assert outcome.lines == (
        f"2 dead letter(s) of cluster {site.name} are written back: mended (by ann)",
        f"2 record(s) written to topic {topic}",
    )
    assert len(contents(kafka, topic, 0)) == 5
    with pytest.raises(CommandError, match="has no such dead letter to write back"):
        carry_out(command, target, ANN, given, "test")
    assert outcome.values["topics"] == {topic: 2}
    [entry] = replays(site)
    assert (entry.who, entry.via, entry.details["letters"]) == ("ann", "test", 2)


class Overtaken(Target):
    """A cluster of which another replay begins once the first letter is written back."""

    def dead_letters(self) -> Iterator[Letter]:
        for number, one in enumerate(super().dead_letters()):
            if number == 1:
                self.replay()
            yield one


def test_replay_that_fails_after_a_transaction_records_what_it_has_written(
    site: Site, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "AT_ONCE", 1)
    found = target_of(site, kafka)
    target = Overtaken(found.cluster, found.consul, found.store, found.kafka)
    topic = make_topic(kafka)
    put(kafka, target.cluster.dead_letter_topic, *([{"topic": topic, "cluster": site.name}] * 2))
    with pytest.raises(KafkaError, match="nothing of this transaction was written"):
        carry_out(COMMANDS["replay-deadletters"], target, ANN, {}, "test")
    assert [one.replayed for one in found.dead_letters()] == [True, False]
    [entry] = replays(site)
    assert (entry.details["topic"], entry.details["letters"]) == (topic, 1)


def put(kafka: KafkaSettings, letters_to: str, *said: dict[str, object]) -> None:
    """Write letters of one record, which say different things of it."""
    DeadLetterTopic(kafka, letters_to).ensure()
    for each in said:
        record = Record("", 0, 7, None, b"key", b"value")
        made = letter(record, letters_to, SAID | each)
        produce(kafka, letters_to, (made.key, made.value, list(made.headers)))


def test_replay_leaves_out_what_cannot_be_written_back(site: Site, kafka: KafkaSettings) -> None:
    target, command = target_of(site, kafka), COMMANDS["replay-deadletters"]
    topic, letters_to, name = make_topic(kafka), target.cluster.dead_letter_topic, site.name
    site.variables["AIRFLOW_CONN_MUSTER_KAFKA"] = json.dumps(
        {"conn_type": "kafka", "extra": dict(kafka.config)}
    )
    mine: dict[str, object] = {"topic": topic, "cluster": name}
    put(
        kafka,
        letters_to,
        mine | {"topic": "gone"},
        mine | {"partition": 7},
        mine | {"cluster": "other"},
        mine,
    )
    produce(kafka, letters_to, (b"k", b"foreign", [("muster.replay.of", b"mine")]), (None, b"no letter", []))
    elsewhere = "'muster deadletters replay --to TOPIC' writes it to another topic"
    gone = f"1 left out (0/0): Kafka has no topic 'gone' that this user may see; {elsewhere}"
    fewer = f"1 left out (0/1): topic '{topic}' has no partition 7; {elsewhere}"
    by_it = "which writes it back: 'muster deadletters replay --cluster'"
    others = f"1 left out (0/2): a letter of cluster 'other', {by_it}"
    foreign = f"2 left out (0/4, 0/5): no dead letter, but another record in topic '{letters_to}'"
    seen = foreseen(command, target, ANN, {})
    assert seen.summary[:4] == (gone, fewer, others, foreign)
    assert seen.values == {"letters": {topic: 1}, "before": {}, "left_out": (gone, fewer, others, foreign)}
    outcome = carry_out(command, target, ANN, {}, "test")
    assert outcome.lines[1:6] == (f"1 record(s) written to topic {topic}", gone, fewer, others, foreign)
    assert [one.value() for one in contents(kafka, topic)] == [b"value"]
    with pytest.raises(CommandError, match="no such dead letter to write back") as refused:
        carry_out(command, target, ANN, {}, "test")
    assert gone in str(refused.value)
    to = make_topic(kafka)
    letters = [word for at in (0, 2, 9) for word in ("--letter", f"0/{at}")]
    for preview in (["--preview"], []):
        options = ("--json", "--to", to, "--reason", "kept", *letters, *preview)
        done = site.ask(*options, command="deadletters replay")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["left_out"] == [others, "1 left out (0/9): there is no such letter"]
    assert sum(len(contents(kafka, to, number)) for number in (0, 1)) == 1
    shown = [(one["letter"], one["cluster"], one["replayed"]) for one in listed(site)]
    of = [name, name, "other", name, "", ""]
    assert shown == [(f"0/{at}", of[at], at in {0, 3}) for at in range(6)]


@pytest.mark.parametrize("to", ["nowhere", "the dead-letter topic"])
def test_replay_to_unusable_topic_is_refused(to: str, site: Site, kafka: KafkaSettings) -> None:
    target = target_of(site, kafka)
    letters_to = target.cluster.dead_letter_topic
    put(kafka, letters_to, {"cluster": site.name})
    with pytest.raises(CommandError, match="with --to"):
        dead_letters.replay(dead_letters.Wanted(), target, ANN, to=letters_to if "letter" in to else to)
    assert len(contents(kafka, letters_to)) == 1


def test_replay_leaves_out_what_kafka_refuses(site: Site, kafka: KafkaSettings) -> None:
    target, small = target_of(site, kafka), make_topic(kafka, **{"max.message.bytes": "1000"})
    topic, letters_to = make_topic(kafka), target.cluster.dead_letter_topic
    compacted = make_topic(kafka, **{"cleanup.policy": "compact"})
    large = random.Random(1).randbytes(2_000)
    DeadLetterTopic(kafka, letters_to).ensure()
    for of, value in (
        (small, b"a"),
        (small, large),
        (topic, large),
        (small, b"b" * 500),
        (small, b"c" * 500),
    ):
        made = letter(Record(of, 0, 7, None, b"k", value), letters_to, SAID | {"cluster": site.name})
        produce(kafka, letters_to, (made.key, made.value, list(made.headers)))
    for key in (None, b"k"):
        made = letter(Record(compacted, 0, 7, None, key, b"d"), letters_to, SAID | {"cluster": site.name})
        produce(kafka, letters_to, (made.key, made.value, list(made.headers)))
    keyless = (
        f"1 left out (0/5): topic '{compacted}' is compacted, and takes no record without a key; "
        "'muster deadletters replay --to TOPIC' writes it to another topic"
    )
    too_large = f"larger than max.message.bytes of topic '{small}' allows"
    assert foreseen(COMMANDS["replay-deadletters"], target, ANN, {}).summary[:2] == (
        keyless,
        f"1 of these (0/1): {too_large}, unless compressed; what Kafka refuses is left out",
    )
    outcome = carry_out(COMMANDS["replay-deadletters"], target, ANN, {}, "test")
    assert outcome.values["topics"] == {topic: 1, small: 3, compacted: 1}
    assert outcome.lines[-2:] == (keyless, f"1 left out (0/1): {too_large}")
    assert [one.replayed for one in target.dead_letters()] == [True, False, *[True] * 3, False, True]


def test_clusters_that_share_a_topic_replay_their_own(kafka: KafkaSettings, site: Site) -> None:
    target, topic = target_of(site, kafka), make_topic(kafka)
    letters_to = target.cluster.dead_letter_topic
    put(kafka, letters_to, *({"topic": topic, "cluster": of} for of in (site.name, "b", "b")))
    both = [target, replace(target, cluster=target.cluster.model_copy(update={"name": "b"}))]
    assert both[1].cluster.dead_letter_topic != letters_to, "by default"
    consumers = target.cluster.consumers.model_copy(update={"dead_letter_topic": letters_to})
    both[1] = replace(both[1], cluster=both[1].cluster.model_copy(update={"consumers": consumers}))
    done = [dead_letters.replay(dead_letters.Wanted(), each, ANN).values["letters"] for each in both]
    assert done == [1, 2]
    assert len(contents(kafka, topic)) == 3


def test_own_headers_survive_letters_and_replays(site: Site, kafka: KafkaSettings) -> None:
    target, topic = target_of(site, kafka), make_topic(kafka)
    letters_to = target.cluster.dead_letter_topic
    DeadLetterTopic(kafka, letters_to).ensure()
    own: list[tuple[str, bytes | None]] = [
        ("muster.mine", b"1"),
        ("muster.replay.of", b"2"),
        ("muster.replay", b"3"),
        *((f"muster.{name}", None) for name in HEADERS),
        ("last", b"4"),
    ]
    produce(kafka, topic, (b"k", b"v", own))
    for times in (1, 2):
        record = RecordReader(kafka, "r").read((topic, 0), times - 1)
        assert record is not None
        made = letter(record, letters_to, SAID | {"cluster": site.name})
        produce(kafka, letters_to, (made.key, made.value, list(made.headers)))
        dead_letters.replay(dead_letters.Wanted(), target, ANN)
        came = contents(kafka, topic)[times].headers()
        assert came[:-1] == own
        assert came[-1][0] == "muster.replay"


def test_replay_that_another_one_follows_ends(kafka: KafkaSettings, letters_to: str) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, RECORDS["plain"])
    DeadLetterTopic(kafka, letters_to).ensure()
    record = RecordReader(kafka, "g").read((topic, 0), 0)
    assert record is not None
    produce(kafka, letters_to, (b"k", b"v", list(letter(record, letters_to, SAID).headers)))
    first = Replay(kafka, letters_to.strip("_"))
    second = Replay(kafka, letters_to.strip("_"))
    letters = list(read_letters(kafka, letters_to, "g"))
    second.write(letters)
    with pytest.raises(KafkaError):
        first.write(letters)
    assert len(contents(kafka, topic)) == 2


def test_letters_of_no_topic_are_none(site: Site, kafka: KafkaSettings) -> None:
    site.variables["AIRFLOW_CONN_MUSTER_KAFKA"] = json.dumps(
        {"conn_type": "kafka", "extra": dict(kafka.config)}
    )
    assert listed(site) == []
