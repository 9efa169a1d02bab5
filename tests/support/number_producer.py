"""Records that can be counted: each carries a number of its own."""

from __future__ import annotations

import json
import logging
import threading

from confluent_kafka import Producer


class NumberProducer:
    """Produces 0, 1, 2 ... as `{"row": n}`, a hundred a second, until it is stopped."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        quiet = logging.getLogger("tests.producer")
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True}, logger=quiet
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.produced = 0

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.produce(
                self._topic, json.dumps({"row": self.produced}).encode(), str(self.produced)
            )
            self.produced += 1
            self._producer.poll(0)

    def stop(self) -> int:
        """End and return how many were produced and acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0
        return self.produced
