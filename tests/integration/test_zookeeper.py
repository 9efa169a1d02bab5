"""`TopicStore` against a real ZooKeeper: versions, malformed data, deadlines, credentials."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.security import make_digest_acl

from devstack.server import Server
from devstack.zookeeper import ZooKeeper
from muster.core.history import Transitions
from muster.core.model import State, TopicAssignment, TopicSnapshot, TopicState, Transition
from muster.core.wire import WireError, assignment_path, assignments_path, state_path
from muster.doctor.findings import CheckOutcome, Part
from muster.doctor.zookeeper import check_zookeeper
from muster.edges import zookeeper_transitions
from muster.edges.zookeeper import (
    OPERATIONS_AT_ONCE,
    TooLargeError,
    TopicStore,
    ZooKeeperError,
    make_client,
)
from muster.edges.zookeeper_multi_write import multi_async
from muster.settings.connections import ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.servers import running


@pytest.fixture
def store(zookeeper: ZooKeeperSettings, cluster: str) -> Iterator[TopicStore]:
    with TopicStore(zookeeper, cluster) as opened:
        yield opened


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A server that a test may freeze and kill without harm to the others."""
    with running(ZooKeeper(tmp_path / "zookeeper", guarded=True)) as server:
        yield server


def impatient(server: Server, **more: object) -> ZooKeeperSettings:
    return ZooKeeperSettings.model_validate(
        {"hosts": server.address, "session_timeout": 4.0, "operation_timeout": 1.0} | more
    )


def snapshot(store: TopicStore, topic: str) -> TopicSnapshot:
    found = store.snapshots()[topic]
    assert isinstance(found, TopicSnapshot), found
    return found


def to_starting(before: TopicSnapshot, owner: str = "a") -> Transition:
    assert before.assignment is not None
    return Transition(
        before,
        replace(before.assignment, owners=dict.fromkeys(before.partitions, owner), epoch=1),
        TopicState(
            State.STARTING, to_start={owner: before.partitions}, epoch=1, since=1.0, reason="new topic"
        ),
    )


def test_a_topic_from_its_creation_to_its_removal(store: TopicStore) -> None:
    assert store.topics() == []
    assert store.create_topic("flights", "h:9092", "g")
    assert not store.create_topic("flights", "other:9092", "g")
    store.set_partitions("flights", frozenset(range(3)))

    before = snapshot(store, "flights")
    assert before.assignment == TopicAssignment("h:9092", "g")
    assert (before.partitions, before.name, before.state) == ({0, 1, 2}, State.INITIAL, None)

    assert store.apply([to_starting(before)]) == [True]
    after = snapshot(store, "flights")
    assert after.assignment is not None
    assert after.assignment.owners == {0: "a", 1: "a", 2: "a"}
    assert after.state == TopicState(
        State.STARTING, to_start={"a": frozenset({0, 1, 2})}, epoch=1, since=1.0, reason="new topic"
    )

    assert not store.remove_topic("flights", before)
    assert store.remove_topic("flights", after)
    assert store.snapshots() == {}
    assert not store.remove_topic("flights", after)


def test_removal_deletes_all_nodes_and_is_in_the_history(
    store: TopicStore, raw: KazooClient, cluster: str
) -> None:
    partitions = frozenset(range(2 * OPERATIONS_AT_ONCE + 1))
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", partitions)
    store.set_racks("flights", {0: "a"})
    assert store.apply([to_starting(snapshot(store, "flights"))]) == [True]
    standing = snapshot(store, "flights")
    assert store.remove_topic("flights", standing, "unsubscribed by ann: cost")
    for kind in ("assignments", "state", "racks"):
        assert raw.get_children(f"/consumers/{cluster}/{kind}") == []
    entry = store.history(limit=1).records[0].entry
    assert isinstance(entry, Transitions)
    [step] = entry.steps
    assert (step.topic, step.after, step.reason) == (
        "flights",
        State.INITIAL,
        "unsubscribed by ann: cost",
    )


def test_znodes_follow_the_wire_protocol(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0, 1}))
    store.apply([to_starting(snapshot(store, "flights"))])

    data, _ = raw.get(f"/consumers/{cluster}/assignments/flights")
    assert data == (
        b'{"bootstrap.servers":"h:9092","group.id":"g","assignments":{"0":"a","1":"a"},"epoch":1,"protocol":2}'
    )
    data, _ = raw.get(f"/consumers/{cluster}/state/flights")
    assert data.startswith(b'{"state":"Starting","toStart":{"a":[0,1]},"toClose":{},')
    assert sorted(raw.get_children(f"/consumers/{cluster}/assignments/flights")) == ["0", "1"]
    assert raw.get(f"/consumers/{cluster}/assignments/flights/0")[0] == b""


def test_apply_writes_for_one_of_two_stores_that_read_the_same(
    store: TopicStore, zookeeper: ZooKeeperSettings, cluster: str
) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0}))
    with TopicStore(zookeeper, cluster) as rival:
        ours, theirs = snapshot(store, "flights"), snapshot(rival, "flights")
        assert rival.apply([to_starting(theirs, "theirs")]) == [True]
        assert store.apply([to_starting(ours, "ours")]) == [False]
        again = snapshot(store, "flights")
        assert again.assignment is not None
        assert again.assignment.owners == {0: "theirs"}
        # The next step is written against what is there now, and the rival's older view is refused in turn.
        stable = replace(to_starting(again), state=TopicState(State.STABLE, epoch=2))
        assert store.apply([stable]) == [True]
        late = replace(to_starting(theirs), state=TopicState(State.CLOSING))
        assert rival.apply([late]) == [False]
        assert snapshot(rival, "flights").name is State.STABLE


@pytest.mark.parametrize("changed", ["assignment", "state"])
def test_a_conflict_on_one_node_leaves_both_as_they_were(
    store: TopicStore, raw: KazooClient, cluster: str, changed: str
) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0}))
    store.apply([to_starting(snapshot(store, "flights"))])
    before = snapshot(store, "flights")
    path = (assignment_path if changed == "assignment" else state_path)(cluster, "flights")
    raw.set(path, raw.get(path)[0])

    assert store.apply([to_starting(before, "b")]) == [False]
    after = snapshot(store, "flights")
    assert (after.assignment, after.state) == (before.assignment, before.state)


def test_conflict_on_one_topic_leaves_out_only_that_topic(
    store: TopicStore, raw: KazooClient, cluster: str
) -> None:
    topics = [f"t{n}" for n in range(20)]
    for topic in topics:
        store.create_topic(topic, "h:9092", "g")
        store.set_partitions(topic, frozenset({0}))
    transitions = [to_starting(snapshot(store, topic)) for topic in topics]
    path = assignment_path(cluster, "t7")
    raw.set(path, raw.get(path)[0])

    assert store.apply(transitions) == [topic != "t7" for topic in topics]
    assert [t for t in topics if snapshot(store, t).name is State.INITIAL] == ["t7"]


def test_more_than_fits_in_one_multi_is_written_in_several(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"t{n}" for n in range(10)]
    for topic in topics:
        store.create_topic(topic, "h:9092", "g")
    monkeypatch.setattr(zookeeper_transitions, "BYTES_AT_ONCE", 1200)
    assert store.apply([to_starting(snapshot(store, topic)) for topic in topics]) == [True] * 10


def test_a_large_step_of_many_topics_fits(store: TopicStore) -> None:
    """300 topics of 100 partitions are over a megabyte, which ZooKeeper would refuse in one request."""
    topics = [f"topic-with-a-longer-name-{n}" for n in range(300)]
    for topic in topics:
        store.create_topic(topic, "h:9092", "g")
    owners = {p: f"a-consumer-with-a-longer-name-{p}" for p in range(100)}
    transitions = [
        replace(to_starting(before), assignment=TopicAssignment("h:9092", "g", owners, 1))
        for before in store.snapshots().values()
        if isinstance(before, TopicSnapshot)
    ]
    assert store.apply(transitions) == [True] * 300


def test_a_transition_without_versions_is_refused(store: TopicStore) -> None:
    store.create_topic("flights", "h:9092", "g")
    transition = to_starting(snapshot(store, "flights"))
    blind = replace(transition, before=replace(transition.before, assignment_version=-1))
    with pytest.raises(ValueError, match="versions"):
        store.apply([blind])


def test_an_interrupted_multi_writes_both_nodes_or_none(
    own_server: ZooKeeper, eventually: Eventually
) -> None:
    """The server dies with a multi on its way, again and again: state and assignment never disagree."""
    settings = impatient(own_server, operation_timeout=5.0)
    with TopicStore(settings, "c") as store:
        store.create_topic("flights", "h:9092", "g")
        store.set_partitions("flights", frozenset({0}))
        for _ in range(2):
            stop = threading.Event()

            def write(stop: threading.Event = stop) -> None:
                while not stop.is_set():
                    try:
                        before = snapshot(store, "flights")
                        assert before.assignment is not None
                        epoch = before.assignment.epoch + 1
                        step = to_starting(before)
                        store.apply(
                            [
                                replace(
                                    step,
                                    assignment=replace(step.assignment, epoch=epoch),
                                    state=replace(step.state, epoch=epoch),
                                )
                            ]
                        )
                    except ZooKeeperError:
                        continue

            began = snapshot(store, "flights").assignment_version
            writer = threading.Thread(target=write)
            writer.start()
            try:
                eventually(lambda began=began: snapshot(store, "flights").assignment_version > began + 20)
                own_server.kill()
            finally:
                stop.set()
                writer.join()
            own_server.start()

            def consistent() -> bool:
                try:
                    seen = snapshot(store, "flights")
                except ZooKeeperError:
                    return False
                assert seen.assignment is not None
                assert seen.state is not None
                return seen.assignment.epoch == seen.state.epoch

            eventually(consistent)


def test_malformed_node_spoils_its_own_topic_only(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    for topic in ("good", "no-json", "bad-state", "bad-child", "huge-child", "empty"):
        store.create_topic(topic, "h:9092", "g")
        store.set_partitions(topic, frozenset({0, 1}))
    root = assignments_path(cluster)
    raw.set(f"{root}/no-json", b"\xff{")
    raw.create(state_path(cluster, "bad-state"), b'{"state": "Dancing"}')
    raw.create(f"{root}/bad-child/one", b"")
    raw.create(f"{root}/huge-child/99999999999", b"")
    raw.set(f"{root}/empty", b"")
    raw.create(f"{root}/no topic!", b"")

    found = store.snapshots()
    errors = {topic: str(read) for topic, read in found.items() if isinstance(read, WireError)}
    assert errors.keys() == {"no-json", "bad-state", "bad-child", "huge-child", "no topic!"}
    assert f"{root}/no-json" in errors["no-json"]
    assert "state" in errors["bad-state"]
    assert f"{root}/bad-child/one" in errors["bad-child"]
    assert snapshot(store, "good").partitions == {0, 1}
    assert snapshot(store, "empty").assignment is None
    assert store.create_topic("empty", "h:9092", "g"), "a node without data gets it"
    assert snapshot(store, "empty").assignment is not None


def test_forbidden_node_spoils_its_own_topic_only(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    store.create_topic("good", "h:9092", "g")
    secret = assignment_path(cluster, "secret")
    raw.create(secret, b"", acl=[make_digest_acl("another", "user", all=True)])
    try:
        found = store.snapshots()
    finally:
        raw.delete(secret)  # other tests read the whole tree
    assert isinstance(found["good"], TopicSnapshot)
    assert isinstance(found["secret"], WireError)
    assert "ACL" in str(found["secret"])


def test_a_state_left_by_an_earlier_topic_goes_with_the_new_one(
    store: TopicStore, raw: KazooClient, cluster: str
) -> None:
    raw.create(state_path(cluster, "flights"), b'{"state": "Closing", "toStart": {}, "toClose": {"x": [1]}}')
    assert store.create_topic("flights", "h:9092", "g")
    assert snapshot(store, "flights").name is State.INITIAL


def test_partitions_are_made_exactly_these(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset(range(1200)))
    assert snapshot(store, "flights").partitions == frozenset(range(1200))
    store.set_partitions("flights", frozenset(range(600, 1300)))
    assert snapshot(store, "flights").partitions == frozenset(range(600, 1300))
    raw.create(f"{assignment_path(cluster, 'flights')}/notes", b"")
    store.set_partitions("flights", frozenset({0}))
    assert sorted(raw.get_children(assignment_path(cluster, "flights"))) == ["0", "notes"]
    with pytest.raises(ZooKeeperError, match="create the topic"):
        store.set_partitions("unknown", frozenset({0}))


def test_set_partitions_by_two_stores_at_once_succeeds(
    store: TopicStore, zookeeper: ZooKeeperSettings, cluster: str
) -> None:
    store.create_topic("flights", "h:9092", "g")
    wanted = frozenset(range(3000))
    failures: list[Exception] = []
    with TopicStore(zookeeper, cluster) as rival:

        def fill(one: TopicStore) -> None:
            try:
                one.set_partitions("flights", wanted)
            except ZooKeeperError as error:
                failures.append(error)

        threads = [threading.Thread(target=fill, args=(one,)) for one in (store, rival)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert snapshot(store, "flights").partitions == wanted


def test_a_thousand_topics_are_read_in_one_go(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    root = assignments_path(cluster)
    results = []
    for n in range(1000):
        data = b'{"bootstrap.servers":"h:9092","group.id":"g","assignments":{}}'
        results += [raw.create_async(f"{root}/t{n}", data), raw.create_async(f"{root}/t{n}/0", b"")]
    for result in results:
        result.get(timeout=30)
    began = time.monotonic()
    found = store.snapshots()
    took = time.monotonic() - began
    assert len(found) == 1000
    assert all(isinstance(read, TopicSnapshot) and read.partitions == {0} for read in found.values())
    assert took < 10.0, "one after the other, 3,000 requests would take longer than this on a busy machine"


def test_touch_wakes_watchers(store: TopicStore, zookeeper: ZooKeeperSettings, cluster: str) -> None:
    woken = threading.Event()
    store.watch_changes(woken)
    store.watch_changes(woken)
    with TopicStore(zookeeper, cluster) as other:
        assert not woken.is_set()
        other.touch()
        assert woken.wait(5.0)
        woken.clear()
        other.touch()
        assert not woken.wait(0.3), "a watch is for one change"
        store.watch_changes(woken)
        other.touch()
        assert woken.wait(5.0)


def test_every_call_has_a_deadline_while_zookeeper_is_frozen_and_works_again_afterwards(
    own_server: ZooKeeper, eventually: Eventually
) -> None:
    settings = impatient(own_server, operation_timeout=0.6)
    with TopicStore(settings, "c") as store:
        store.create_topic("flights", "h:9092", "g")
        before = snapshot(store, "flights")
        own_server.pause()
        eventually(lambda: not own_server.healthy())
        calls = {
            "topics": store.topics,
            "snapshots": store.snapshots,
            "create_topic": lambda: store.create_topic("other", "h:9092", "g"),
            "set_partitions": lambda: store.set_partitions("flights", frozenset({0})),
            "apply": lambda: store.apply([to_starting(before)]),
            "touch": store.touch,
            "watch_changes": lambda: store.watch_changes(threading.Event()),
            "remove_topic": lambda: store.remove_topic("flights", before),
        }
        # Twice: at first the connection seems well, later it is suspended and requests queue.
        for _ in range(2):
            for name, call in calls.items():
                began = time.monotonic()
                with pytest.raises(ZooKeeperError, match=own_server.address):
                    call()
                assert time.monotonic() - began < 8.0, name
        own_server.resume()

        def back() -> bool:
            try:
                # It may be gone: the removal above was queued, and nobody has written in between.
                return isinstance(store.snapshots().get("flights"), TopicSnapshot | None)
            except ZooKeeperError:
                return False

        eventually(back)


def test_unreachable_zookeeper_is_an_error_in_time_that_says_why(
    own_server: ZooKeeper, eventually: Eventually
) -> None:
    settings = impatient(own_server)
    own_server.pause()
    eventually(lambda: not own_server.healthy())
    began = time.monotonic()
    with pytest.raises(ZooKeeperError, match="no connection within 1 s"), TopicStore(settings, "c"):
        pass
    assert time.monotonic() - began < 10.0
    own_server.kill()
    with pytest.raises(ZooKeeperError, match="refused"), TopicStore(settings, "c"):
        pass


def test_closing_is_quick_when_zookeeper_does_not_answer(
    own_server: ZooKeeper, eventually: Eventually
) -> None:
    with TopicStore(impatient(own_server), "c"):
        own_server.pause()
        eventually(lambda: not own_server.healthy())
        began = time.monotonic()
    assert time.monotonic() - began < 8.0


def test_store_works_again_after_restart_and_lost_session(
    own_server: ZooKeeper, eventually: Eventually
) -> None:
    with TopicStore(impatient(own_server), "c") as store:
        store.create_topic("flights", "h:9092", "g")
        own_server.pause()
        eventually(lambda: not own_server.healthy())
        # Longer than the session: the server forgets it, and the client needs a new one.
        deadline = time.monotonic() + 6.0
        while time.monotonic() < deadline:
            with pytest.raises(ZooKeeperError):
                store.topics()
        own_server.resume()
        own_server.restart()

        def back() -> bool:
            try:
                return store.topics() == ["flights"]
            except ZooKeeperError:
                return False

        eventually(back)


def test_nodes_made_with_digest_belong_to_the_coordinator_and_are_readable_by_all(
    store: TopicStore, zookeeper: ZooKeeperSettings, cluster: str
) -> None:
    name = f"{cluster}-guarded"
    ours = ZooKeeperSettings.model_validate(
        zookeeper.model_dump() | {"auth_scheme": "digest", "username": "muster", "password": "secret"}
    )
    with TopicStore(ours, name) as owner:
        owner.create_topic("flights", "h:9092", "g")
        owner.set_partitions("flights", frozenset({0}))
        before = snapshot(owner, "flights")
        with TopicStore(zookeeper, name) as stranger:
            seen = snapshot(stranger, "flights")
            assert seen == before
            with pytest.raises(ZooKeeperError, match="username and password"):
                stranger.apply([to_starting(seen)])
            with pytest.raises(ZooKeeperError, match="refused"):
                stranger.create_topic("other", "h:9092", "g")
        assert owner.apply([to_starting(before)]) == [True]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"use_ssl": True, "certfile": "c.pem"}, "certfile and keyfile"),
        ({"sasl_mechanism": "DIGEST-MD5"}, "username and password"),
        ({"auth_scheme": "digest", "username": "u"}, "username and password"),
        ({"hosts": "h:port"}, "host:port"),
        (
            {"sasl_mechanism": "DIGEST-MD5", "auth_scheme": "digest", "username": "u", "password": "p"},
            "choose one",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ZooKeeperError, match=problem):
        make_client(ZooKeeperSettings.model_validate({"hosts": "h:2181"} | settings))


def test_snapshots_see_every_change(store: TopicStore, raw: KazooClient, cluster: str) -> None:
    def seen() -> dict[str, tuple[frozenset[int], int, State]]:
        return {
            name: (found.partitions, found.assignment_version, found.name)
            for name, found in store.snapshots().items()
            if isinstance(found, TopicSnapshot)
        }

    for name in ("t", "u"):
        store.create_topic(name, "k:9092", "g")
        store.set_partitions(name, frozenset({0, 1}))
    both = frozenset({0, 1})
    assert seen() == {"t": (both, 0, State.INITIAL), "u": (both, 0, State.INITIAL)}
    before = store.snapshots()
    assert all(store.snapshots()[name] is found for name, found in before.items())

    raw.create(f"{assignment_path(cluster, 't')}/7")
    assert seen()["t"] == (frozenset({0, 1, 7}), 0, State.INITIAL)
    raw.create(state_path(cluster, "u"), b'{"state": "Stable", "toStart": {}, "toClose": {}}')
    assert seen()["u"] == (both, 0, State.STABLE)
    raw.set(assignment_path(cluster, "t"), raw.get(assignment_path(cluster, "t"))[0])
    assert seen()["t"] == (frozenset({0, 1, 7}), 1, State.INITIAL)
    raw.delete(state_path(cluster, "u"))
    assert seen()["u"] == (both, 0, State.INITIAL)

    raw.create(f"{assignment_path(cluster, 't')}/seven")
    assert isinstance(store.snapshots()["t"], WireError)
    raw.delete(f"{assignment_path(cluster, 't')}/seven")
    raw.delete(assignment_path(cluster, "u"), recursive=True)
    assert seen() == {"t": (frozenset({0, 1, 7}), 1, State.INITIAL)}
    store.create_topic("u", "k:9092", "g")
    assert seen()["u"] == (frozenset(), 0, State.INITIAL)


def test_path_of_the_connection_that_is_not_there_is_named_and_not_created(
    zookeeper: ZooKeeperSettings, raw: KazooClient, cluster: str
) -> None:
    """A misspelt path would be a second, empty ZooKeeper."""
    path = f"/chroot-{cluster}"
    settings = zookeeper.model_copy(update={"hosts": zookeeper.hosts + path})
    with (
        pytest.raises(ZooKeeperError, match=f"there is no path {path}; .* zkCli.sh create {path}"),
        TopicStore(settings, cluster),
    ):
        pass
    checks = {check.name: check for check in check_zookeeper(Part("zookeeper"), settings, cluster, True)}
    assert checks["reachable"].outcome is CheckOutcome.FAILED
    assert f"there is no path {path}" in checks["reachable"].found
    assert raw.exists(path) is None
    raw.create(path)
    with TopicStore(settings, cluster) as store:
        assert store.snapshots() == {}
    assert raw.exists(f"{path}/consumers/{cluster}") is not None


def begin_again(zookeeper: ZooKeeperSettings, store: TopicStore, topic: str) -> None:
    """A person deletes a topic's nodes, and another coordinator creates them again, with the same versions."""
    with TopicStore(zookeeper, store.cluster) as other:
        before = snapshot(other, topic)
        assert other.remove_topic(topic, before)
        other.create_topic(topic, "h:9092", "g", epoch=1000)
        other.set_partitions(topic, before.partitions)
        assert snapshot(other, topic).assignment_version == before.assignment_version


def end_session(zookeeper: ZooKeeperSettings, store: TopicStore, eventually: Eventually) -> None:
    """The store's session ends, as when its process stood still, and kazoo opens a new one."""
    client = store._client
    before = client.client_id
    twin = KazooClient(hosts=zookeeper.hosts, client_id=before)
    twin.start(10)
    twin.stop()
    twin.close()
    eventually(lambda: client.client_id not in {None, before}, what="it has a new session")


def test_apply_refuses_what_an_earlier_session_read(
    zookeeper: ZooKeeperSettings, store: TopicStore, eventually: Eventually
) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0}))
    read = snapshot(store, "flights")
    end_session(zookeeper, store, eventually)
    begin_again(zookeeper, store, "flights")
    with pytest.raises(ZooKeeperError, match=r"writing flights: .* its session has ended.* read again"):
        store.apply([to_starting(read)])
    found = snapshot(store, "flights")
    assert found.assignment == TopicAssignment("h:9092", "g", epoch=1000)
    assert store.apply([to_starting(found)]) == [True], "what the new session has read"


def test_remove_topic_refuses_what_an_earlier_session_read(
    zookeeper: ZooKeeperSettings, store: TopicStore, eventually: Eventually
) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0}))
    read = snapshot(store, "flights")
    end_session(zookeeper, store, eventually)
    begin_again(zookeeper, store, "flights")
    with pytest.raises(ZooKeeperError, match=r"removing topic flights: .* its session has ended"):
        store.remove_topic("flights", read)
    assert snapshot(store, "flights").partitions == {0}


def test_unchanged_topic_is_of_the_new_session_when_read_again(
    zookeeper: ZooKeeperSettings, store: TopicStore, eventually: Eventually
) -> None:
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0}))
    snapshot(store, "flights")
    end_session(zookeeper, store, eventually)
    assert store.apply([to_starting(snapshot(store, "flights"))]) == [True]


def test_queued_multi_is_not_sent_by_another_session(store: TopicStore, eventually: Eventually) -> None:
    """As when kazoo opens a new session between the comparison and the sending."""
    store.create_topic("flights", "h:9092", "g")
    client = store._client
    path = assignment_path(store.cluster, "flights")
    transaction = client.transaction()
    transaction.set_data(path, b"late")
    with pytest.raises(SessionExpiredError):
        multi_async(client, transaction, session=1).get(timeout=10.0)
    eventually(lambda: client.client_id is not None, what="it is connected again")
    assert client.get(path)[0] != b"late"


def test_store_compares_with_the_limit_of_zookeeper(store: TopicStore, raw: KazooClient) -> None:
    """A write of just less than the limit is taken, and one of more would be dropped without a word."""
    store.create_topic("flights", "h:9092", "g")
    store.set_partitions("flights", frozenset({0}))
    read = snapshot(store, "flights")
    limit = store._session.settings.jute_maxbuffer
    owner = "consumer-" + 100 * "x"

    def step(partitions: int) -> Transition:
        assert read.assignment is not None
        owners = dict.fromkeys(range(partitions), owner)
        return replace(to_starting(read), assignment=replace(read.assignment, owners=owners, epoch=1))

    most = bisect_left(range(20_000), True, key=lambda n: bool(store.too_large([step(n)]))) - 1
    assert most * len(owner) > 0.8 * limit, "as much as goes in"
    (named,) = store.too_large([step(most + 1)]).values()
    assert "topic flights with 1 partitions: takes 1,04" in named
    assert f"of at most {limit:,} that ZooKeeper takes" in named
    with pytest.raises(TooLargeError):
        store.apply([step(most + 1)])
    assert store.apply([step(most)]) == [True]
    with pytest.raises(ConnectionLoss):
        raw.set(assignment_path(store.cluster, "flights"), b"x" * limit)


def test_apply_writes_the_others_beside_an_oversized_topic(
    zookeeper: ZooKeeperSettings, cluster: str
) -> None:
    with TopicStore(zookeeper.model_copy(update={"jute_maxbuffer": 20_000}), cluster) as store:
        for topic, partitions in (("a", 3), ("big", 400), ("z", 3)):
            store.create_topic(topic, "h:9092", "g")
            store.set_partitions(topic, frozenset(range(partitions)))
        owner = "consumer-of-the-billing-department-eu-west-1-number-1"
        steps = [
            to_starting(read, owner) for read in store.snapshots().values() if isinstance(read, TopicSnapshot)
        ]
        with pytest.raises(TooLargeError, match="writing big: takes"):
            store.apply(steps)
        states = {topic: snapshot(store, topic).name for topic in ("a", "big", "z")}
    assert states == {"a": State.STARTING, "big": State.INITIAL, "z": State.STARTING}
