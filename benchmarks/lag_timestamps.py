"""What the timestamps of lag in time cost: a reading of a cluster's offsets with no partition behind, with each
behind and moved since the reading before (each timestamp is read again), and with each behind and standing (none is).

One broker on this machine, one process that reads as the page and the metrics do; figures are medians of the rounds,
of seconds by the clock and of this process's CPU time. The last line has what a moved partition adds, in milliseconds
of CPU, and the ratio of the readings by the clock.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from uuid import uuid4

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devstack.kafka import Kafka
from devstack.progress import say
from muster.core.offsets import TopicOffsets
from muster.edges.kafka import GroupOffsets, librdkafka_logger
from muster.edges.kafka_offsets import OffsetReader
from muster.settings.connections import KafkaSettings

RECORDS, BYTES = 200, 500
"""Of each partition: records, and bytes of each, in batches of 16 kB as Java's producers make them."""
LINE = "{:>12}{:>14}{:>14}{:>14}"


def fill(kafka: KafkaSettings, partitions: int) -> str:
    """Make a topic with records in each of its partitions."""
    topic = f"bench-{uuid4().hex[:8]}"
    admin = AdminClient(dict(kafka.config), logger=librdkafka_logger())
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
    producer = Producer(
        dict(kafka.config) | {"linger.ms": 5, "batch.size": 16_384}, logger=librdkafka_logger()
    )
    for partition in range(partitions):
        for _ in range(RECORDS):
            producer.produce(topic, bytes(BYTES), partition=partition)
        producer.flush(60)
    if producer.flush(120):
        raise RuntimeError("not all records were written")
    return topic


def timed(read: Callable[[], TopicOffsets]) -> tuple[TopicOffsets, float, float]:
    """Return what was read, with the seconds by the clock and of CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    found = read()
    return found, time.perf_counter() - clock, time.process_time() - cpu


@click.command()
@click.option("--partitions", default=1_000, show_default=True)
@click.option("--rounds", default=9, show_default=True)
def main(partitions: int, rounds: int) -> None:
    """Measure it."""
    with tempfile.TemporaryDirectory() as folder:
        server = Kafka(Path(folder) / "kafka", guarded=True, heap="1g")
        server.start()
        try:
            kafka = KafkaSettings(config=server.client_settings())
            say(f"{partitions} partitions with {RECORDS} records of {BYTES} bytes")
            _measure(kafka, fill(kafka, partitions), partitions, rounds)
        finally:
            server.stop()


def _measure(kafka: KafkaSettings, topic: str, partitions: int, rounds: int) -> None:
    tps = [(topic, partition) for partition in range(partitions)]
    group = GroupOffsets(kafka, f"g-{topic}")
    reader = OffsetReader(kafka, group.group_id)
    clocks: dict[str, list[float]] = {"none behind": [], "moved": [], "standing": []}
    cpus: dict[str, list[float]] = {kind: [] for kind in clocks}
    for number in range(rounds + 1):
        for kind, offset in (("none behind", RECORDS), ("moved", number), ("standing", number)):
            group.commit(dict.fromkeys(tps, offset))
            found, clock, cpu = timed(lambda: reader.read_of(lambda name: name == topic, {}))
            if kind != "none behind" and len(found.first) < partitions:
                say(f"{kind}: {len(found.first)} timestamps in time; {found.unread}")
            if number:  # the first round connects
                clocks[kind].append(clock)
                cpus[kind].append(cpu)
    reader.close()
    group.close()
    say(LINE.format("partitions", "reading", "seconds", "CPU seconds"))
    for kind, seconds in clocks.items():
        say(LINE.format(partitions, kind, f"{median(seconds):.3f}", f"{median(cpus[kind]):.3f}"))
    added = (median(cpus["moved"]) - median(cpus["none behind"])) / partitions * 1_000
    ratios = [median(clocks[kind]) / median(clocks["none behind"]) for kind in ("moved", "standing")]
    say(
        f"timestamps: partitions={partitions} cpu_ms={added:.2f} moved={ratios[0]:.1f} standing={ratios[1]:.1f}"
    )


if __name__ == "__main__":
    main()
