"""Flights go on flowing after the demo, for people to look at: `python -m devstack.demo.flow SERVERS TOPIC`.

The demo starts it in a session of its own, as a process of its stack, so that `make down` ends it with the rest.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from devstack.demo.flights import FlightsProducer
from devstack.leftovers import MARKER
from devstack.process import ServerProcess

_ROOT = Path(__file__).resolve().parents[2]
RATE = 5.0
"""Flights a second. Few, because each batch becomes some small files."""


def start_flow(stack: Path, bootstrap_servers: str, topic: str) -> ServerProcess:
    """Have flights flow into `topic` until the stack in the folder `stack` is stopped."""
    command = [sys.executable, "-m", "devstack.demo.flow", bootstrap_servers, topic]
    folder = stack / "flow"
    folder.mkdir(parents=True, exist_ok=True)
    # The demo's own environment has the path of Airflow, which knows nothing of this package.
    path = os.pathsep.join((str(_ROOT / "include"), str(_ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, MARKER: str(stack)}
    return ServerProcess.spawn(command, folder / "flow.log", folder, environment)


def main(bootstrap_servers: str, topic: str) -> None:
    """Produce the flights of the source file in turn, over and over. Raises RuntimeError if Kafka refuses one."""
    while True:
        producer = FlightsProducer(bootstrap_servers, topic, 0, RATE)
        producer.start()
        producer.join(threading.TIMEOUT_MAX)


if __name__ == "__main__":
    main(*sys.argv[1:])
