"""The profile of the throughput benchmark says whose code a thread is in."""

from __future__ import annotations

from pathlib import Path

from benchmarks.throughput_driver import MUSTER, NOOP, TUNED, Input
from benchmarks.throughput_figures import SOURCES
from benchmarks.throughput_profile import OWNERS, PYTHON, REST, THREADS, Profile, owner, write


def test_stack_belongs_to_the_innermost_class_with_an_owner() -> None:
    ours = "muster.connector.CachedConsumer"
    assert owner(["java.lang.System", "muster.connector.shaded.kafka.clients.X", ours]) == "Kafka's client"
    assert owner(["java.lang.System", ours, "org.apache.spark.Task"]) == "Muster"
    assert owner(["org.apache.parquet.Column", "org.apache.spark.Task"]) == "Parquet"
    assert owner(["java.lang.Thread"]) == "Java"


def test_report_has_a_line_for_each_source(tmp_path: Path) -> None:
    used = {**dict.fromkeys(THREADS, 0.25), REST: 0.5, PYTHON: 0.0}
    whose = {**dict.fromkeys(OWNERS, 0.2), "Java": 0.2}
    write(tmp_path, [Profile(Input(200, 1), NOOP, source, used, whose) for source in SOURCES])
    report = (tmp_path / "report-throughput-profile.md").read_text()
    assert {MUSTER, TUNED} == set(SOURCES)
    for name in ("Spark's source, tuned", "Muster"):
        start = f"| 200 B, 1 partition, lz4 | noop | {name} |"
        assert f"{start} 0.25 | 0.25 | 0.25 | 0.25 | 0.50 | 0.00 | **1.50** |" in report
        assert f"{start} 20% | 20% | 20% | 20% | 20% |" in report
