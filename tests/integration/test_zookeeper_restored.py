"""ZooKeeper restored from a backup under a consumer's assignment watch: a real server that goes back."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from devstack.ensemble import Ensemble
from devstack.zookeeper import ZooKeeper
from muster.consumer import assignment_watch
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.core.model import TopicAssignment
from muster.core.wire import assignment_path, format_assignment
from muster.settings.connections import ZooKeeperSettings
from tests.conftest import Eventually

pytestmark = pytest.mark.timeout(300)
PATH = assignment_path("c", "t")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeper]:
    made = ZooKeeper(tmp_path / "zookeeper", guarded=True)
    made.start()
    yield made
    made.stop()


def write(
    hosts: str,
    owners: dict[int, str],
    epoch: int,
    paused: frozenset[int] = frozenset(),
    above: int = 0,
) -> int:
    """Write the assignment node, again and again until its transaction is `above` this one; returns that."""
    client = KazooClient(hosts=hosts)
    client.start(30)
    try:
        data = format_assignment(TopicAssignment("k:9092", "g", owners, epoch, paused=paused))
        client.ensure_path(PATH)
        zxid: int = client.set(PATH, data).mzxid
        while zxid <= above:
            zxid = client.set(PATH, data).mzxid
        return zxid
    finally:
        client.stop()
        client.close()


def test_consumer_that_starts_on_a_backup_takes_nothing_up(server: ZooKeeper, eventually: Eventually) -> None:
    agent = Agent("me")
    agent.blocks.block("not live yet")
    watch = AssignmentWatch(ZooKeeperSettings(hosts=server.address), "c", agent, reread_interval=1.0)
    thread = threading.Thread(target=watch.run, args=(lambda: None,), daemon=True)
    write(server.address, {0: "me"}, 5)
    thread.start()
    try:
        eventually(lambda: "t" in agent.view().topics, what="the backup is read")
        with agent.shared.change() as own:
            own.expect({"t": 7})
        agent.blocks.unblock_once_read("not live yet")
        problem = eventually(lambda: agent.view().problems.get("restored t"), what="that it is one")
        assert "went back to epoch 5" in problem and "from epoch 7" in problem
        eventually(lambda: not agent.view().blocks, what="all is read again")
        write(server.address, {0: "me"}, 6)
        eventually(lambda: "epoch 6" in agent.view().problems.get("restored t", ""), what="told again")
        status = agent.view().topics["t"]
        assert (status.epoch, status.held) == (7, set()), "which lets the coordinator see it"
        write(server.address, {0: "me"}, 8)
        eventually(lambda: agent.view().topics["t"].held == {0}, what="what was planned in knowledge of it")
        assert agent.view().problems == {}
    finally:
        watch.stop()
        thread.join(10)


def test_consumer_keeps_what_it_has_until_a_higher_epoch_is_written(
    server: ZooKeeper, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment_watch, "NEW_SESSION_AFTER", 2.0)
    agent = Agent("me")
    watch = AssignmentWatch(ZooKeeperSettings(hosts=server.address), "c", agent, reread_interval=1.0)
    thread = threading.Thread(target=watch.run, args=(lambda: None,), daemon=True)

    def obeys(epoch: int, held: set[int]) -> bool:
        status = agent.view().topics.get("t")
        return status is not None and (status.epoch, status.held) == (epoch, held)

    write(server.address, {0: "me", 1: "other"}, 5)
    server.stop()
    backup = server.data_dir / "backup"
    shutil.copytree(server.data_dir / "data", backup)
    server.start()
    thread.start()
    try:
        eventually(lambda: obeys(5, {0}), what="the first assignment")
        # Many writes, so that those after the restoring have lower numbers.
        newest = [write(server.address, {1: "me", 0: "other"}, epoch) for epoch in (*[6] * 20, 7)][-1]
        eventually(lambda: obeys(7, {1}), what="the newest one")

        server.stop()
        shutil.rmtree(server.data_dir / "data")
        shutil.copytree(backup, server.data_dir / "data")
        server.start()
        problem = eventually(
            lambda: agent.view().problems.get("restored t"), 60, "a session though the server has seen less"
        )
        assert "went back to epoch 5" in problem
        assert obeys(7, {1}), "and what it reports lets the coordinator see it"

        assert write(server.address, {0: "me"}, 6) < newest
        eventually(lambda: "epoch 6" in agent.view().problems.get("restored t", ""), what="told again")
        assert obeys(7, {1}), "of two plans with numbers that are not higher none is obeyed"
        passed = write(server.address, {0: "me", 1: "other"}, 5, frozenset({0}), above=newest)
        eventually(
            lambda: f"transaction {passed}" in agent.view().problems.get("restored t", ""), what="it is read"
        )
        assert obeys(7, {1}), "nor a pause over the backup, though its number is higher than all before"
        write(server.address, {0: "me"}, 8)
        eventually(lambda: obeys(8, {0}), what="what was planned in knowledge of it")
        write(server.address, {0: "me", 1: "me"}, 9)
        eventually(lambda: obeys(9, {0, 1}), what="and from here on as ever")
        assert agent.view().problems == {}
    finally:
        watch.stop()
        thread.join(10)


def test_ensemble_that_elects_after_a_restore_leads_to_no_lower_epoch(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three servers are restored from a copy made while they ran. The election raises transaction numbers."""
    monkeypatch.setattr(assignment_watch, "NEW_SESSION_AFTER", 2.0)
    servers, agent = Ensemble(tmp_path / "zookeeper"), Agent("me")
    servers.start()
    watch = AssignmentWatch(ZooKeeperSettings(hosts=servers.hosts), "c", agent, reread_interval=1.0)
    thread = threading.Thread(target=watch.run, args=(lambda: None,), daemon=True)

    def obeys(epoch: int, held: set[int]) -> bool:
        status = agent.view().topics.get("t")
        return status is not None and (status.epoch, status.held) == (epoch, held)

    try:
        write(servers.hosts, {0: "me", 1: "other"}, 5)
        for member in servers:
            shutil.copytree(member.data_dir / "data", tmp_path / f"backup-{member.number}")
        newest = write(servers.hosts, {1: "me", 0: "other"}, 7)
        thread.start()
        eventually(lambda: obeys(7, {1}), 60, "the newest assignment")
        servers.stop()
        for member in servers:
            shutil.rmtree(member.data_dir / "data")
            shutil.copytree(tmp_path / f"backup-{member.number}", member.data_dir / "data")
        servers.start()
        passed = write(servers.hosts, {0: "me", 1: "other"}, 5, frozenset({0}))
        assert passed > newest
        eventually(
            lambda: f"transaction {passed}" in agent.view().problems.get("restored t", ""), 60, "it is read"
        )
        assert obeys(7, {1}), "a pause that is built on the backup is not obeyed"
        write(servers.hosts, {0: "me"}, 8)
        eventually(lambda: obeys(8, {0}), 60, "what was planned in knowledge of it")
    finally:
        watch.stop()
        servers.stop()
        if thread.is_alive():
            thread.join(10)
