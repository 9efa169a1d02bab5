"""Each DAG with `dag.test()`, against real servers."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from muster.core.history import CommandEntry, Transitions
from muster.core.model import TopicAssignment, TopicSnapshot
from muster.core.rebalances import Rebalance, events
from muster.edges.consul import ConsulCluster
from muster.edges.kafka import GroupOffsets
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.dags.conftest import WriteClusters
from tests.dags.dag_runner import DagRunner, Run
from tests.support.foreign_consumers import ForeignConsumers
from tests.support.kafka_topics import produce
from tests.support.only_long import only_long

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def runner(airflow_environment: dict[str, str]) -> Iterator[DagRunner]:
    runner = DagRunner(os.environ | airflow_environment)
    yield runner
    runner.close()


@dataclass
class Site:
    """A cluster of its own on the servers that all share, and the runs of its DAGs."""

    name: str
    folder: Path
    zookeeper: ZooKeeperSettings
    discovery: ConsulCluster
    kafka: KafkaSettings
    foreign: ForeignConsumers
    write_clusters: WriteClusters
    run: Callable[..., Run]

    @cached_property
    def topic(self) -> str:
        """A topic of four partitions in Kafka."""
        name = f"t-{self.name}"
        admin = AdminClient(dict(self.kafka.config))  # its futures need it alive
        admin.create_topics([NewTopic(name, 4, 1)])[name].result(20)
        return name

    @property
    def log(self) -> Path:
        """What the last run printed, growing while it runs."""
        return self.folder / "run.log"

    def write(self, *more_topics: str, **settings: Any) -> Path:
        """Write `clusters.yaml`: a cluster without consumers of Airflow's, with the topic and `more_topics`."""
        return self.write_clusters(self.name, count=0, topics=[self.topic, *more_topics], **settings)

    def coordinate(self) -> Run:
        return self.run(f"muster_coordinator__{self.name}")

    def command(self, name: str, **form: Any) -> Run:
        """Run the DAG of the cluster's commands with a form."""
        form = {"command": name, "reason": "release"} | form
        return self.run(f"muster_commands__{self.name}", form)

    def consumers(self) -> Run:
        return self.run(f"muster_consumers__{self.name}")

    def store(self) -> TopicStore:
        return TopicStore(self.zookeeper, self.name, read_only=True)

    def assignment(self) -> TopicAssignment:
        with self.store() as store:
            snapshot = store.snapshots()[self.topic]
        assert isinstance(snapshot, TopicSnapshot) and snapshot.assignment is not None
        return snapshot.assignment

    def owners(self) -> dict[int, str]:
        return dict(self.assignment().owners)

    def on_stuck(
        self, text: str = "{{ ti.task_id }}: {{ (exception | string).splitlines()[0] }}"
    ) -> list[Any]:
        """The setting that has `alerts` write to a file."""
        options = {"path": str(self.folder / "notified"), "text": text}
        return [{"notifier": "tests.dags.file_notifier.FileNotifier", "options": options}]

    def alerts(self) -> list[str]:
        """What the notifier was called with, in alphabetical order."""
        path = self.folder / "notified"
        return sorted(path.read_text().splitlines()) if path.exists() else []


@pytest.fixture
def site(
    cluster_name: str,
    tmp_path: Path,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    discovery: ConsulCluster,
    write_clusters: WriteClusters,
    connections: None,
    airflow_environment: dict[str, str],
    runner: DagRunner,
    eventually: Eventually,
) -> Iterator[Site]:
    def run(dag_id: str, conf: dict[str, Any] | None = None) -> Run:
        return runner.run(dag_id, os.environ | airflow_environment, made.log, conf)

    foreign = ForeignConsumers(cluster_name, f"{cluster_name}-group", zookeeper, consul, kafka, eventually)
    made = Site(cluster_name, tmp_path, zookeeper, discovery, kafka, foreign, write_clusters, run)
    yield made
    foreign.close()


ALL_ONE = dict.fromkeys(range(4), "one")


def test_a_rebalance_is_written_and_audited_and_a_quiet_run_skips(site: Site):
    site.write()
    site.foreign.start("one")
    first = site.coordinate()
    assert first.tasks == dict.fromkeys(
        ("fetch_partitions", "fetch_consumers", "compute_assignment", "advance_state"), "success"
    )
    assert first.state == "success"
    [(uri, event)] = first.events
    assert uri == f"muster://{site.name}/rebalances"
    assert event["moved"] == 4
    assert event["changes"][0]["topic"] == site.topic
    assert event["changes"][0]["before"] == "Initial"
    assert event["changes"][-1]["after"] == "Stable"
    assert event["summary"] in first.log
    assert first.note == event["summary"]
    assert event["run"].startswith(f"muster_coordinator__{site.name} ")
    assert event["seconds"] > 0
    with site.store() as store:
        [rebalance] = events(store.history().records, time.time())
    assert isinstance(rebalance, Rebalance)
    assert (rebalance.by, rebalance.moved) == ((event["run"],), 4)
    assert rebalance.ended is not None
    assert first.xcoms["advance_state.return_value"] == event
    assert site.owners() == ALL_ONE

    quiet = site.coordinate()
    assert quiet.tasks["compute_assignment"] == "success"
    assert quiet.tasks["advance_state"] == "skipped"
    assert quiet.state == "success"
    assert not quiet.events
    assert quiet.note is None

    site.foreign.start("two")
    joined = site.coordinate()
    [(_, event)] = joined.events
    assert event["moved"] == 2
    assert sorted(site.owners().values()) == ["one", "one", "two", "two"]


def test_status_quo_is_kept_visibly_without_consumers(site: Site):
    site.write()
    run = site.coordinate()
    assert run.tasks["compute_assignment"] == "skipped"
    assert run.tasks["advance_state"] == "skipped"
    assert "status quo kept: no consumer is live" in run.log
    assert run.state == "success"


def test_kafka_out_of_reach_fails_its_task_and_the_run_but_not_the_rebalance(site: Site, monkeypatch):
    site.write()
    site.foreign.start("one")
    site.coordinate()
    site.foreign.start("two")
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 3}
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_KAFKA", json.dumps({"conn_type": "kafka", "extra": nowhere}))
    rebalance = site.coordinate()
    assert rebalance.tasks["fetch_partitions"] == "failed"
    assert rebalance.tasks["advance_state"] == "success"
    assert "two" in site.owners().values()
    [(_, event)] = rebalance.events
    assert "127.0.0.1:9" in event["trouble"][0]
    after = site.coordinate()
    assert after.tasks["compute_assignment"] == "failed"
    assert after.state == "failed"
    assert "the last known partitions stand" in after.log


def test_a_missing_topic_fails_the_run_after_the_others_were_served(site: Site):
    site.write("not-there")
    site.foreign.start("one")
    site.coordinate()
    assert len(site.owners()) == 4
    run = site.coordinate()
    assert run.state == "failed"
    assert "topic not-there is not in Kafka" in run.log


def test_changed_group_fails_the_run_until_the_settings_are_put_back(site: Site):
    settings: dict[str, Any] = {"on_stuck": site.on_stuck()}
    site.write(**settings)
    site.foreign.start("one")
    assert site.coordinate().state == "success"
    before = site.assignment()
    site.write(group_id="another", **settings)
    site.foreign.start("two")
    changed = site.coordinate()
    assert changed.tasks["fetch_partitions"] == "failed"
    assert changed.tasks["advance_state"] == "success", "the cluster's consumers are balanced as before"
    assert sorted(site.owners().values()) == ["one", "one", "two", "two"]
    [alert] = site.alerts()
    for said in (alert, changed.log):
        assert f"topic {site.topic} is read at " in said
        assert f"for group '{before.group_id}', but the settings of cluster {site.name} say " in said
        assert "and group 'another'" in said
    assert site.coordinate().state == "failed"
    assert site.assignment().group_id == before.group_id
    site.write(**settings)
    assert site.coordinate().state == "success"


def test_zookeeper_out_of_reach_fails_the_run(site: Site, monkeypatch):
    site.write()
    nowhere = {"conn_type": "generic", "host": "127.0.0.1:9", "extra": {"operation_timeout": 2}}
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_ZOOKEEPER", json.dumps(nowhere))
    run = site.coordinate()
    assert run.state == "failed"
    assert run.tasks["fetch_partitions"] == "failed"
    assert run.tasks["fetch_consumers"] == "success", "it needs Consul alone"
    assert run.tasks["compute_assignment"] == "failed"
    assert run.tasks["advance_state"] == "upstream_failed"
    assert "127.0.0.1:9" in run.log


def test_a_stuck_topic_fails_the_run_and_says_whom_to_isolate(site: Site):
    site.write()
    process = site.foreign.start("one")
    site.coordinate()
    site.write(stuck_after="1s", advance_budget="1s", on_stuck=site.on_stuck("{{ ti.task_id }}"))
    site.foreign.start("two")
    site.foreign.unchecked("one")
    process.send_signal(signal.SIGSTOP)
    try:
        site.coordinate()
        time.sleep(1)
        run = site.coordinate()
        again = site.coordinate()
    finally:
        process.send_signal(signal.SIGCONT)
    assert run.tasks["advance_state"] == "failed"
    assert run.state == "failed"
    message = run.note or ""
    for part in (
        f"topic {site.topic} is ",
        "longer than stuck_after (1 s)",
        "consumer one does not",
        "isolate it",
    ):
        assert part in message
    assert message in run.log.replace("\\n", "\n")
    [(uri, event)] = run.events
    assert uri == f"muster://{site.name}/stuck"
    assert event["stuck"][0].startswith(f"topic {site.topic} is ")
    # Alerted once: the second failure in a row is no news.
    assert again.tasks["advance_state"] == "failed"
    assert site.alerts() == ["advance_state"]


def test_an_owner_without_progress_fails_the_run_of_a_stable_topic_and_a_person_is_asked(site: Site):
    site.write()
    process = site.foreign.start("one")
    site.coordinate()
    held = {
        "running": [0, 1, 2, 3],
        "starting": [],
        "closing": [],
        "epoch": site.assignment().epoch,
    }
    says = {
        "consumer": "one",
        "incarnation": "1",
        "topics": {site.topic: held},
        "errors": ["query: it hangs"],
    }
    site.write(stuck_after="1s", on_stuck=site.on_stuck())
    process.kill()
    process.wait()
    produce(site.kafka, site.topic, 2, 1)
    with answering(says) as port:
        site.foreign.unchecked("one", port)
        assert site.coordinate().tasks["advance_state"] == "skipped", "it has not stood still for long"
        time.sleep(1.1)  # that is what stuck_after says
        run = site.coordinate()
    assert (run.tasks["compute_assignment"], run.tasks["advance_state"]) == ("success", "failed")
    [(uri, event)] = run.events
    assert uri == f"muster://{site.name}/stuck"
    assert site.alerts()
    for said in (run.note or "", event["stuck"][0], *site.alerts()):
        assert f"topic {site.topic} makes no progress in partition(s) 2 since 20" in said
        assert "for longer than stuck_after (1 s)" in said
        assert "consumer one does not make progress on partition 2" in said
    assert "it hangs" in (run.note or "")


def test_parked_partition_fails_the_run_at_once_and_a_person_is_asked(site: Site):
    site.write()
    process = site.foreign.start("one")
    site.coordinate()
    record = {"offset": 17, "attempts": 8, "error": "ValueError: no date", "parked": True}
    held = {"running": [0, 1, 2, 3], "epoch": site.assignment().epoch, "failing": {"2": record}}
    site.write(stuck_after="5m", on_stuck=site.on_stuck())
    process.kill()
    process.wait()
    with answering({"consumer": "one", "incarnation": "1", "topics": {site.topic: held}}) as port:
        site.foreign.unchecked("one", port)
        run = site.coordinate()
    assert run.tasks["advance_state"] == "failed"
    [(uri, event)] = run.events
    assert uri == f"muster://{site.name}/stuck"
    for said in (run.note or "", event["stuck"][0], *site.alerts()):
        assert "consumer one does not get past offset 17 of partition 2" in said
        assert "the record failed 8 times alone: ValueError: no date" in said
        assert "isolate" not in said


@contextmanager
def answering(said: object) -> Iterator[int]:
    """The port of a status page that says this."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        try:
            yield page.server_port
        finally:
            page.shutdown()


def test_planning_error_fails_the_run_and_calls_on_stuck_once(site: Site):
    settings: dict[str, Any] = {"on_stuck": site.on_stuck()}
    site.write(**settings)
    site.foreign.start("one")
    assert site.coordinate().state == "success"
    # A topic that is not there fails `compute_assignment` as well, which repeats it and notifies nobody.
    site.write("not-there", **settings)
    missing = site.coordinate()
    assert (missing.tasks["fetch_partitions"], missing.tasks["compute_assignment"]) == ("failed", "failed")
    [first] = site.alerts()
    assert first.startswith("fetch_partitions: ")
    site.write("not-there", assignor="no.such.Assignor", **settings)
    run = site.coordinate()
    assert (run.state, run.tasks["compute_assignment"]) == ("failed", "failed")
    planning, same = site.alerts()
    assert planning.startswith("compute_assignment: "), "news, although this task failed in the run before"
    assert "no.such.Assignor" in planning
    assert same == first
    assert site.coordinate().state == "failed"
    assert site.alerts() == [planning, first]
    assert site.owners() == ALL_ONE


def test_permanent_settings_error_in_any_task_of_the_coordinator_reaches_on_stuck_once(site: Site):
    site.write_clusters(site.name, count=0, consul="no_such_connection", on_stuck=site.on_stuck())
    assert site.coordinate().state == "failed"
    first = site.alerts()
    assert [line.partition(":")[0] for line in first] == [
        "compute_assignment",
        "fetch_consumers",
        "fetch_partitions",
    ]
    assert all("no Airflow connection 'no_such_connection'; create it" in line for line in first)
    assert site.coordinate().state == "failed"
    assert site.alerts() == first


def test_isolate_and_restore(site: Site):
    site.write_clusters(site.name, count=2)
    consumer = f"{site.name}-2"
    isolate = site.command("isolate", consumer=consumer, reason="swaps all day")
    assert isolate.state == "success"
    entry = site.discovery.overrides.isolated()[consumer]
    assert (entry.by, entry.why) == ("dag_test", "swaps all day")
    assert (
        isolate.note == f"consumer {consumer} of cluster {site.name} is isolated: swaps all day (by dag_test)"
    )
    [(uri, event)] = isolate.events
    assert uri == f"muster://{site.name}/levers"
    expected = {"lever": "isolate", "who": "dag_test", "reason": "swaps all day", "consumer": consumer}
    assert event | expected == event

    restore = site.command("restore", consumer=consumer, reason="has more memory")
    assert restore.state == "success"
    assert not site.discovery.overrides.isolated()

    again = site.command("restore", consumer=consumer)
    assert again.state == "failed"
    assert f"consumer '{consumer}' of cluster '{site.name}' is not isolated" in again.log


def test_isolation_of_what_is_not_there_is_refused(site: Site):
    site.write_clusters(site.name, count=1)
    site.foreign.start("one")
    site.foreign.start("two")
    form = {"command": "isolate", "consumer": "absent", "reason": "typo"}
    refused = site.run(f"muster_isolate__{site.name}", form)
    assert refused.state == "failed"
    assert refused.note.startswith(
        f"failed: cluster '{site.name}' has no consumer 'absent'; live are: one, two; "
    )
    assert f"configured are: {site.name}-1" in refused.note
    assert not site.discovery.overrides.isolated()


@pytest.fixture
def known_topic(site: Site) -> str:
    """A topic that the coordinator has found already."""
    with TopicStore(site.zookeeper, site.name) as store:
        store.create_topic("flights", "k:9092", "g")
        store.set_partitions("flights", frozenset(range(8)))
    return "flights"


def test_pin_and_unpin(site: Site, known_topic: str):
    site.write_clusters(site.name, count=2)
    consumer = f"{site.name}-2"
    pin = site.command(
        "pin", topic=known_topic, partitions="0-2, 7", consumer=consumer, reason="has the cache"
    )
    assert pin.state == "success"
    assert site.discovery.overrides.read().pinned() == {known_topic: dict.fromkeys((0, 1, 2, 7), consumer)}
    entry = site.discovery.overrides.read().pins[known_topic, 7]
    assert (entry.by, entry.why) == ("dag_test", "has the cache")
    assert pin.xcoms["carry_out.return_value"]["partitions"] == "0-2,7"
    assert f"partition(s) 0-2,7 of topic {known_topic} are pinned to consumer {consumer}" in pin.log

    unpin = site.command("unpin", topic=known_topic, partitions="0-2")
    assert unpin.state == "success"
    assert unpin.xcoms["carry_out.return_value"]["partitions"] == "0-2"
    assert [event["lever"] for _, event in unpin.events] == ["unpin"]
    assert site.discovery.overrides.read().pinned() == {known_topic: {7: consumer}}


def test_exclude_and_include(site: Site, known_topic: str):
    site.write_clusters(site.name, count=1)
    consumer = f"{site.name}-1"
    exclude = site.command("exclude", topic=known_topic, consumer=consumer, reason="no GPU")
    assert exclude.state == "success"
    entry = site.discovery.overrides.read().exclusions[consumer, known_topic]
    assert (entry.by, entry.why) == ("dag_test", "no GPU")
    assert exclude.xcoms["carry_out.return_value"]["consumer"] == consumer

    include = site.command("include", topic=known_topic, consumer=consumer, reason="has one now")
    assert include.state == "success"
    assert not site.discovery.overrides.read().exclusions
    assert f"consumer {consumer} of cluster {site.name} takes topic {known_topic} again" in include.log


def test_a_pin_of_what_is_not_there_is_refused(site: Site, known_topic: str):
    site.write_clusters(site.name, count=1)
    refused = site.command("pin", topic=known_topic, partitions="7-8", consumer=f"{site.name}-1")
    assert refused.state == "failed"
    assert "topic 'flights' has no partition(s) 8; it has 0-7" in refused.log
    assert not site.discovery.overrides.read().pins


@only_long
def test_a_cluster_is_paused_and_its_topics_and_assignor_changed_by_forms(site: Site):
    topic = site.topic
    site.write()
    site.foreign.start("one")
    assert site.coordinate().state == "success"

    assert site.command("unsubscribe", topic=topic).state == "success"
    assert site.command("pause").state == "success"
    held = site.coordinate()
    assert (held.tasks["fetch_partitions"], held.tasks["compute_assignment"]) == ("skipped", "skipped")
    assert "status quo kept: paused by dag_test since " in held.log
    assert site.command("rebalance").state == "failed", "it is paused"
    assert site.command("resume").state == "success"

    closed = site.coordinate()
    [(_, event)] = closed.events
    assert [change["after"] for change in event["changes"]][-1] == "Initial"
    assert event["reasons"] == ["unsubscribed by dag_test: release"]
    with site.store() as store:
        assert store.topics() == []
        levers = [record.entry for record in reversed(store.history().records)]
    given = [(e.what, e.who, e.via.split()[0]) for e in levers if isinstance(e, CommandEntry)]
    dag = f"muster_commands__{site.name}"
    assert given == [(name, "dag_test", dag) for name in ("unsubscribe", "pause", "resume")]

    assert site.command("subscribe", topic=f"{topic[:-1]}.", pattern=True).state == "success"
    assert site.command("subscribe", topic=topic).state == "success"
    assert site.command("assignor", assignor="range", options={}).state == "success"
    again = site.coordinate()
    assert "planned with assignor range by dag_test since " in again.log
    assert site.owners() == ALL_ONE
    assert site.command("assignor", assignor="sticky", options={"no": 1}).state == "failed"
    assert site.command("assignor", assignor="(as in the settings)", options={}).state == "success"
    assert site.discovery.overrides.read().assignor is None
    assert site.command("rebalance").state == "success"
    asked = site.coordinate()
    assert asked.tasks["advance_state"] == "skipped"
    assert "rebalance asked for by dag_test: release; there is nothing to move" in asked.log


def test_offsets_of_another_group_are_previewed_and_imported_by_the_form(site: Site, kafka: KafkaSettings):
    site.write()
    places = [(site.topic, partition) for partition in range(4)]
    for topic, partition in places:
        produce(kafka, topic, partition, 10)
    before, own = GroupOffsets(kafka, f"{site.name}-before"), GroupOffsets(kafka, f"{site.name}-group")
    try:
        before.commit(dict.fromkeys(places, 4))
        preview = site.command("import-offsets", group=before.group_id, preview=True)
        assert preview.state == "success"
        assert preview.note.startswith(
            "preview, nothing was changed: together 0 record(s) come again, 0 are left out, 0 are lost, 24 are to be "
            "read"
        )
        assert len(preview.xcoms["carry_out.return_value"]["preview"]) == len(places) + 2
        assert own.committed(places) == dict.fromkeys(places)

        done = site.command("import-offsets", group=before.group_id)
        assert done.state == "success"
        assert own.committed(places) == dict.fromkeys(places, 4)
        offsets = {site.topic: {"0": 4, "1": 4, "2": 4, "3": 4}}
        assert done.xcoms["carry_out.return_value"]["offsets"] == offsets
        assert [event["lever"] for _, event in done.events] == ["import-offsets"]
        with site.store() as store:
            [entry] = [record.entry for record in store.history().records]
        assert isinstance(entry, CommandEntry)
        assert (entry.what, entry.who) == ("import-offsets", "dag_test")

        refused = site.command("import-offsets", checkpoint=str(site.folder))
        assert refused.state == "failed"
        assert "is not in a folder that 'allowed_imports.checkpoints' of cluster" in refused.log
    finally:
        before.close()
        own.close()


def test_pins_that_cannot_be_obeyed_and_unreadable_keys_are_named_in_the_run(
    site: Site, consul: ConsulSettings
):
    site.write()
    site.foreign.start("one")
    site.discovery.overrides.pin(site.topic, 2, "gone", by="ann", why="has the cache", at=1.0)
    key = f"muster/{site.name}/excluded/one/{site.topic}"
    url = f"http://{consul.host}:{consul.port}/v1/kv/{key}"
    httpx.put(url, content="rubbish").raise_for_status()
    run = site.coordinate()
    assert run.state == "success"
    assert run.tasks["advance_state"] == "success"
    unreadable, impossible = run.xcoms["compute_assignment.report"]["warnings"]
    assert unreadable.startswith(f"Consul key {key}: holds b'rubbish'")
    assert "the pin to consumer 'gone' cannot be obeyed: the consumer is not live" in impossible
    assert run.log.count(unreadable) >= 2
    assert "cannot be obeyed" in run.log


def test_coordinator_without_a_slot_to_wait_in_defers_and_is_woken_by_a_change(
    site: Site, eventually: Eventually, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "1")
    site.write(long_poll_timeout="60s")
    site.foreign.start("one")
    assert site.coordinate().tasks["advance_state"] == "success"
    site.log.unlink()
    with in_background(site.coordinate) as running:
        eventually(
            lambda: site.log.exists() and "waiting in the triggerer, at most" in site.log.read_text(), 60
        )
        began = time.monotonic()
        site.foreign.start("two")
        [run] = running(60)
    assert time.monotonic() - began < 40, "not at the end of the long poll"
    assert "Consul has news" in run.log
    assert run.tasks["compute_assignment"] == "success"
    if run.tasks["advance_state"] == "skipped":  # what woke it was over again; the next run has the newcomer
        run = site.coordinate()
    assert run.tasks["advance_state"] == "success"
    [(_, rebalance)] = run.events
    assert rebalance["reasons"] == ["consumer two joined"]


@contextmanager
def in_background(run: Callable[[], Run]) -> Iterator[Callable[[float], list[Run]]]:
    """Run a DAG inside; what is yielded waits for its end, for so many seconds, and returns the run."""
    runs: list[Run] = []
    running = threading.Thread(target=lambda: runs.append(run()))

    def end(timeout: float) -> list[Run]:
        running.join(timeout)
        return runs

    running.start()
    yield end


def test_the_history_prunes_itself_when_its_hundredth_entry_is_written(site: Site):
    path = site.write()
    path.write_text(f"{path.read_text()}retention: {{history_entries: 50}}\n")
    site.foreign.start("one")
    with TopicStore(site.zookeeper, site.name) as store:
        while store.append_history(CommandEntry(1.0, "ann", "pin", "r")) < 99:
            pass
        run = site.coordinate()
        assert run.tasks["advance_state"] == "success"
        entries = [record.entry for record in store.history(limit=1000).records]
    assert len(entries) == 50
    assert isinstance(entries[0], Transitions), "the newest stay"
    assert "old entries of the history" in run.log


@only_long
@pytest.mark.spark
def test_handler_that_cannot_be_imported_fails_for_good_and_calls_on_stuck(site: Site, monkeypatch):
    monkeypatch.delenv("MUSTER_APPLICATION")
    notifier = site.on_stuck("{{ ti.task_id }} {{ ti.try_number }}: {{ exception }}")
    site.write_clusters(site.name, consumers={"handler": "none.such"}, on_stuck=notifier)
    assert site.consumers().tasks == {f"consumer[{site.name}-1]": "failed"}
    notified = (site.folder / "notified").read_text()
    assert notified.startswith(f"consumer 1: consumer {site.name}-1 cannot start: ")
    assert "handler 'none.such': module 'none' cannot be imported" in notified


@only_long
@pytest.mark.spark
def test_the_consumers_dag_runs_the_real_job_and_ends_when_a_person_stops_the_consumer(
    site: Site, eventually: Eventually, monkeypatch
):
    monkeypatch.delenv("MUSTER_APPLICATION")
    handler = {
        "handler": "muster.handlers.parquet.ParquetHandler",
        "handler_options": {"path": str(site.folder / "out")},
        "startup_timeout": "2m",
    }
    site.write_clusters(site.name, count=1, consumers=handler)
    consumer = f"{site.name}-1"
    with in_background(site.consumers) as running:
        try:
            watching = f"watching consumer {consumer}"
            eventually(lambda: site.log.exists() and watching in site.log.read_text(), 150)
            registration = site.discovery.catalog.members().registered[consumer]
        finally:
            if submitted := site.discovery.jobs.submission(consumer):
                site.discovery.jobs.request_stop(
                    consumer, submitted["incarnation"], "anna", "the test is over"
                )
            [run] = running(120)
    assert registration.incarnation == submitted["incarnation"]
    assert run.tasks == {f"consumer[{consumer}]": "skipped"}
    assert "was stopped by anna: the test is over" in run.log
    assert not site.discovery.catalog.members().registered
