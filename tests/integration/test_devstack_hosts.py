"""Hosts out of network namespaces: apart from each other and other networks, cut off on demand, gone after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.hosts import Host, Hosts
from tests.conftest import Eventually

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join((str(ROOT / "include"), str(ROOT)))
HOLD = """
import time
from devstack.hosts import Hosts
with Hosts(2) as hosts:
    print(hosts.name, flush=True)
    time.sleep(600)
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))"
PORT = 18_099


@pytest.fixture(scope="module")
def hosts(hosts_possible: None) -> Iterator[Hosts]:
    with Hosts(3) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def listeners(hosts: Hosts) -> Iterator[None]:
    """A server on each host; the processes end with the test."""
    started = [
        subprocess.Popen(
            [*host.place.prefix, sys.executable, "-m", "http.server", str(PORT), "--bind", host.address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for host in hosts
    ]
    yield
    for process in started:
        process.kill()
        process.wait()


def reaches(source: Host, target: Host, timeout: float = 1.0) -> bool:
    command = [*source.place.prefix, sys.executable, "-c", CONNECT, target.address, str(PORT), str(timeout)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_hosts_reach_each_other(hosts: Hosts, eventually: Eventually) -> None:
    for source in hosts:
        for target in hosts:
            eventually(lambda source=source, target=target: reaches(source, target))  # type: ignore[misc]


def test_cut_host_reaches_itself_alone_until_it_is_joined(hosts: Hosts, eventually: Eventually) -> None:
    eventually(lambda: reaches(hosts[2], hosts[1]))
    with hosts.off(hosts[2]):
        assert not reaches(hosts[2], hosts[1])
        assert not reaches(hosts[1], hosts[2])
        assert reaches(hosts[2], hosts[2])
        assert reaches(hosts[1], hosts[3])
    eventually(lambda: reaches(hosts[1], hosts[2]))
    eventually(lambda: reaches(hosts[2], hosts[1]))


def test_packets_of_one_direction_are_lost_in_a_one_way_cut(hosts: Hosts, eventually: Eventually) -> None:
    eventually(lambda: reaches(hosts[2], hosts[1]))
    with hosts.one_way(hosts[2], hosts[1]):
        assert not reaches(hosts[2], hosts[1])
        assert not reaches(hosts[1], hosts[2]), "the answer is lost"
        assert reaches(hosts[2], hosts[3])
    eventually(lambda: reaches(hosts[1], hosts[2]))


def test_second_network_has_names_and_subnet_of_its_own(hosts: Hosts) -> None:
    with Hosts(1) as other:
        assert other.name != hosts.name
        assert other[1].address not in {host.address for host in hosts}


def test_network_is_gone_when_its_owner_is_killed(hosts_possible: None, eventually: Eventually) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    eventually(lambda: name in _names())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    eventually(lambda: name not in _names())


def _names() -> str:
    listed = [["ip", "netns", "list"], ["ip", "-o", "link", "show"]]
    return "".join(subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in listed)
