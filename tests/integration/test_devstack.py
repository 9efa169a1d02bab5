"""The local servers: healthy when started, back on the same port and data after a fault, gone when stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from devstack.errors import DevstackError
from devstack.kafka import Kafka
from devstack.ports import free_port, is_free
from devstack.zookeeper import ZooKeeper
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.support.only_long import only_long

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join((str(ROOT / "include"), str(ROOT)))


def test_servers_answer(
    zookeeper: ZooKeeperSettings, consul: ConsulSettings, kafka: KafkaSettings, zookeeper_server: ZooKeeper
) -> None:
    assert zookeeper_server.healthy()
    assert zookeeper.hosts and consul.port and kafka.bootstrap_servers


def test_killed_server_comes_back_on_its_port(tmp_path: Path, eventually: Eventually) -> None:
    server = ZooKeeper(tmp_path, guarded=True)
    server.start()
    port = server.port
    try:
        server.kill()
        assert not server.running and is_free(port)
        server.start()
        assert server.port == port and server.healthy()

        server.pause()
        assert server.running and not server.healthy()
        server.resume()
        eventually(server.healthy, 10)
    finally:
        server.stop()
    assert not server.running and is_free(port)


@only_long
def test_second_kafka_is_a_cluster_of_its_own(tmp_path: Path, kafka: KafkaSettings) -> None:
    server = Kafka(tmp_path, guarded=True)
    server.start()
    try:
        ids = {
            AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).cluster_id
            for address in (kafka.bootstrap_servers, server.address)
        }
        assert len(ids) == 2
    finally:
        server.stop()


def test_taken_port_is_named(tmp_path: Path) -> None:
    first = ZooKeeper(tmp_path / "a", guarded=True)
    first.start()
    try:
        with pytest.raises(DevstackError, match=rf"port {first.port} \(client\) is in use"):
            ZooKeeper(tmp_path / "b", {"client": first.port}, guarded=True).start()
    finally:
        first.stop()


def test_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the data folder should be")
    with pytest.raises(DevstackError, match=r"(?s)ZooKeeper ended while starting; its log .* ends:\n.+"):
        ZooKeeper(tmp_path, guarded=True).start()


def test_guarded_server_ends_with_its_owner(tmp_path: Path, eventually: Eventually) -> None:
    code = (
        "import sys, time; from pathlib import Path; from devstack.zookeeper import ZooKeeper\n"
        "server = ZooKeeper(Path(sys.argv[1]), guarded=True); server.start()\n"
        "print(server.process.pid, flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert psutil.pid_exists(pid)
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(pid), 10, "the server is gone")


def test_free_ports_are_different_and_not_for_outgoing_connections() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert max(ports) < 32_768
