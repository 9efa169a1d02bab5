"""What the incident measures and counts, without its servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from devstack.demo.story import TOPIC
from devstack.incident import report
from devstack.incident.__main__ import settings
from devstack.incident.account import Account, Place, account
from devstack.incident.command_line import typed
from devstack.incident.gaps import Gaps
from devstack.incident.handlers.flights import HANG, HANGS, Flights
from devstack.incident.kept_counts import COUNTED, wrong_counts
from devstack.incident.report import Timeline, Verdict
from devstack.leftovers import MARKER, kill_consumer, processes_of
from devstack.stack import Stack
from muster.core.state_topics import StateTopics
from muster.settings.clusters import load_clusters
from muster.settings.consumer import VARIABLE as CONSUMER
from tests.conftest import Eventually

# Stands for a consumer job: a process of its session has a process group of its own, as Python workers have.
JOB = """
import subprocess, sys
worker = subprocess.Popen(["sleep", "600"], process_group=0)
print("ready", flush=True)
worker.wait()
"""


def places(*offsets: int) -> list[Place]:
    return [("t", 0, offset) for offset in offsets]


def test_records_that_stand_once_in_both_tables_have_arrived() -> None:
    rows = Counter(places(0, 1, 2))
    assert account(places(0, 1, 2), {}, {"a": rows, "b": rows}) == Account(3, 3, 0)


def test_record_that_lacks_in_one_table_is_missing() -> None:
    found = account(places(0, 1), {}, {"a": Counter(places(0, 1)), "b": Counter(places(1))})
    assert (found.arrived, found.missing, found.duplicates) == (1, 1, 0)


def test_rows_beyond_the_first_of_a_record_are_duplicates_in_each_table() -> None:
    twice = Counter(places(0, 0, 1))
    assert account(places(0, 1), {}, {"a": twice, "b": twice}).duplicates == 2


def test_row_of_a_record_that_was_not_produced_is_a_duplicate() -> None:
    assert account(places(0), {}, {"a": Counter(places(0, 7))}).duplicates == 1


def test_replayed_record_counts_as_the_one_that_was_dead_lettered() -> None:
    back = dict(zip(places(9), places(1), strict=True))
    found = account(places(0, 1), back, {"a": Counter(places(0, 9))})
    assert (found.produced, found.arrived, found.duplicates) == (2, 2, 0)
    assert account(places(0, 1), back, {"a": Counter(places(0, 1, 9))}).duplicates == 1


def test_longest_gap_is_between_moves_of_one_partition() -> None:
    gaps = Gaps()
    for now, positions in [(0.0, {0: 5, 1: 5}), (1.0, {0: 6}), (1.5, {0: 6, 1: 8}), (2.0, {0: 9})]:
        gaps.see(positions, now)
    assert gaps.longest == 1.5
    assert gaps.moved([0], 2)
    assert not gaps.moved([0, 1], 2)


def test_gap_that_goes_on_counts_as_far_as_it_has_come() -> None:
    gaps = Gaps()
    gaps.see({0: 5}, 0.0)
    gaps.see({0: 5}, 4.0)
    assert gaps.longest == 4.0
    assert not gaps.moved([0], 1)


def verdict(found: Account, letters: int = 1, replayed: int = 1) -> Verdict:
    return Verdict(found, 1, letters, replayed, 0.8124, Timeline())


def test_last_line_has_what_was_measured() -> None:
    assert verdict(Account(500, 499, 2)).last_line == (
        "incident: produced=500 arrived=499 dead_lettered=1 replayed=1 missing=1 duplicates=2 others_paused_ms=812 "
        "good_judged=0 state_counts_wrong=0"
    )


@pytest.mark.parametrize(
    ("found", "letters", "replayed", "good"),
    [
        (Account(5, 5, 0), 1, 1, True),
        (Account(5, 4, 0), 1, 1, False),
        (Account(5, 5, 1), 1, 1, False),
        (Account(5, 5, 0), 0, 0, False),
        (Account(5, 5, 0), 2, 1, False),
    ],
)
def test_verdict_is_good_if_all_of_it_happened_and_each_record_stands_once(
    found: Account, letters: int, replayed: int, good: bool
) -> None:
    made = verdict(found, letters, replayed)
    assert made.good is good
    assert not replace(made, good_judged=1).good
    assert not replace(made, state_counts_wrong=1).good


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ([("AA", 2), ("UA", 1), ("AA", 3)], 0),
        ([("AA", 2), ("UA", 1)], 1),
        ([("AA", 3)], 1),
        ([("AA", 2), ("AA", 3), ("AA", 3), ("UA", 1)], 1),
        ([("AA", 3), ("AA", 2), ("AA", 3), ("UA", 1)], 1),
        ([("AA", 3), ("UA", 1), ("B6", 1)], 1),
        ([], 2),
    ],
)
def test_count_is_wrong_unless_newest_and_written_once(written: list[tuple[str, int]], wrong: int) -> None:
    assert wrong_counts({"AA": 3, "UA": 1}, written) == wrong


def test_timeline_notes_the_result_of_a_step_and_nothing_of_one_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report.time, "time", lambda: 1_700_000_000.0)
    timeline = Timeline()
    with timeline.step("Sink away") as progress:
        progress.result = "both consumers try again"
    with pytest.raises(RuntimeError), timeline.step("Sink back"):
        raise RuntimeError
    timeline.add("[it] ends")
    assert [what for _, what in timeline.events] == ["Sink away: both consumers try again", "[it] ends"]
    assert timeline.table().row_count == 2


def test_settings_of_the_incident_are_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(settings(tmp_path))
    cluster = load_clusters(file)["incident"]
    assert cluster.consumer_ids() == ("incident-1", "incident-2")
    assert cluster.consumers.handlers.keys() == {COUNTED}
    state = StateTopics(cluster.consumers.state)
    assert [topic for topic in (TOPIC, COUNTED) if state.has(topic)] == [COUNTED]
    assert yaml.safe_load(settings(tmp_path)) == json.loads(settings(tmp_path))


def test_killed_consumer_takes_its_processes_and_no_others(tmp_path: Path, eventually: Eventually) -> None:
    def job() -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARKER: str(tmp_path), CONSUMER: "{}"}
        made = subprocess.Popen(
            [sys.executable, "-c", JOB], env=environment, stdout=subprocess.PIPE, start_new_session=True
        )
        assert made.stdout is not None and made.stdout.readline() == b"ready\n"
        return made

    def sessions() -> list[int]:
        return [os.getsid(process.pid) for process in processes_of(tmp_path)]

    one, other = job(), job()
    with one, other:
        assert sorted(sessions()) == sorted([one.pid, other.pid] * 2)
        kill_consumer(tmp_path, one.pid)
        one.wait(10)
        eventually(lambda: sessions() == [other.pid] * 2, 10, "the worker is killed, too")
        kill_consumer(tmp_path, other.pid)


def test_command_is_shown_as_it_is_typed() -> None:
    assert typed("seek", "--reason", "a wrong deploy") == "muster seek --reason 'a wrong deploy'"


def test_handler_of_the_incident_hangs_only_where_it_is_asked_to(tmp_path: Path) -> None:
    handler = Flights(str(tmp_path), str(tmp_path / "delta"), "host=nowhere")
    handler._hang_if_asked()
    assert not (tmp_path / HANGS).exists()
    assert not (tmp_path / HANG).exists()


def test_stack_that_was_made_with_a_database_keeps_it(tmp_path: Path) -> None:
    assert Stack(tmp_path).database is None
    made = Stack(tmp_path, database=True)
    assert made.servers()["database"] is made.database
    assert made.environment()["MUSTER_DATABASE"].startswith("postgresql://")
    assert Stack(tmp_path).database is not None
