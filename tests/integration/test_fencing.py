"""Fenced commits against a real Kafka: of two owners in turn, only the newer one's commits are accepted."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from devstack.kafka import Kafka
from muster.consumer.commits import GuardedCommits
from muster.core.model import TopicPartition
from muster.edges.kafka import GroupOffsets, KafkaError, librdkafka_logger
from muster.edges.kafka_fencing import PARALLEL, FencedCommits, _Fence, transactional_id
from muster.settings.connections import KafkaSettings
from tests.conftest import Eventually
from tests.support.kafka_topics import make_topic

pytestmark = pytest.mark.timeout(300)

CLUSTER = "fencing-test"
PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


class Owner:
    """One consumer's commits, as its committer makes them: asked again until there is an answer."""

    def __init__(self, kafka: KafkaSettings, group: str, eventually: Eventually) -> None:
        self.group = GroupOffsets(kafka, group)
        self.commits = FencedCommits(kafka, CLUSTER, self.group)
        self._eventually = eventually

    def claim(self, *partitions: TopicPartition) -> None:
        left = list(partitions)

        def claimed() -> bool:
            left[:] = self.commits.claim(left).failed
            return not left

        self._eventually(claimed, 120, "claimed")

    def commit(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Commit until each is acknowledged or refused; returns those that were refused."""
        left = dict(offsets)
        refused: dict[TopicPartition, str] = {}

        def through() -> bool:
            outcome = self.commits.commit(left)
            refused.update(outcome.refused)
            for key in outcome.refused:
                del left[key]
            for key, offset in outcome.done.items():
                if offset == left[key]:
                    del left[key]
            return not left

        self._eventually(through, 120, "committed or refused")
        return refused

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        def read() -> dict[TopicPartition, int | None] | None:
            with suppress(KafkaError):
                return self.group.committed(partitions)
            return None

        return self._eventually(read, 120, "read what is committed") or {}

    def close(self) -> None:
        self.commits.close()
        self.group.close()


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:8]}"


@pytest.fixture
def owner(kafka: KafkaSettings, group: str, eventually: Eventually) -> Iterator[Callable[[], Owner]]:
    owners: list[Owner] = []

    def make() -> Owner:
        owners.append(Owner(kafka, group, eventually))
        return owners[-1]

    yield make
    for made in owners:
        made.close()


def test_no_two_partitions_share_an_id() -> None:
    ids = {
        transactional_id(cluster, group, topic, partition)
        for cluster in ("a", "a.b")
        for group in ("g", "1/g", "t/1/g")
        for topic in ("t", "t.1")
        for partition in (1, 11)
    }
    assert len(ids) == 2 * 3 * 2 * 2


def test_an_old_owners_late_commit_is_refused_and_the_offset_does_not_go_back(
    kafka: KafkaSettings, owner: Callable[[], Owner], eventually: Eventually
) -> None:
    topic = make_topic(kafka, 2)
    moved, kept = (topic, 0), (topic, 1)
    old, new = owner(), owner()
    old.claim(moved, kept)
    assert old.commit({moved: 10, kept: 1}) == {}

    new.claim(moved)
    assert new.committed(moved) == {moved: 10}
    assert new.commit({moved: 30}) == {}

    refused = old.commit({moved: 20, kept: 2})
    assert refused.keys() == {moved}
    assert "fenced" in refused[moved]
    assert new.committed(moved, kept) == {moved: 30, kept: 2}, "refused there, accepted for the other one"
    assert old.commit({moved: 25}).keys() == {moved}, "and so for good"
    assert new.commit({moved: 40}) == {}
    assert new.committed(moved) == {moved: 40}

    # The ids are a group's own: another group on the same topic is not touched.
    other = Owner(kafka, f"{new.group.group_id}-other", eventually)
    other.claim(moved)
    assert other.committed(moved) == {moved: None}
    other.close()
    assert new.commit({moved: 50}) == {}


def test_producer_with_the_id_that_the_protocol_page_names_fences_muster_and_is_fenced_by_it(
    kafka: KafkaSettings, owner: Callable[[], Owner], group: str
) -> None:
    """As a consumer in another language claims."""
    topic = make_topic(kafka, 1)
    key = (topic, 0)
    found = re.search(r"transactional id `(muster/[^`]+)`", PROTOCOL.read_text())
    assert found is not None
    documented = found[1]
    for name, value in {"CLUSTER": CLUSTER, "TOPIC": topic, "PARTITION": "0", "GROUP": group}.items():
        documented = documented.replace(f"[{name}]", value)
    foreign = Producer({**kafka.config, "transactional.id": documented}, logger=librdkafka_logger())
    consumer = Consumer({**kafka.config, "group.id": group}, logger=librdkafka_logger())

    def commit(offset: int) -> None:
        foreign.begin_transaction()
        item = KafkaPartition(topic, 0, offset)
        foreign.send_offsets_to_transaction([item], consumer.consumer_group_metadata(), 30)
        foreign.commit_transaction(30)

    muster = owner()
    muster.claim(key)
    assert muster.commit({key: 1}) == {}
    foreign.init_transactions(60)
    commit(2)
    assert muster.commit({key: 1}).keys() == {key}, "the late commit is refused"
    assert muster.committed(key) == {key: 2}
    again = owner()
    again.claim(key)
    with pytest.raises(KafkaException) as refused:
        commit(1)
    assert refused.value.args[0].fatal()
    assert again.commit({key: 3}) == {}
    assert again.committed(key) == {key: 3}
    consumer.close()


def test_open_commit_of_the_old_owner_is_undone_before_the_offset_is_read(
    kafka: KafkaSettings, group: str, owner: Callable[[], Owner]
) -> None:
    """As if the old owner had been frozen between sending offsets and ending its transaction."""
    topic = make_topic(kafka, 1)
    key = (topic, 0)
    new = owner()
    frozen = Producer(
        {**kafka.config, "transactional.id": transactional_id(CLUSTER, group, *key)},
        logger=librdkafka_logger(),
    )
    frozen.init_transactions(60)
    for offset, ends in ((5, True), (9, False)):
        frozen.begin_transaction()
        frozen.send_offsets_to_transaction([KafkaPartition(*key, offset)], new.group.metadata(), 30)
        if ends:
            frozen.commit_transaction(30)
    new.claim(key)
    began = time.monotonic()
    assert new.committed(key) == {key: 5}
    print(f"read after {time.monotonic() - began:.2f} s")
    assert new.commit({key: 7}) == {}
    with pytest.raises(Exception, match="fenced"):
        frozen.commit_transaction(30)
    assert new.committed(key) == {key: 7}


def test_many_partitions_change_hands(kafka: KafkaSettings, owner: Callable[[], Owner]) -> None:
    count = 2 * PARALLEL + 1  # `benchmarks/fencing.py` measures more
    topic = make_topic(kafka, count)
    keys = [(topic, n) for n in range(count)]
    old, new = owner(), owner()
    began = time.monotonic()
    old.claim(*keys)
    claimed = time.monotonic()
    assert old.commit(dict.fromkeys(keys, 1)) == {}
    print(
        f"{count} partitions: claimed in {claimed - began:.2f} s, committed in {time.monotonic() - claimed:.2f} s"
    )
    new.claim(*keys[1:])
    assert new.commit(dict.fromkeys(keys[1:], 3)) == {}
    assert old.commit(dict.fromkeys(keys, 2)).keys() == set(keys[1:])
    assert new.committed(*keys) == {keys[0]: 2} | dict.fromkeys(keys[1:], 3)


def test_no_producer_asks_for_its_coordinator_while_it_drops_its_bootstrap_servers(
    kafka: KafkaSettings,
) -> None:
    """Each that does waits for half a second; without care every fifth, or tenth, of them does."""
    logger = logging.Logger("eos", logging.DEBUG)
    told: list[str] = []
    logger.addFilter(lambda record: told.append(record.getMessage()) or False)  # type: ignore[func-returns-value]

    def initialise(number: int) -> None:
        name = transactional_id(CLUSTER, "bootstrap", "t", number)
        producer = Producer({**kafka.config, "transactional.id": name, "debug": "eos"}, logger=logger)
        _Fence(producer, "t").initialise(60)
        producer.poll(0)

    initialise(0)  # the coordinator of the very first one may have to be made
    told.clear()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(initialise, range(60)))
    assert any("Acquired PID" in line for line in told)
    assert not [line for line in told if "No brokers available" in line]


def test_a_frozen_and_a_restarted_broker_are_waited_for(
    tmp_path: Path, group: str, eventually: Eventually
) -> None:
    server = Kafka(tmp_path / "kafka", guarded=True)
    server.start(240)
    kafka = KafkaSettings(config={"bootstrap.servers": server.address}, operation_timeout=2.0)
    owner = Owner(kafka, group, eventually)
    try:
        topic = make_topic(kafka, 1)
        key = (topic, 0)
        owner.claim(key)
        assert owner.commit({key: 1}) == {}
        server.pause()
        outcome = owner.commits.commit({key: 2})
        assert outcome.failed.keys() == {key}
        assert not outcome.done
        assert not outcome.refused, "out of reach is not refused"
        server.resume()
        assert owner.commit({key: 3}) == {}, "the same producer goes on, with the newest offset"
        assert owner.committed(key) == {key: 3}
        server.kill()
        assert owner.commits.commit({key: 4}).failed.keys() == {key}
        server.start(240)
        # A broker that was away for longer than a transaction may take ends it, which reads like being fenced.
        if owner.commit({key: 5}):
            owner.claim(key)
            assert owner.commit({key: 5}) == {}
        assert owner.committed(key) == {key: 5}
        newer = Owner(kafka, group, eventually)
        newer.claim(key)
        assert owner.commit({key: 6}).keys() == {key}, "who is newest is not forgotten in a restart"
        newer.close()
    finally:
        owner.close()
        server.resume()
        server.stop()


def test_settings_of_no_use_are_an_error_of_ours(kafka: KafkaSettings, owner: Callable[[], Owner]) -> None:
    settings = KafkaSettings(config={**kafka.config, "no.such.setting": "1"})
    commits = FencedCommits(settings, CLUSTER, owner().group)
    with pytest.raises(KafkaError, match=r"no\.such\.setting"):
        commits.claim([("t", 0)])
    commits.close()


def test_guarded_commit_does_not_go_below_another_consumers_commit(kafka: KafkaSettings, group: str) -> None:
    topic = make_topic(kafka, 3)
    mine, moved, made_anew = ((topic, n) for n in range(3))
    offsets = GroupOffsets(kafka, group)
    commits = GuardedCommits(offsets)
    offsets.commit({moved: 10, made_anew: 100})
    try:
        assert commits.claim([mine, moved, made_anew]).failed == {}
        assert commits.commit({mine: 1, moved: 11}).refused == {}
        offsets.commit({moved: 30})  # by whoever has it now
        outcome = commits.commit({mine: 2, moved: 20, made_anew: 3})
        assert outcome.done == {mine: 2, made_anew: 3}, "what was there at the take-up is no obstacle"
        assert outcome.refused.keys() == {moved}
        assert "offset 30" in outcome.refused[moved]
        assert offsets.committed([mine, moved, made_anew]) == {mine: 2, moved: 30, made_anew: 3}
        # Taken up again, from what is committed then, it goes on; and forward of others it may always go.
        assert commits.claim([moved]).failed == {}
        assert commits.commit({moved: 31}).done == {moved: 31}
        offsets.commit({moved: 35})
        assert commits.commit({moved: 40}).done == {moved: 40}
    finally:
        offsets.close()
