"""Where the CPU seconds of a reading go, for both sources: by thread, and whose code the threads that read are in.

The CPU of a thread is the kernel's count, with native code and page faults. Whose code it is, is a sample of stacks
by the JVM's own recorder (JFR), which sees Java only.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click
import psutil

from benchmarks.harness import report, servers
from benchmarks.harness.options import OUTPUT
from benchmarks.throughput import NAMES
from benchmarks.throughput_driver import JAVA_OPTIONS, TUNED, Input, Order, jvm_of
from benchmarks.throughput_figures import SINKS, SOURCES
from benchmarks.throughput_inputs import topic_of
from benchmarks.throughput_measure import Driver, Plan, tune
from devstack.jars import java
from devstack.progress import say
from muster.settings.connections import KafkaSettings

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
            order = Order(kafka.bootstrap_servers, name, given, records)
            best = tune(order, plan.cores, folder).best
            for source in SOURCES:
                recording = folder / f"{given.size}-{given.partitions}-{source}.jfr"
                record = f"-XX:StartFlightRecording=filename={recording},settings=profile"
                found, times = {}, {}
                with closing(
                    Driver(source, plan.cores, folder, best if source == TUNED else None, record)
                ) as driver:
                    driver.start_cold(order)
                    for sink in plan.sinks:
                        began = time.time()
                        with cpu_by_thread(driver.pid) as found[sink]:
                            driver.read(order, sink)
                        times[sink] = (began, time.time())
                sampled = samples(recording)
                for sink, used in found.items():
                    began, ended = times[sink]
                    count = Counter(whose for at, whose in sampled if began <= at <= ended)
                    owners = {whose: of / count.total() for whose, of in count.items()}
                    a_million = {kind: seconds / records * 1e6 for kind, seconds in used.items()}
                    yield Profile(given, sink, source, a_million, owners)


def write(folder: Path, found: Sequence[Profile]) -> None:
    kinds, whose = (*THREADS, REST, PYTHON), (*OWNERS, "Java")
    said = f"Written to {folder / 'report-throughput-profile.md'}"
    report.publish(
        folder,
        "throughput-profile",
        said,
        options=JAVA_OPTIONS,
        found=found,
        names=NAMES,
        kinds=kinds,
        whose=whose,
    )


@click.command()
@click.option("--size", "sizes", multiple=True, default=(200, 1000), show_default=True, help="Of a record.")
@click.option("--partitions", multiple=True, default=(1,), show_default=True)
@click.option("--batches", default=38, show_default=True, help="How many full batches a topic holds.")
@click.option("--cores", default=2, show_default=True, help="Spark's cores.")
@OUTPUT
def main(sizes: tuple[int, ...], partitions: tuple[int, ...], batches: int, cores: int, output: Path) -> None:
    """Print where CPU goes, and write it as tables."""
    plan = Plan([Input(size, of) for size in sizes for of in partitions], SINKS, 1, batches, cores, 0.0)
    found = []
    with servers.kafka() as (kafka, folder):
        for profile in profiles(kafka, plan, folder):
            found.append(profile)
            say(f"{profile.given}, {profile.sink}, {profile.source}: {profile.cpu}; {profile.owners}")
    write(output, found)
