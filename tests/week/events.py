"""What happens in a week: what people do, what fails, and what expires."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Iterator
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import KafkaError as ClientError
from kazoo.client import KazooClient

from muster.core.model import Seek
from muster.core.parking import Answer
from muster.edges.kafka_fencing import transactional_id
from tests.support.fault_world import Fault
from tests.support.transactional_ids import known_ids
from tests.week.clock import DAYS, EXPIRY, LONG
from tests.week.oracle import names
from tests.week.stack import ALPHA, BETA, CONSUMERS, FLOCK, FOREIGN, NAMED
from tests.week.world import CLUSTERS, LONGEST, World

FLOCK_SIZE = 100 if LONG else 40
SOUGHT = 5
"""Records of each partition that are read again by a seek."""
RENAMED = "beta-renamed"


# -- every day


def day_begins(world: World) -> int:
    """ZooKeeper is backed up."""
    world.stack.zookeeper.back_up(world.stack.folder / "backup")
    return 0


def day_ends(world: World, day: int) -> int:
    """ZooKeeper is purged, and at rest it is looked what there is of everything."""
    world.stack.zookeeper.purge()
    world.until(day)
    world.eventually("all is at rest", world.at_rest, LONGEST)
    world.growing.look(day)
    return 0


def poison_comes(world: World) -> None:
    """A record that no handler takes: alpha's rejects it by its name, in beta the partition waits for a person."""
    beta = world.groups[BETA]
    partition = secrets.randbelow(NAMED["picky"])
    offset = world.write_to("picky", partition, poison=True)
    world.poisons.add(("picky", partition, offset))
    world.standing_poison = "picky", partition, offset
    owner = beta.owner("picky", partition)
    world.eventually("alpha reads on", lambda: world.committed(ALPHA, "picky", partition) > offset, LONGEST)
    world.eventually("beta fails with it", lambda: _fails_with(world, owner, partition, offset), LONGEST)


def _fails_with(world: World, owner: str, partition: int, offset: int) -> bool:
    topics = json.loads(world.page(owner))["topics"]
    record = topics.get("picky", {}).get("failing", {}).get(str(partition), {})
    return bool(record.get("offset") == offset)


def poison_is_skipped(world: World) -> None:
    """A person was asked, because the partition stood still, and answers."""
    assert world.standing_poison is not None
    topic, partition, offset = world.standing_poison
    key = BETA, topic, partition
    world.eventually("Muster names it", lambda: names(world.stack.told(BETA), key), LONGEST)
    answers = world.groups[BETA].discovery.answers
    answers.give((topic, partition), offset, Answer.SKIP, "test", "it is poison", time.time())
    world.eventually("beta reads on", lambda: world.committed(*key) > offset, LONGEST)
    world.standing_poison = None


def flock_comes(world: World, day: int) -> int:
    """Topics by the hundred that a pattern covers, with some records each."""
    topics = {f"{FLOCK}{day}-{number}": 1 for number in range(FLOCK_SIZE)}
    world.create(topics)
    for topic in topics:
        world.write(topic)
    world.eventually("all of them are read", lambda: _flock_read(world, topics), LONGEST)
    return 1


def _flock_read(world: World, topics: dict[str, int]) -> bool:
    return all(world.committed(BETA, topic, 0) >= 1 for topic in topics)


def flock_goes(world: World, day: int) -> None:
    """A person unsubscribes the cluster from all of them, they are deleted, and the decision is taken back."""
    selector, overrides = f"{FLOCK}{day}-.*", world.groups[BETA].discovery.overrides
    overrides.decide_topic(selector, pattern=True, subscribed=False, by="test", why="they go", at=time.time())
    gone = [topic for topic in world.topics if topic.startswith(f"{FLOCK}{day}-")]
    world.forget(gone)
    world.eventually("their nodes are gone", world.settled, LONGEST)
    world.delete(gone)
    assert overrides.undo_topic(selector, pattern=True, subscribed=False)


# -- servers


def kafka_restarted(world: World) -> None:
    world.stack.kafka.restart()


def zookeeper_restarted(world: World) -> None:
    world.stack.zookeeper.restart()


def consul_restarted(world: World) -> None:
    world.stack.consul.restart()


def servers_rolled(world: World) -> int:
    """One after the other, as for an upgrade."""
    for server in world.stack.servers:
        server.restart()
        world.flows(time.time())
        world.eventually("all is well again", world.well, LONGEST)
    return len(world.stack.servers)


def restored(world: World) -> None:
    """ZooKeeper goes back to the backup; its next transactions have numbers that were used before."""
    world.stack.zookeeper.restore(world.stack.folder / "backup", higher=False)


def restored_higher(world: World) -> None:
    """The same, and its next transactions have higher numbers than all that were before."""
    world.stack.zookeeper.restore(world.stack.folder / "backup", higher=True)


# -- consumers and coordinators


def rolled(world: World) -> int:
    """Each consumer leaves in order, and comes back; in the one day a light and the foreign one."""
    names = [name for of in CONSUMERS.values() for name in of] if LONG else ["alpha-1", FOREIGN]
    for name in names:
        world.stop(name)
        world.stack.start_consumer(name)
        world.eventually(f"{name} is back", world.settled, 2 * LONGEST)
    return len(names)


def killed(world: World) -> None:
    world.kill("beta-2")
    world.eventually("it counts as gone", lambda: "beta-2" not in world.groups[BETA].live(), LONGEST)
    world.eventually("the others have all", lambda: world.settled(["beta-2"]), LONGEST)
    world.stack.start_consumer("beta-2")


def frozen(world: World) -> None:
    """For so long that Consul has forgotten it."""
    consumer = world.consumer("beta-2")
    catalog = world.groups[BETA].discovery.catalog
    with world.away(consumer.incarnation):
        consumer.process.signal(signal.SIGSTOP)
        try:
            world.eventually(
                "Consul has forgotten it", lambda: "beta-2" not in catalog.members().registered, 2 * LONGEST
            )
            world.flows(time.time())
        finally:
            consumer.process.signal(signal.SIGCONT)
    world.eventually("it has a share again", world.settled, LONGEST)
    world.moved_at = time.time()


def drained(world: World) -> None:
    """Of all that it has, and back."""
    overrides = world.groups[BETA].discovery.overrides
    assert overrides.drain("beta-2", by="test", why="its host is to be mended", at=time.time())
    world.eventually("it has nothing", lambda: "beta-2" not in _owners(world) and world.settled(), LONGEST)
    assert overrides.undrain("beta-2")
    world.eventually("it has a share again", lambda: "beta-2" in _owners(world) and world.settled(), LONGEST)
    world.moved_at = time.time()


def _owners(world: World) -> set[str]:
    found = (snapshot.assignment for snapshot in world.groups[BETA].topics().values())
    return {owner for assignment in found if assignment is not None for owner in assignment.owners.values()}


def coordinator_killed(world: World) -> None:
    """Beta's own, in the middle of a move."""
    world.kill("beta-2")
    world.stack.coordination.kill(BETA)
    world.stack.start_consumer("beta-2")
    world.stack.coordination.start(BETA)


# -- what people decide


def shelved_paused(world: World) -> None:
    world.shelved = True
    for name in CLUSTERS:
        overrides = world.groups[name].discovery.overrides
        assert overrides.pause_consumption("shelved", None, by="test", why="a holiday", at=time.time())


def shelved_resumed(world: World) -> None:
    """More than two days later. Something has come meanwhile."""
    world.write("shelved")
    for name in CLUSTERS:
        assert world.groups[name].discovery.overrides.resume_consumption("shelved", None)
    world.shelved = False
    world.read("shelved")


def sought(world: World) -> None:
    """Each partition of a topic goes back by some records; just these are read again."""
    began, expected = time.time(), 0
    for name in CLUSTERS:
        assignment = world.groups[name].topics()["sought"].assignment
        assert assignment is not None
        for partition in range(NAMED["sought"]):
            at = world.committed(name, "sought", partition)
            back = min(SOUGHT, at)
            expected += back
            world.groups[name].discovery.overrides.seek(
                "sought",
                partition,
                Seek(secrets.token_hex(8), at - back),
                assignment.topic_id,
                by="test",
                why="again",
                at=time.time(),
            )
    world.eventually("all seeks are carried out", lambda: not any(_seeks(world)), LONGEST)
    world.eventually("all is read again", lambda: world.doubled(began, time.time()) >= expected, LONGEST)
    world.read("sought")


def _seeks(world: World) -> Iterator[object]:
    for group in world.groups.values():
        yield from group.discovery.overrides.read().seeks


def renamed(world: World) -> None:
    """Cluster beta gets another name in the settings while its consumers run, and then its own again."""
    stack, began = world.stack, time.time()
    stack.write_clusters(beta=RENAMED)
    stack.coordination.kill(BETA)
    stack.coordination.start(RENAMED)
    try:
        world.flows(time.time())
        world.eventually(
            "the run names them", lambda: world.said(RENAMED, began, "beta-1", f"cluster {BETA!r}"), LONGEST
        )
        world.flows(time.time())
    finally:
        stack.coordination.kill(RENAMED)
        stack.write_clusters()
        client = KazooClient(hosts=stack.zookeeper.address)
        client.start()
        client.delete(f"/consumers/{RENAMED}", recursive=True)
        client.stop()
        client.close()
        stack.consul.forget(f"muster/{RENAMED}/")
        stack.coordination.start(BETA)


def group_deleted(world: World) -> int:
    """By an admin tool, which Kafka lets do so: to it the groups look empty. Then partitions move."""
    for name in CLUSTERS:
        world.eventually(f"the group of {name} is deleted", partial(_delete, world, name), LONGEST)
    moved(world, ALPHA)
    # The foreign consumer commits what is idle once a day.
    try:
        world.eventually("beta has committed quiet again", partial(_again, world, BETA, "quiet"), LONGEST)
    except AssertionError as error:
        seen = {
            p: [known.get((BETA, "quiet", p)) for known in (world.oracle.committed, world.oracle.ends)]
            for p in range(NAMED["quiet"])
        }
        ago = time.time() - world.oracle.looked_at
        owners = {p: world.groups[BETA].owner("quiet", p) for p in seen}
        unread = {tp: why for tp, why in world.oracle.unread.items() if tp[0] == "quiet"}
        raise AssertionError(
            f"{error}; committed and end {seen} {ago:.0f} s ago, ends unread {unread}, owners {owners}"
        ) from error
    moved(world, BETA)
    return len(CLUSTERS)


def _delete(world: World, name: str) -> bool:
    group = world.groups[name].id
    try:
        world.admin.delete_consumer_groups([group])[group].result(30)
    except KafkaException as error:
        # A transaction with offsets is under way.
        assert error.args[0].code() == ClientError.NON_EMPTY_GROUP, error
        return False
    return True


def _again(world: World, name: str, topic: str) -> bool:
    ends, committed = world.oracle.ends, world.oracle.committed
    keys = [(name, topic, p) for p in range(NAMED[topic])]
    return all(key in ends and committed.get(key, -1) == ends[key] for key in keys)


def moved(world: World, cluster: str) -> None:
    """All that one consumer has goes to the others, and something comes back."""
    overrides, consumer = world.groups[cluster].discovery.overrides, f"{cluster}-2"
    assert overrides.isolate(consumer, by="test", why="a planned move", at=time.time())
    world.eventually("the others have all", lambda: world.settled([consumer]), LONGEST)
    assert overrides.restore(consumer)
    world.eventually("it has a share again", world.settled, LONGEST)
    world.moved_at = time.time()


# -- what had nothing for long


def late_begins(world: World) -> None:
    """The first record of a topic whose partitions were taken up longer ago than an expiry."""
    over = max(world.began, world.moved_at) + EXPIRY + 20
    world.eventually("its transactional ids are old", lambda: time.time() > over, 2 * EXPIRY)
    world.write("late")
    world.read("late")


def quiet_goes_on(world: World) -> None:
    """The second record of a topic, longer after the first one than an expiry."""
    world.write("quiet")
    world.read("quiet")


def producers_forgotten(world: World) -> None:
    """Kafka keeps transactional ids for less time than consumers take to renew them, until a person mends that."""
    kafka = world.stack.kafka
    idle = transactional_id(ALPHA, world.groups[ALPHA].id, "late", 0)
    kafka.forgets = True
    try:
        kafka.restart()
        settings = world.stack.plain()[2]
        world.eventually("a producer is forgotten", lambda: idle not in known_ids(settings), LONGEST)
        world.write("late")
        world.read("late")
    finally:
        kafka.forgets = False
        kafka.restart()


# -- days

RESTARTS = (consul_restarted, zookeeper_restarted, kafka_restarted)
OWN: dict[int, list[Fault[World]]] = {
    1: [Fault("consumers restarted in turn", rolled, planned=True)],
    2: [Fault("a topic's consumption paused for over two days", shelved_paused, planned=True)],
    3: [
        Fault("ZooKeeper restored from a backup", restored),
        Fault("both groups deleted", group_deleted, planned=True),
    ],
    4: [
        Fault("a topic sought back", sought),
        Fault("a consumer and the coordinator killed", coordinator_killed),
        Fault("the pause ended", shelved_resumed, planned=True),
    ],
    5: [
        Fault("a cluster renamed and named back", renamed, planned=True),
        Fault("a consumer drained", drained, planned=True),
        Fault("a consumer frozen until Consul has forgotten it", frozen),
    ],
    6: [
        Fault("the first record of a topic after an expiry", late_begins),
        Fault("the second record of a topic after an expiry", quiet_goes_on, planned=True),
        Fault("Kafka forgets all producers", producers_forgotten),
        Fault("ZooKeeper restored, and its numbers higher", restored_higher),
        Fault("a planned move", lambda world: moved(world, ALPHA), planned=True),
    ],
    7: [Fault("a consumer killed", killed), Fault("every server restarted in turn", servers_rolled)],
}
"""What belongs to each day of a week."""
ONE = [
    Fault("consumers restarted in turn", rolled, planned=True),
    Fault("ZooKeeper restored from a backup", restored),
    Fault("both groups deleted", group_deleted, planned=True),
    Fault("a topic sought back", sought),
]
"""What belongs to the day that is played alone; it ends with the topics that had nothing for long."""


def of_day(day: int) -> list[Fault[World]]:
    """Return all that happens on a day, in order."""
    own = OWN[day] if LONG else ONE
    number = RESTARTS[day % len(RESTARTS)]
    return [
        Fault("a day begins", day_begins),
        Fault("a poison record", poison_comes),
        Fault("topics come that a pattern covers", lambda world: flock_comes(world, day), planned=True),
        *own[:1],
        Fault("these topics go", lambda world: flock_goes(world, day), planned=True),
        Fault(f"a server restarted ({number.__name__.partition('_')[0]})", number),
        *own[1:],
        Fault("a person skips the poison record", poison_is_skipped),
        *(OWN[6][1:2] if not LONG else []),
        Fault("a day ends", lambda world: day_ends(world, day)),
    ]


ALL = [(day, fault) for day in range(1, DAYS + 1) for fault in of_day(day)]
"""All that happens."""
