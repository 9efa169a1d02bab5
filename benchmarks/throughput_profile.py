"""Where the CPU seconds of a reading go, for both sources: by thread, and whose code the threads that read are in.

The CPU of a thread is the kernel's count, with native code and page faults. Whose code it is, is a sample of stacks
by the JVM's own recorder (JFR), which sees Java only.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import click
import psutil

from benchmarks.markdown import table
from benchmarks.options import OUTPUT
from benchmarks.throughput_driver import JAVA_OPTIONS, jvm_of
from benchmarks.throughput_figures import (
    SINKS,
    SOURCES,
    Driver,
    Plan,
    ReadTopic,
    read_whole,
    start_cold,
    tune,
)
from benchmarks.throughput_inputs import Input, topic_of
from benchmarks.throughput_report import NAMES
from devstack.jars import java
from devstack.kafka import Kafka
from devstack.progress import say
from muster.settings.connections import KafkaSettings

REPORT = "report-throughput-profile.md"
TICK = 0.25
"""Seconds between two looks at the threads. What one uses after the last look at it counts as `REST`."""
THREADS = {
    "tasks": ("Executor task",),
    "reading ahead": ("muster-read",),
    "compiler": ("C1 Compiler", "C2 Compiler"),
    "collector": ("GC Thread", "VM Thread"),
}
"""Threads of the JVM by the beginning of their names, of which Linux keeps 15 characters."""
REST, PYTHON = "planning, scheduling", "Python"
READERS = ("Executor task launch", "muster-read-ahead")
OWNERS = {
    "Muster": ("muster.connector.",),
    "Kafka's client": ("org.apache.kafka.", "muster.connector.shaded."),
    "Parquet": ("org.apache.parquet.", "org.xerial.snappy."),
    "Spark": ("org.apache.spark.",),
}
"""Whose code it is, by the beginning of the name of the innermost class that is in here; the longest one counts."""


@dataclass(frozen=True)
class Profile:
    """CPU seconds a million records by thread, and the part of the reading threads' samples by whose code it is."""

    given: Input
    sink: str
    source: str
    cpu: Mapping[str, float]
    owners: Mapping[str, float]


@contextmanager
def cpu_by_thread(pid: int) -> Iterator[dict[str, float]]:
    """Count the CPU seconds of a driver and its JVM while in the context. What is yielded is filled at its end."""
    driver = psutil.Process(pid)
    jvm = jvm_of(driver)
    first = _look(jvm)
    last = dict(first)
    found: dict[str, float] = {}
    before, python = _cpu(jvm), _cpu(driver)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(TICK):
            last.update(_look(jvm))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        stop.set()
        watching.join()
        last.update(_look(jvm))
        found.update(dict.fromkeys(THREADS, 0.0))
        for thread, (kind, used) in last.items():
            if kind != REST:
                found[kind] += used - first.get(thread, (kind, 0.0))[1]
        found[REST] = _cpu(jvm) - before - sum(found.values())
        found[PYTHON] = _cpu(driver) - python


def _look(jvm: psutil.Process) -> dict[int, tuple[str, float]]:
    """Return the kind of each thread, and the CPU seconds that it has used."""
    found = {}
    for thread in jvm.threads():
        try:
            name = Path(f"/proc/{jvm.pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
        except OSError:  # it has just ended
            continue
        kind = next((kind for kind, starts in THREADS.items() if name.startswith(starts)), REST)
        found[thread.id] = (kind, thread.user_time + thread.system_time)
    return found


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def samples(recording: Path) -> list[tuple[float, str]]:
    """Return when (seconds since 1970) a thread that reads was sampled, and whose code it was in."""
    text = subprocess.run(  # noqa: S603  our own command line
        [
            str(Path(java()).resolve().with_name("jfr")),
            *("print", "--json", "--stack-depth", "64", "--events", "jdk.ExecutionSample", str(recording)),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = []
    for event in json.loads(text)["recording"]["events"]:
        values = event["values"]
        name = (values["sampledThread"] or {}).get("javaName") or ""
        if name.startswith(READERS):
            frames = (values["stackTrace"] or {}).get("frames", ())
            whose = owner(frame["method"]["type"]["name"].replace("/", ".") for frame in frames)
            found.append((datetime.fromisoformat(values["startTime"]).timestamp(), whose))
    return found


def owner(classes: Iterable[str]) -> str:
    """Tell whose code a stack is in; `classes` begin with that of the innermost frame."""
    for name in classes:
        found = [
            (len(start), who) for who, starts in OWNERS.items() for start in starts if name.startswith(start)
        ]
        if found:
            return max(found)[1]
    return "Java"


def profiles(kafka: KafkaSettings, plan: Plan, folder: Path) -> Iterator[Profile]:
    """Read every input with every sink, one source after the other, each with a driver of its own that is warm."""
    for given in plan.inputs:
        records = given.most * plan.batches
        with topic_of(kafka, given, records) as name:
            topic = ReadTopic(kafka, name, given, plan)
            topic = replace(topic, fetch=tune(topic, folder).best)
            for source in SOURCES:
                recording = folder / f"{given.size}-{given.partitions}-{source}.jfr"
                record = f"-XX:StartFlightRecording=filename={recording},settings=profile"
                driver = Driver(source, plan.cores, folder / f"{source}.log", record)
                found, times = {}, {}
                try:
                    start_cold(driver, topic)
                    for sink in plan.sinks:
                        began = time.time()
                        with cpu_by_thread(driver.pid) as found[sink]:
                            read_whole(driver, topic, sink)
                        times[sink] = (began, time.time())
                finally:
                    driver.close()
                sampled = samples(recording)
                for sink, used in found.items():
                    began, ended = times[sink]
                    count = Counter(whose for at, whose in sampled if began <= at <= ended)
                    owners = {whose: of / count.total() for whose, of in count.items()}
                    a_million = {kind: seconds / records * 1e6 for kind, seconds in used.items()}
                    yield Profile(given, sink, source, a_million, owners)


def write(folder: Path, found: Sequence[Profile]) -> None:
    """Write the report into `folder`."""
    kinds, whose = (*THREADS, REST, PYTHON), (*OWNERS, "Java")
    lines = [
        "# Where the CPU of reading goes",
        "",
        "Written by `python -m benchmarks.throughput_profile`: do not edit. The setting is that of",
        f"[the throughput report](report-throughput.md), with `{JAVA_OPTIONS}` and the JVM's recorder, which takes",
        "some CPU itself. One reading each, from the start of the query to the topic's end, by a driver that has",
        "read the topic before with the sinks in turns.",
        "",
        "CPU seconds a million records, by thread. The tuned source reads in its tasks; Muster reads ahead, and its",
        "tasks have what Spark and the sink do.",
        "",
        *table(
            ("topic", "sink", "source", *kinds, "all"),
            (
                (*_names(p), *(f"{p.cpu[kind]:.2f}" for kind in kinds), f"**{sum(p.cpu.values()):.2f}**")
                for p in found
            ),
        ),
        "",
        "Whose code the tasks and the threads that read ahead were in, by samples of Java's stacks; native code, as",
        "of decompression, is not seen, and Java's own classes count as those of who called them.",
        "",
        *table(
            ("topic", "sink", "source", *whose),
            ((*_names(p), *(f"{p.owners.get(who, 0.0):.0%}" for who in whose)) for p in found),
        ),
        "",
    ]
    (folder / REPORT).write_text("\n".join(lines), encoding="utf-8")


def _names(profile: Profile) -> tuple[str, str, str]:
    return str(profile.given), profile.sink, NAMES[profile.source]


@click.command()
@click.option(
    "--size", "sizes", multiple=True, default=(200, 1000), show_default=True, help="Bytes a record."
)
@click.option("--partitions", multiple=True, default=(1,), show_default=True)
@click.option("--batches", default=38, show_default=True, help="How many full batches a topic holds.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores.")
@OUTPUT
def main(sizes: tuple[int, ...], partitions: tuple[int, ...], batches: int, cores: int, output: Path) -> None:
    """Print where CPU goes, and write it as tables."""
    plan = Plan([Input(size, of) for size in sizes for of in partitions], SINKS, 1, batches, cores, 0.0)
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-throughput-") as folder:
        server = Kafka(Path(folder) / "kafka", guarded=True, heap="1g")
        server.start(240)
        try:
            kafka = KafkaSettings(config={"bootstrap.servers": server.address})
            for profile in profiles(kafka, plan, Path(folder)):
                found.append(profile)
                say(f"{', '.join(_names(profile))}: {profile.cpu}; {profile.owners}")
        finally:
            server.stop()
    write(output, found)
    say(f"Written to {output}")


if __name__ == "__main__":
    main()
