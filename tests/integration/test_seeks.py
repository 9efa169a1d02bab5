"""Seeks with real Kafka, ZooKeeper and Consul and the real coordinator, with an owner and without."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.commands.audit import carry_out, foreseen
from muster.commands.command import Actor, CommandError, CommandOutcome
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.consumer.state.position import KEY, Place, Position
from muster.coordinator.coordinator import Coordinator
from muster.coordinator.opening import open_coordinator
from muster.coordinator.reports import PartitionsReport
from muster.core.history import Transitions
from muster.core.model import Seek, SeekState, State, TopicState
from muster.core.positions import Note, format_stamp, noted
from muster.core.wire import assignment_path, format_state, parse_assignment, state_path
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets
from muster.edges.kafka_fencing import FencedCommits
from muster.edges.state_changelog import changelog_topic
from muster.edges.zookeeper import TopicStore
from muster.settings.clusters import ClusterSettings
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.hand_coordinator import HandCoordinator, coordinating

ANN = Actor("ann", "a wrong deploy", 1_700_000_000.0)
RECORDS = 100
PARTITIONS = 3


class SeekedTopic:
    """A cluster with one topic of three partitions, 100 records each, of which the group has committed 60."""

    def __init__(
        self,
        zookeeper: ZooKeeperSettings,
        consul: ConsulSettings,
        kafka: KafkaSettings,
        hand: HandCoordinator,
    ) -> None:
        self.zookeeper, self.consul, self.kafka, self.hand = zookeeper, consul, kafka, hand
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.settings: dict[str, object] = {
            "name": hand.cluster,
            "consul_service": f"{hand.cluster}-service",
            "group_id": hand.group,
            "topics": [self.topic],
            "consumers": {"handler": "a.b"},
        }
        self.cluster = ClusterSettings.model_validate(self.settings)
        self.discovery = ConsulCluster.of(consul, self.cluster)
        self.group = GroupOffsets(kafka, hand.group)
        self.topic_id = self._take_up(self.topic, 60)

    @property
    def target(self) -> Target:
        return Target(
            self.cluster,
            self.discovery,
            lambda: TopicStore(self.zookeeper, self.hand.cluster, read_only=True),
            lambda: self.kafka,
        )

    def _take_up(self, topic: str, committed: int) -> str:
        """Create a topic with its records, of which the group has committed so many; returns its id."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        # Its records are of 2023: Kafka looks every five minutes for what is older than seven days, and deletes it.
        created = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin.create_topics([created])[topic].result(20)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        for number in range(PARTITIONS):
            for offset in range(RECORDS):
                producer.produce(topic, b"x", partition=number, timestamp=1_700_000_000_000 + offset * 1000)
        assert producer.flush(30) == 0
        with self.coordinator() as one:
            assert one.fetch_partitions().new_topics == [topic]
            topic_id: str = one.store.snapshots()[topic].assignment.topic_id  # type: ignore[union-attr]
        stamp = format_stamp(self.hand.cluster, topic_id)
        places = [(topic, p) for p in range(PARTITIONS)]
        self.group.commit(dict.fromkeys(places, committed), dict.fromkeys(places, stamp))
        return topic_id

    def another_topic(self, committed: int) -> str:
        """A second topic of the cluster, of which the group has committed so many; returns its name."""
        name = f"u-{uuid.uuid4().hex[:8]}"
        self.cluster = ClusterSettings.model_validate(self.settings | {"topics": [self.topic, name]})
        self._take_up(name, committed)
        return name

    def begin_again(self, options: dict[str, str]) -> PartitionsReport:
        """The coordinator meets the topic for the first time, with these options, and with another group."""
        name = self.hand.group + "-again"
        self.group.close()
        self.group = GroupOffsets(self.kafka, name)
        consumers = self.cluster.consumers.model_copy(update={"source_options": options})
        self.cluster = self.cluster.model_copy(update={"group_id": name, "consumers": consumers})
        self.hand.client.delete(assignment_path(self.hand.cluster, self.topic), recursive=True)
        with self.coordinator() as one:
            return one.fetch_partitions()

    def stamps(self, seek: str) -> dict[tuple[str, int], str]:
        stamp = format_stamp(self.hand.cluster, self.topic_id, Note(seek))
        return dict.fromkeys(((self.topic, p) for p in range(PARTITIONS)), stamp)

    def coordinator(self) -> AbstractContextManager[Coordinator]:
        return open_coordinator(self.cluster, self.zookeeper, self.consul, self.kafka)

    def seek(
        self, to: str, partitions: str = "", *, rebuild: bool = False, state: str = ""
    ) -> CommandOutcome:
        given = {
            "to": to,
            "topic": self.topic,
            "partitions": partitions,
            "rebuild": rebuild,
            "state": state,
        }
        return carry_out(COMMANDS["seek"], self.target, ANN, given, "test")

    def committed(self) -> dict[int, tuple[int, str]]:
        found = self.group.positions((self.topic, p) for p in range(PARTITIONS))
        return {
            p: (at.offset, noted(at, self.topic_id).sought) for (_, p), at in found.items() if at is not None
        }

    def asked_for(self) -> dict[int, int | None]:
        return {p: each.offset for (_, p), each in self.discovery.overrides.read().seeks.items()}

    def with_state(self, *others: str) -> None:
        """Have the topic be one with state by key, that it shares with others."""
        state = (self.topic, *others) if others else self.topic
        consumers = self.cluster.consumers.model_copy(update={"state": (state,)})
        self.cluster = self.cluster.model_copy(update={"consumers": consumers})

    @contextmanager
    def live(self, owner: str) -> Iterator[None]:
        """A consumer of that id is live."""
        httpx.put(
            f"http://{self.consul.host}:{self.consul.port}/v1/agent/service/register",
            json={"ID": owner, "Name": self.cluster.consul_service, "Address": "127.0.0.1", "Port": 1},
            trust_env=False,
        ).raise_for_status()
        try:
            yield
        finally:
            self.discovery.catalog.deregister(owner)

    def stable(self, owner: str) -> None:
        """All partitions have this owner, and the topic is Stable."""
        epoch = self.hand.assign(self.topic, dict.fromkeys(range(PARTITIONS), owner), topic_id=self.topic_id)
        path = state_path(self.hand.cluster, self.topic)
        self.hand.client.ensure_path(path)
        self.hand.client.set(path, format_state(TopicState(State.STABLE, epoch=epoch, since=1.0)))

    def node_seeks(self) -> dict[int, Seek]:
        data, _ = self.hand.client.get(f"/consumers/{self.hand.cluster}/assignments/{self.topic}")
        found = parse_assignment(data, "node")
        assert found is not None
        return dict(found.seeks)

    def node_id(self) -> str:
        data, _ = self.hand.client.get(f"/consumers/{self.hand.cluster}/assignments/{self.topic}")
        found = parse_assignment(data, "node")
        assert found is not None
        return found.topic_id

    def reasons(self) -> list[str]:
        with TopicStore(self.zookeeper, self.hand.cluster, read_only=True) as store:
            entries = [record.entry for record in store.history().records]
        return [step.reason for e in reversed(entries) if isinstance(e, Transitions) for step in e.steps]


@pytest.fixture
def world(
    zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings
) -> Iterator[SeekedTopic]:
    name = f"c{uuid.uuid4().hex[:10]}"
    with coordinating(zookeeper, kafka, name, f"g-{name}") as hand:
        made = SeekedTopic(zookeeper, consul, kafka, hand)
        yield made
        made.group.close()


def test_seek_without_any_consumer_is_carried_out_by_the_coordinator_once(world: SeekedTopic) -> None:
    outcome = world.seek("-20", "0-1")
    assert outcome.lines[1] == f"topic {world.topic}, partition 0: 60 -> 40, 20 record(s) come again"
    assert outcome.lines[3].startswith("together 40 record(s) come again and 0 are passed over")
    seek = outcome.values["seek"]
    with world.coordinator() as one:
        assert one.compute_assignment().needed
        assert "no consumer is live" in one.advance(20).held
    assert world.committed() == {0: (40, seek), 1: (40, seek), 2: (60, "")}
    there = world.group.positions([(world.topic, 0), (world.topic, 1)])
    assert {noted(at, world.topic_id).reached for at in there.values()} == {60}, "the next owner knows it"
    assert world.asked_for() == {}
    with world.coordinator() as one:
        assert not one.compute_assignment().needed


def test_seek_of_a_whole_cluster_is_carried_out_in_all_partitions_of_all_its_topics(
    world: SeekedTopic,
) -> None:
    other = world.another_topic(committed=30)
    given = {"to": "-40", "topic": "", "partitions": ""}
    lines = foreseen(COMMANDS["seek"], world.target, ANN, given).lines()
    assert lines[-2].startswith("together 210 record(s) come again and 0 are passed over")
    outcome = carry_out(COMMANDS["seek"], world.target, ANN, given, "test")
    assert outcome.lines[0].startswith(f"all topics of cluster {world.cluster.name} is to go on at -40")
    wanted = dict.fromkeys(((world.topic, p) for p in range(PARTITIONS)), 20)
    wanted |= dict.fromkeys(((other, p) for p in range(PARTITIONS)), 0)
    asked = {tp: each.offset for tp, each in world.discovery.overrides.read().seeks.items()}
    assert asked == wanted
    with world.coordinator() as one:
        one.advance(20)
    found = world.group.positions(wanted)
    assert {tp: at.offset for tp, at in found.items() if at is not None} == wanted
    assert not world.discovery.overrides.read().seeks


def test_cancelled_seek_of_a_whole_cluster_is_taken_back_in_all_its_topics(world: SeekedTopic) -> None:
    world.another_topic(committed=30)
    carry_out(COMMANDS["seek"], world.target, ANN, {"to": "earliest", "topic": "", "partitions": ""}, "test")
    outcome = carry_out(COMMANDS["cancel-seek"], world.target, ANN, {"topic": "", "partitions": ""}, "test")
    assert outcome.lines[0].startswith("6 seek(s) of ")
    with pytest.raises(CommandError, match="it may have been carried out"):
        preview(world, "cancel-seek")
    with world.coordinator() as one:
        one.advance(20)
    assert not world.discovery.overrides.read().seeks
    assert {at for at, _ in world.committed().values()} == {60}


def test_backup_of_consul_brings_no_cancelled_seek_back(world: SeekedTopic) -> None:
    world.seek("earliest", "0")
    [before] = world.discovery.overrides.read().seeks.values()
    carry_out(COMMANDS["cancel-seek"], world.target, ANN, {"topic": "", "partitions": ""}, "test")
    with world.coordinator() as one:
        one.advance(20)
        world.discovery.overrides.seek(
            world.topic, 0, before.seek, before.topic_id, by="ann", why="a backup", at=ANN.at
        )
        one.advance(20)
    assert (world.asked_for(), world.node_seeks()) == ({}, {})
    assert world.committed()[0][0] == 60


def test_cancelled_seek_of_an_unknown_topic_is_dropped(world: SeekedTopic) -> None:
    world.seek("earliest", "0")
    world.hand.client.delete(assignment_path(world.hand.cluster, world.topic), recursive=True)
    carry_out(COMMANDS["cancel-seek"], world.target, ANN, {"topic": "", "partitions": ""}, "test")
    assert world.asked_for() == {}


def test_seek_of_an_owner_that_is_gone_is_carried_out_by_the_coordinator_and_recorded(
    world: SeekedTopic,
) -> None:
    world.stable("gone-1")
    former = FencedCommits(world.kafka, world.hand.cluster, world.group)
    assert former.claim([(world.topic, 0)]).done == {(world.topic, 0)}
    seek = world.seek("earliest").values["seek"]
    with world.coordinator() as one:
        one.advance(20)
    assert world.committed() == dict.fromkeys(range(PARTITIONS), (0, seek))
    assert (world.asked_for(), world.node_seeks()) == ({}, {})
    assert world.reasons() == [
        "seek asked for: partition(s) 0-2",
        "seek carried out or taken back: partition(s) 0-2",
    ]
    late = former.commit({(world.topic, 0): 77}, world.stamps(""))
    assert late.refused.keys() == {(world.topic, 0)}, "what the former owner had under way cannot undo it"
    former.close()


def test_rebuild_without_any_consumer_keeps_the_number_with_the_offset(world: SeekedTopic) -> None:
    def number() -> dict[int, int]:
        found = world.group.positions((world.topic, p) for p in range(PARTITIONS))
        return {p: noted(at, world.topic_id).rebuild for (_, p), at in found.items()}

    outcome = world.seek("earliest", "0-1", rebuild=True)
    asked = outcome.values["rebuild"]
    assert asked == int(ANN.at)
    assert f"go on at earliest with a rebuild: {ANN}" in outcome.lines[0]
    with world.coordinator() as one:
        one.advance(20)
        assert number() == {0: asked, 1: asked, 2: 0}
        world.seek("-0", "0")
        one.advance(20)
        assert number() == {0: asked, 1: asked, 2: 0}, "a seek without a rebuild leaves it"
        world.seek("earliest", "0", rebuild=True)
        one.advance(20)
        assert number() == {0: asked + 1, 1: asked, 2: 0}, "it grows though the clock stands"


def test_seek_is_left_to_an_owner_that_is_registered_and_ends_with_its_commit(world: SeekedTopic) -> None:
    world.stable("one")
    with world.live("one"):
        seek = world.seek("90", "1").values["seek"]
        with world.coordinator() as one:
            one.advance(1)
            assert world.committed()[1] == (60, "")
            assert world.node_seeks() == {1: Seek(seek, 90)}
            assert world.asked_for() == {1: 90}
            world.group.commit({(world.topic, 1): 90}, world.stamps(seek))
            assert one.compute_assignment(10).woke.startswith(
                "carried out, or overtaken by a later one: seek of partition(s) 1"
            )
            one.advance(1)
        assert (world.node_seeks(), world.asked_for()) == ({}, {})


@pytest.mark.parametrize(
    ("rebuild", "state", "refusal"),
    [
        (False, "", "choose what becomes of it: --state=again"),
        (True, "", "give --state=rebuild instead of --rebuild"),
        (False, "all", "state 'all': write again, skip, rebuild"),
    ],
)
def test_seek_with_state_has_to_choose(world: SeekedTopic, rebuild: bool, state: str, refusal: str) -> None:
    world.with_state()
    with pytest.raises(CommandError, match=re.escape(refusal)):
        world.seek("earliest", rebuild=rebuild, state=state)
    assert world.asked_for() == {}


def test_seek_without_state_takes_no_choice(world: SeekedTopic) -> None:
    with pytest.raises(CommandError, match=f"{world.topic} have no state by key; leave out --state=again"):
        world.seek("earliest", state="again")
    with pytest.raises(CommandError, match="no changelog has a position of it"):
        world.seek("changelog")
    assert world.asked_for() == {}


def test_seek_to_the_changelog_goes_where_the_state_is(world: SeekedTopic) -> None:
    world.with_state()
    world.stable("one")
    changelog = changelog_topic(world.hand.cluster, world.topic)
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers})
    admin.create_topics([NewTopic(changelog, PARTITIONS, 1)])[changelog].result(20)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers})
    for value in (Position({world.topic: Place(at)}).text() for at in (10, 70)):
        producer.produce(changelog, value, KEY, 1)
        producer.produce(changelog, b"1", b"\x01key", 1)
    assert producer.flush(30) == 0
    with world.live("one"):
        with pytest.raises(CommandError, match=r"partition 0: no changelog has a position of it"):
            world.seek("changelog", "0-1", state="again")
        outcome = world.seek("changelog", "1", state="again")
    assert outcome.lines[1].startswith(
        f"topic {world.topic}, partition 1: 60 -> 70, 10 record(s) are passed over"
    )
    assert world.asked_for() == {1: 70}


def test_seek_with_state_needs_an_owner(world: SeekedTopic, caplog: pytest.LogCaptureFixture) -> None:
    world.with_state()
    world.stable("one")
    with pytest.raises(CommandError, match=r"partition\(s\) 0-2 of .* no live owner.* start consumers"):
        world.seek("earliest", state="again")
    with world.live("one"):
        outcome = world.seek("-20", state="rebuild")
    assert outcome.lines[1] == (
        f"topic {world.topic}, partition 0: 60 -> 40, 20 record(s) come again; they change a state that begins empty"
    )
    assert "the state begins empty" in outcome.lines[5]
    assert "sinks of that store it as new records" in outcome.lines[5]
    with world.coordinator() as one:
        one.advance(20)
    assert "topic has state by key, and only an owner changes" in caplog.text
    assert world.committed() == dict.fromkeys(range(PARTITIONS), (60, ""))
    seek = Seek(str(outcome.values["seek"]), 40, int(ANN.at), SeekState.REBUILD)
    assert world.node_seeks() == dict.fromkeys(range(PARTITIONS), seek), "for an owner"


def test_seek_that_waits_is_not_carried_out_on_a_topic_made_again(
    world: SeekedTopic, eventually: Eventually
) -> None:
    world.stable("gone-1")
    world.seek("90")
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers})
    admin.delete_topics([world.topic])[world.topic].result(20)
    eventually(lambda: world.topic not in admin.list_topics(timeout=5).topics)
    admin.create_topics([NewTopic(world.topic, PARTITIONS, 1)])[world.topic].result(20)
    with world.coordinator() as one:
        eventually(lambda: one.fetch_partitions() and world.node_id() != world.topic_id)
        one.advance(20)
    assert world.asked_for() == {}
    assert {at for at, _ in world.committed().values()} <= {60}, (
        "of the topic that is gone, for which it stood"
    )


def test_seek_is_refused_while_a_consumer_would_misread_what_it_commits(world: SeekedTopic) -> None:
    catalog = world.discovery.catalog
    page = "http://127.0.0.1:1/health"

    def register(meta: dict[str, str]) -> None:
        catalog.register("one", "127.0.0.1", 1, meta, page, 60.0, 60.0)

    register({"version": "0.1.0", "incarnation": "i"})
    try:
        given = {"to": "earliest", "topic": world.topic, "partitions": ""}
        with pytest.raises(CommandError, match=r"would begin at the first record: one; install") as refused:
            world.seek("earliest")
        with pytest.raises(CommandError, match=re.escape(str(refused.value))):
            foreseen(COMMANDS["seek"], world.target, ANN, given)
        assert world.asked_for() == {}
        register({"version": "0.1.0", "incarnation": "i", "protocol": "2"})
        world.seek("earliest", "0")
        register({"incarnation": "i"})
        world.seek("earliest", "1")
        assert world.asked_for() == {0: 0, 1: 0}
    finally:
        catalog.deregister("one")


def test_newer_seek_replaces_one_that_waits_and_cancelling_takes_it_back(world: SeekedTopic) -> None:
    world.seek("earliest")
    world.seek("latest", "2")
    assert world.asked_for() == {0: 0, 1: 0, 2: 100}
    given = {"topic": world.topic, "partitions": "0"}
    carry_out(COMMANDS["cancel-seek"], world.target, ANN, given, "test")
    assert world.asked_for() == {0: None, 1: 0, 2: 100}
    with world.coordinator() as one:
        one.advance(20)
    assert {p: at for p, (at, _) in world.committed().items()} == {0: 60, 1: 0, 2: 100}
    assert world.asked_for() == {}
    with pytest.raises(CommandError, match=r"is waiting .* it may have been carried out"):
        carry_out(COMMANDS["cancel-seek"], world.target, ANN, given, "test")


def test_moment_is_made_the_first_offset_from_then_on(world: SeekedTopic) -> None:
    assert "partition 0: 60 -> 30" in world.seek("2023-11-14T22:13:50Z", "0").lines[1]
    assert world.asked_for() == {0: 30}
    assert "40 record(s) are passed over" in world.seek("2024-01-01", "1").lines[1]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, {}),
        ({"startingOffsets": "latest"}, {0: 100, 1: 100, 2: 100}),
        ({"startingOffsets": '{"TOPIC": {"0": 23, "1": -1}}'}, {0: 23, 1: 100, 2: 0}),
        ({"startingTimestamp": "1700000030000"}, {0: 30, 1: 30, 2: 30}),
    ],
)
def test_topic_that_is_new_begins_at_its_starting_offsets(
    world: SeekedTopic, options: dict[str, str], begins: dict[int, int]
) -> None:
    options = {name: value.replace("TOPIC", world.topic) for name, value in options.items()}
    world.begin_again(options)
    assert {p: at for p, (at, _) in world.committed().items()} == begins
    with world.coordinator() as one:
        assert one.fetch_partitions().new_topics == []


def test_topic_that_the_group_has_read_before_goes_on_and_added_partitions_begin_at_their_first_record(
    world: SeekedTopic,
) -> None:
    world.begin_again({})
    world.group.commit({(world.topic, 1): 60}, world.stamps(""))
    world.begin_again({"startingOffsets": "latest"})
    assert world.committed() == {1: (60, "")}


def test_starting_offset_outside_of_the_log_holds_the_topic_back_and_says_so(world: SeekedTopic) -> None:
    report = world.begin_again({"startingOffsets": f'{{"{world.topic}": {{"0": 101}}}}'})
    assert report.new_topics == []
    assert (
        "partition 0: offset 101 is outside of the log: the earliest is 0, the latest 100"
        in (report.errors[world.topic])
    )
    assert world.committed() == {}


def test_preview_says_the_same_and_changes_nothing(world: SeekedTopic) -> None:
    given = {"to": "earliest", "topic": world.topic, "partitions": ""}
    lines = foreseen(COMMANDS["seek"], world.target, ANN, given).lines()
    assert len(lines) == PARTITIONS + 2
    assert lines[-2].startswith("together 180 record(s) come again")
    assert lines[-1] == (
        f"topic {world.topic}, partition(s) 0-2: what sinks have is unknown: no consumer has it"
    )
    assert world.asked_for() == {}


def preview(world: SeekedTopic, command: str, partitions: str = "") -> tuple[str, ...]:
    given = {"topic": world.topic, "partitions": partitions}
    return foreseen(COMMANDS[command], world.target, ANN, given).lines()


def test_previews_of_pause_and_resumption_count_what_waits_and_name_what_stays_paused(
    world: SeekedTopic,
) -> None:
    def paused() -> list[int | None]:
        return [each.partition for each in world.discovery.overrides.read().consumption]

    given = {"topic": world.topic, "partitions": "1"}
    carry_out(COMMANDS["pause-consumption"], world.target, ANN, given, "test")
    where, by = f"topic {world.topic}", "paused by ann since 2023-11-14T22:13:20+00:00: a wrong deploy"
    of_one = f"stays paused: consumption of partition(s) 1 of {where} {by}"
    assert preview(world, "pause-consumption") == (
        f"{where}, partition 0: is paused; 40 record(s) wait",
        f"{where}, partition 1: {of_one}; 40 record(s) wait",
        f"{where}, partition 2: is paused; 40 record(s) wait",
        "together 2 partition(s) are paused, 1 stay paused; 120 record(s) wait",
    )
    assert preview(world, "resume-consumption", "1") == (
        f"{where}, partition 1: is resumed; 40 record(s) wait",
        "together 1 partition(s) are resumed, 0 stay paused; 40 record(s) wait",
    )
    with pytest.raises(CommandError, match="resume it first to give another reason"):
        preview(world, "pause-consumption", "1")
    with pytest.raises(CommandError, match=r"partition\(s\) 0 of topic .* is not paused by itself"):
        preview(world, "resume-consumption", "0-1")
    assert paused() == [1]
    carry_out(COMMANDS["pause-consumption"], world.target, ANN, {"topic": world.topic}, "test")
    assert preview(world, "resume-consumption", "1") == (
        f"{where}, partition 1: stays paused: consumption of {where} {by}; 40 record(s) wait",
        "together 0 partition(s) are resumed, 1 stay paused; 40 record(s) wait",
    )
    assert f"{where}, partition 1: {of_one}; 40 record(s) wait" in preview(world, "resume-consumption")
    assert len(paused()) == 2


def test_preview_of_a_cancelled_seek_says_where_its_partitions_go_on_and_changes_nothing(
    world: SeekedTopic,
) -> None:
    world.seek("-20", "0-1")
    given = {"topic": world.topic, "partitions": "1"}
    carry_out(COMMANDS["pause-consumption"], world.target, ANN, given, "test")
    said = "the seek to offset 40 is taken back; goes on at 60, 40 record(s) wait"
    assert preview(world, "cancel-seek") == (
        f"topic {world.topic}, partition 0: {said}",
        f"topic {world.topic}, partition 1: {said}; stays paused",
        "together 2 seek(s) are taken back, by what is known to be carried out now",
    )
    with pytest.raises(CommandError, match="it may have been carried out"):
        preview(world, "cancel-seek", "2")
    assert world.asked_for() == {0: 40, 1: 40}


@pytest.mark.parametrize(
    ("to", "partitions", "message"),
    [
        ("101", "1", r"partition 1: offset 101 is outside of the log: the earliest is 0, the latest 100"),
        ("earliest", "7", r"has no partition\(s\) 7"),
        ("soon", "", r"'soon' is no place to go on at; write earliest, latest"),
    ],
)
def test_impossible_seek_is_refused_and_nothing_is_asked_for(
    world: SeekedTopic, to: str, partitions: str, message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        world.seek(to, partitions)
    assert world.asked_for() == {}


def test_seek_moves_all_topics_that_share_their_state(world: SeekedTopic) -> None:
    first, other = world.topic, world.another_topic(40)
    world.with_state(other)
    for topic in (first, other):
        world.topic = topic
        world.stable("one")
    with world.live("one"):
        with pytest.raises(CommandError, match="an offset or a number of records is of one; write a moment"):
            world.seek("-5", "1", state="again")
        assert world.asked_for() == {}
        outcome = world.seek("earliest", "1", state="again")
    seeks = world.discovery.overrides.read().seeks
    assert {tp: each.offset for tp, each in seeks.items()} == {(first, 1): 0, (other, 1): 0}
    assert {each.id for each in seeks.values()} == {outcome.values["seek"]}
    given = {"topic": other, "partitions": "1"}
    assert (
        carry_out(COMMANDS["cancel-seek"], world.target, ANN, given, "test").lines[0].startswith("2 seek(s)")
    )
