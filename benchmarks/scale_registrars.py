"""The registrars of many consumers, in threads of one process: each is the product's own, with nothing behind it.

It reads commands from its standard input, a line each: `join NAME PORT` (of its status page), `leave NAME`,
`kill NAME` (it stays registered, and is no longer waited for), `end`; and says `done` after `end`, when all that came
before it is done.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Ending
from muster.consumer.registration import Registrar
from muster.edges.consul import ConsulCluster
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import ConsumerSettings

AT_ONCE = 16
"""So many are on their way to be live at the same time: here all have one agent of Consul, and one machine."""
PATIENCE = 600.0
"""Seconds until all that join have to be live."""


class Registrars:
    """Those of this process, by consumer."""

    def __init__(self, told: str) -> None:
        self._told = json.loads(told)
        self._consul = ConsulSettings(**self._told["consul"], timeout=30.0)
        self._all: dict[str, Registrar] = {}

    def join(self, name: str, port: int) -> None:
        """Begin to register a consumer, when not too many others do."""
        settings = ConsumerSettings(
            cluster=self._told["cluster"],
            consumer=name,
            incarnation=f"{name}-1",
            consul_service=self._told["service"],
            zookeeper=ZooKeeperSettings(hosts=self._told["zookeeper"]),
            consul=self._consul,
            kafka=KafkaSettings(config={"bootstrap.servers": "none"}),
            handler="none.none",
            bind="127.0.0.1",
            advertise="127.0.0.1",
            check_interval=self._told["check_interval"],
        )
        discovery = ConsulCluster(self._consul, settings.cluster, settings.consul_service)
        registrar = Registrar(settings, discovery, Agent(name), Ending(), port)
        registrar.open()
        self._wait(AT_ONCE - 1, lambda registrar: registrar.live)
        self._all[name] = registrar
        threading.Thread(target=registrar.run, args=(lambda: None,), daemon=True).start()

    def kill(self, name: str) -> None:
        """Leave a consumer's registration as it is, and no longer expect it to be live."""
        del self._all[name]

    def leave(self, name: str) -> None:
        """Have a consumer deregister, and end its loop."""
        self._all.pop(name).leave()

    def wait(self) -> None:
        """Wait until all are live. Raises RuntimeError if that takes longer than `PATIENCE`."""
        self._wait(0, lambda registrar: registrar.live)

    def _wait(self, others: int, there: Callable[[Registrar], bool]) -> None:
        """Wait until all but so many are there."""
        deadline = time.monotonic() + PATIENCE
        while sum(not there(registrar) for registrar in self._all.values()) > others:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all of {len(self._all)} consumers are live after {PATIENCE:g} s")
            time.sleep(0.05)


def main() -> None:
    """Carry out commands until standard input ends; the one argument says where the servers are, in JSON."""
    # Threads that wait for the interpreter's lock look for it at this interval. At the default of 5 ms, hundreds of
    # them take all CPU. In the field a process has one registrar.
    sys.setswitchinterval(1.0)
    registrars = Registrars(sys.argv[1])
    for line in sys.stdin:
        match line.split():
            case ["join", name, port]:
                registrars.join(name, int(port))
            case ["leave", name]:
                registrars.leave(name)
            case ["kill", name]:
                registrars.kill(name)
            case _:
                registrars.wait()
                print("done", flush=True)


if __name__ == "__main__":
    main()
