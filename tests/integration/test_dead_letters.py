"""Dead letters on a real Kafka: whatever record Kafka took, in one transaction with the offset after it, and back."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
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
from muster.core.parking import Answer
from muster.core.turns import Failure
from muster.edges.dead_letters import DeadLetterTopic, RecordReader, Replay, letter, read_letters
from muster.edges.kafka import GroupOffsets, KafkaError
from muster.edges.kafka_fencing import FencedCommits, _Fence
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
    "headers": (b"k", b"v", [("a", b"1"), ("a", None), ("", b""), ("muster.error", b"an earlier letter's")]),
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

    def reject(self, bad: set[int], end: int, eventually: Eventually) -> None:
        """Process a batch up to `end`, and reject some of its records."""
        eventually(lambda: bool(self.agent.offer(self.token).topics), 60, "claimed")
        asked = self.agent.offer(self.token).asked
        self.agent.planned(self.token, asked, {}, {self.topic: {0: (0, end)}}, {self.tp: end}, [])
        plan = self.agent.batch_started()
        self.agent.batch_done(plan, None, {self.tp: {at: f"ValueError: no {at}" for at in bad}})

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
) -> None:
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
    assert one.agent.view().counters.dead_lettered == {topic: len(bad)}


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
    assert one.agent.answer(one.tp, 1, Answer.DEAD_LETTER, "ann (keep it)")
    eventually(lambda: not one.agent.failing, 60, "written")
    offsets = GroupOffsets(kafka, group)
    eventually(lambda: offsets.committed([one.tp]) == {one.tp: 2}, 60, "committed")
    offsets.close()
    (found,) = contents(kafka, letters_to)
    key, value, headers = RECORDS[what]
    same = (found.key(), found.value()) == (key, value)  # too long to be shown
    assert same, (found.key(), (found.value() or b"")[:100], found.headers())
    own = [(name, held) for name, held in headers if not name.startswith("muster.")]
    assert found.headers()[: len(own)] == own
    said = {name: held.decode() for name, held in found.headers()[len(own) :]}
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


def test_letter_that_does_not_fit_says_what_to_do_and_is_written_once_it_does(
    kafka: KafkaSettings, owner: Callable[[str], Owner], letters_to: str, eventually: Eventually
) -> None:
    topic = make_topic(kafka, **{"max.message.bytes": str(LARGE)})
    produce(kafka, topic, RECORDS["large"])
    admin = AdminClient(dict(kafka.config))
    admin.create_topics([NewTopic(letters_to, 1, 1, config={"max.message.bytes": "1000"})])[
        letters_to
    ].result(60)
    one = owner(topic)
    one.fail_at(0, eventually)
    assert one.agent.answer(one.tp, 0, Answer.DEAD_LETTER, "ann (keep it)")

    def problem() -> str:
        return next((text for key, text in one.agent.view().problems.items() if "dead letters" in key), "")

    eventually(lambda: f"raise max.message.bytes of topic '{letters_to}'" in problem(), 60, "said")
    assert one.agent.failing[one.tp].answer == "dead_letter"
    admin.delete_topics([letters_to])[letters_to].result(60)
    eventually(lambda: not one.agent.failing, 90, "written, to a topic that was made for it")
    assert [message.key() for message in contents(kafka, letters_to)] == [b"k"]


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
    assert one.agent.answer(one.tp, 0, Answer.DEAD_LETTER, "ann (keep it)")
    eventually(lambda: not one.agent.failing, 60, "passed over")
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
        done = site.run(topic, "0", str(offset), "--preview", command=command)
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
            made = letter(record, letters_to, SAID | {"error": error})
            producer.produce(letters_to, made.value, made.key, headers=list(made.headers))
    assert producer.flush(60) == 0
    return site, topic, letters_to


def listed(site: Site, *args: str) -> list[dict[str, Any]]:
    done = site.run("--json", *args, command="deadletters")
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

    def replay(*args: str) -> int:
        done = site.run("--json", "--reason", "mended", "--by", "ann", *args, command="deadletters replay")
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["replayed"])

    assert replay("--error", "ValueError", "--partition", "0") == 2
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
    assert seen.values == {"letters": {topic: 4}, "before": {}}
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


def test_replay_that_fails_after_a_transaction_records_what_it_has_written(
    site: Site, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "AT_ONCE", 1)
    target = target_of(site, kafka)
    topic, letters_to = make_topic(kafka), target.cluster.dead_letter_topic
    produce(kafka, topic, RECORDS["plain"], RECORDS["no key"])
    write_letters(kafka, topic, letters_to, "0", "7")
    with pytest.raises(KafkaError, match="nothing of this transaction was written"):
        carry_out(COMMANDS["replay-deadletters"], target, ANN, {}, "test")
    assert [one.replayed for one in target.dead_letters()] == [True, False]
    [entry] = replays(site)
    assert (entry.details["topic"], entry.details["letters"]) == (topic, 1)


def write_letters(kafka: KafkaSettings, topic: str, letters_to: str, *partitions: str) -> None:
    """Write the letters of the first records of partition 0, as if they were of these partitions."""
    DeadLetterTopic(kafka, letters_to).ensure()
    producer = Producer(dict(kafka.config))
    for offset, partition in enumerate(partitions):
        record = RecordReader(kafka, "r").read((topic, 0), offset)
        assert record is not None
        made = letter(record, letters_to, SAID | {"partition": partition})
        producer.produce(letters_to, made.value, made.key, headers=list(made.headers))
    assert producer.flush(60) == 0


def test_replay_to_a_partition_that_is_not_there_writes_nothing(
    site: Site, kafka: KafkaSettings, letters_to: str
) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, RECORDS["plain"], RECORDS["no key"])
    write_letters(kafka, topic, letters_to, "0", "7")
    letters = list(read_letters(kafka, letters_to, site.name))
    with pytest.raises(KafkaError, match="nothing of this transaction was written"):
        Replay(kafka, CLUSTER).write(letters)
    assert len(contents(kafka, topic)) == 2
    assert not any(one.replayed for one in read_letters(kafka, letters_to, site.name))


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
