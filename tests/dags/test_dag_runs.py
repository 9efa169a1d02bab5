"""Each DAG with `dag.test()`, against real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from muster.core.history import CommandEntry, Transitions
from muster.core.model import TopicSnapshot
from muster.core.rebalances import Rebalance, events
from muster.edges.consul import ConsulCluster
from muster.edges.zookeeper import TopicStore
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from tests.conftest import Eventually
from tests.dags.conftest import WriteClusters
from tests.dags.dag_runner import DagRunner
from tests.dags.runs import ROOT, Run

pytestmark = pytest.mark.airflow

FOREIGN = ROOT / "tests" / "integration" / "plain_foreign_consumer.py"


RunDag = Callable[..., Run]


@pytest.fixture
def run_log(tmp_path: Path) -> Path:
    """What the last run printed, growing while it runs."""
    return tmp_path / "run.log"


@pytest.fixture(scope="module")
def runner(airflow_environment: dict[str, str]) -> Iterator[DagRunner]:
    runner = DagRunner(os.environ | airflow_environment)
    yield runner
    runner.close()


@pytest.fixture
def run_dag(
    airflow_environment: dict[str, str], connections: None, runner: DagRunner, run_log: Path
) -> RunDag:
    def run(file: str, dag_id: str, conf: dict[str, Any] | None = None) -> Run:
        arguments = [str(ROOT / "dags" / file), dag_id, json.dumps(conf or {})]
        code = runner.run(arguments, os.environ | airflow_environment, run_log)
        return Run(code, run_log.read_text())

    return run


@pytest.fixture
def coordinate(run_dag: RunDag, cluster_name: str) -> Callable[[], Run]:
    return lambda: run_dag("muster_coordinator.py", f"muster_coordinator__{cluster_name}")


@pytest.fixture
def topic(kafka: KafkaSettings, cluster_name: str) -> str:
    name = f"t-{cluster_name}"
    admin = AdminClient(dict(kafka.config))
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(20)
    return name


@pytest.fixture
def discovery(consul: ConsulSettings, cluster_name: str) -> ConsulCluster:
    return ConsulCluster(consul, cluster_name, f"{cluster_name}-service")


@pytest.fixture
def start_consumer(
    cluster_name: str,
    zookeeper: ZooKeeperSettings,
    consul: ConsulSettings,
    kafka: KafkaSettings,
    discovery: ConsulCluster,
    eventually: Eventually,
) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start a consumer that knows the protocol and shares no code with Muster."""
    started: list[subprocess.Popen[bytes]] = []
    names: list[str] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                sys.executable,
                str(FOREIGN),
                name,
                cluster_name,
                f"{cluster_name}-service",
                zookeeper.hosts,
                f"http://{consul.host}:{consul.port}",
                kafka.bootstrap_servers,
                f"{cluster_name}-group",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        started.append(process)
        names.append(name)

        def live() -> bool:
            membership = discovery.catalog.members().membership
            return membership is not None and name in membership.live

        eventually(live, 20, f"{name} is live")
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    for name in names:
        discovery.catalog.deregister(
            name
        )  # else Consul goes on to check a port that another test's driver may get


def assigned(zookeeper: ZooKeeperSettings, cluster: str, topic: str) -> dict[str, str]:
    client = KazooClient(hosts=zookeeper.hosts)
    client.start()
    try:
        data, _ = client.get(f"/consumers/{cluster}/assignments/{topic}")
        owners: dict[str, str] = json.loads(data)["assignments"]
        return owners
    finally:
        client.stop()
        client.close()


def test_a_rebalance_is_written_and_audited_and_a_tick_skips(
    write_clusters: WriteClusters, coordinate, topic, cluster_name, start_consumer, zookeeper
):
    write_clusters(cluster_name, count=0, topics=[topic])
    start_consumer("one")
    first = coordinate()
    assert first.tasks == dict.fromkeys(
        ("fetch_partitions", "fetch_consumers", "compute_assignment", "advance_state"), "success"
    )
    assert first.state == "success"
    [(uri, event)] = first.events
    assert uri == f"muster://{cluster_name}/rebalances"
    assert event["moved"] == 4
    assert event["changes"][0]["topic"] == topic
    assert event["changes"][0]["before"] == "Initial"
    assert event["changes"][-1]["after"] == "Stable"
    assert event["summary"] in first.log
    assert first.note == event["summary"]
    assert event["run"].startswith(f"muster_coordinator__{cluster_name} ")
    assert event["seconds"] > 0
    with TopicStore(zookeeper, cluster_name, read_only=True) as store:
        [rebalance] = events(store.history().records, time.time())
    assert isinstance(rebalance, Rebalance)
    assert (rebalance.by, rebalance.moved) == ((event["run"],), 4)
    assert rebalance.ended is not None
    assert first.xcoms["advance_state.return_value"] == event
    assert assigned(zookeeper, cluster_name, topic) == dict.fromkeys("0123", "one")

    tick = coordinate()
    assert tick.tasks["compute_assignment"] == "success"
    assert tick.tasks["advance_state"] == "skipped"
    assert tick.state == "success"
    assert not tick.events
    assert tick.note is None

    start_consumer("two")
    joined = coordinate()
    [(_, event)] = joined.events
    assert event["moved"] == 2
    assert sorted(assigned(zookeeper, cluster_name, topic).values()) == ["one", "one", "two", "two"]


def test_status_quo_is_kept_visibly_without_consumers(
    write_clusters: WriteClusters, coordinate, topic, cluster_name
):
    write_clusters(cluster_name, count=0, topics=[topic])
    run = coordinate()
    assert run.tasks["compute_assignment"] == "skipped"
    assert run.tasks["advance_state"] == "skipped"
    assert "status quo kept: no consumer is live" in run.log
    assert run.state == "success"


def test_kafka_out_of_reach_fails_its_task_and_the_run_but_not_the_rebalance(
    write_clusters: WriteClusters, coordinate, topic, cluster_name, start_consumer, zookeeper, monkeypatch
):
    write_clusters(cluster_name, count=0, topics=[topic])
    start_consumer("one")
    coordinate()
    start_consumer("two")
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 3}
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_KAFKA", json.dumps({"conn_type": "kafka", "extra": nowhere}))
    rebalance = coordinate()
    assert rebalance.tasks["fetch_partitions"] == "failed"
    assert rebalance.tasks["advance_state"] == "success"
    assert "two" in assigned(zookeeper, cluster_name, topic).values()
    [(_, event)] = rebalance.events
    assert "127.0.0.1:9" in event["trouble"][0]
    after = coordinate()
    assert after.tasks["compute_assignment"] == "failed"
    assert after.state == "failed"
    assert "the last known partitions stand" in after.log


def test_a_missing_topic_fails_the_run_after_the_others_were_served(
    write_clusters: WriteClusters, coordinate, topic, cluster_name, start_consumer, zookeeper
):
    write_clusters(cluster_name, count=0, topics=[topic, "not-there"])
    start_consumer("one")
    coordinate()
    assert len(assigned(zookeeper, cluster_name, topic)) == 4
    run = coordinate()
    assert run.state == "failed"
    assert "topic not-there is not in Kafka" in run.log


def test_zookeeper_out_of_reach_fails_the_run(
    write_clusters: WriteClusters, coordinate, topic, cluster_name, monkeypatch
):
    write_clusters(cluster_name, count=0, topics=[topic])
    nowhere = {"conn_type": "generic", "host": "127.0.0.1:9", "extra": {"operation_timeout": 2}}
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_ZOOKEEPER", json.dumps(nowhere))
    run = coordinate()
    assert run.state == "failed"
    assert run.tasks["fetch_partitions"] == "failed"
    assert run.tasks["fetch_consumers"] == "success", "it needs Consul alone"
    assert run.tasks["compute_assignment"] == "failed"
    assert run.tasks["advance_state"] == "upstream_failed"
    assert "127.0.0.1:9" in run.log


def test_a_stuck_topic_fails_the_run_and_says_whom_to_isolate(
    write_clusters: WriteClusters,
    coordinate,
    topic,
    cluster_name,
    start_consumer,
    consul,
    tmp_path: Path,
):
    told = tmp_path / "told"
    write_clusters(cluster_name, count=0, topics=[topic])
    process = start_consumer("one")
    coordinate()
    notifier = {
        "notifier": "tests.dags.told.FileNotifier",
        "options": {"path": str(told), "text": "{{ ti.task_id }}"},
    }
    patient = {"stuck_after": "1s", "advance_budget": "1s", "on_stuck": [notifier]}
    write_clusters(cluster_name, count=0, topics=[topic], **patient)
    # Frozen, with nothing in Consul that says so. Its check goes first: one that asks a frozen consumer keeps Consul
    # from replacing it until its time is over.
    start_consumer("two")
    register_without_check(consul, cluster_name, 9)
    process.send_signal(signal.SIGSTOP)
    try:
        coordinate()
        time.sleep(1)
        run = coordinate()
        again = coordinate()
    finally:
        process.send_signal(signal.SIGCONT)
    assert run.tasks["advance_state"] == "failed"
    assert run.state == "failed"
    message = run.note or ""
    for part in (
        f"topic {topic} is ",
        "longer than stuck_after (1 s)",
        "consumer one does not",
        "muster_isolate",
    ):
        assert part in message
    assert message in run.log.replace("\\n", "\n")
    [(uri, event)] = run.events
    assert uri == f"muster://{cluster_name}/stuck"
    assert event["stuck"][0].startswith(f"topic {topic} is ")
    # Alerted once: the second failure in a row is no news.
    assert again.tasks["advance_state"] == "failed"
    assert told.read_text() == "advance_state\n"


def test_an_owner_without_progress_fails_the_run_of_a_stable_topic_and_a_person_is_asked(
    write_clusters: WriteClusters,
    coordinate,
    topic,
    cluster_name,
    start_consumer,
    consul,
    zookeeper,
    tmp_path: Path,
):
    write_clusters(cluster_name, count=0, topics=[topic])
    process = start_consumer("one")
    coordinate()
    with TopicStore(zookeeper, cluster_name, read_only=True) as store:
        snapshot = store.snapshots()[topic]
    assert isinstance(snapshot, TopicSnapshot) and snapshot.assignment is not None
    held = {
        "running": [0, 1, 2, 3],
        "starting": [],
        "closing": [],
        "epoch": snapshot.assignment.epoch,
        "offsets": {"2": {"lag": 7, "stalled": 400}},
    }
    says = {"consumer": "one", "incarnation": "1", "topics": {topic: held}, "errors": ["query: it hangs"]}
    told = tmp_path / "told"
    patient = {"stuck_after": "5m", "on_stuck": [telling(told)]}
    write_clusters(cluster_name, count=0, topics=[topic], **patient)
    # It ends first: a check that asks a frozen process keeps Consul from replacing it until its time is over.
    process.kill()
    process.wait()
    with answering(says) as port:
        register_without_check(consul, cluster_name, port)
        run = coordinate()
    assert (run.tasks["compute_assignment"], run.tasks["advance_state"]) == ("success", "failed")
    [(uri, event)] = run.events
    assert uri == f"muster://{cluster_name}/stuck"
    for said in (run.note or "", event["stuck"][0], *told_by(told)):
        assert f"topic {topic} makes no progress for longer than stuck_after (300 s)" in said
        assert "consumer one does not make progress on partition 2" in said
    assert "it hangs" in (run.note or "")


def register_without_check(consul: ConsulSettings, cluster: str, port: int) -> None:
    """Have Consul take consumer `one` for live, whatever becomes of its process, with its status page at `port`."""
    httpx.put(
        f"http://{consul.host}:{consul.port}/v1/agent/service/register?replace-existing-checks=true",
        json={"ID": "one", "Name": f"{cluster}-service", "Address": "127.0.0.1", "Port": port},
    ).raise_for_status()


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


def told_by(path: Path) -> list[str]:
    """What the notifier `telling(path)` was called with: task and message, in alphabetical order."""
    return sorted(path.read_text().splitlines()) if path.exists() else []


def telling(path: Path) -> dict[str, Any]:
    text = "{{ ti.task_id }}: {{ (exception | string).splitlines()[0] }}"
    return {"notifier": "tests.dags.told.FileNotifier", "options": {"path": str(path), "text": text}}


def test_planning_error_fails_the_run_and_calls_on_stuck_once(
    write_clusters: WriteClusters, coordinate, topic, cluster_name, start_consumer, zookeeper, tmp_path: Path
):
    told = tmp_path / "told"
    settings: dict[str, Any] = {"count": 0, "on_stuck": [telling(told)]}
    write_clusters(cluster_name, topics=[topic], **settings)
    start_consumer("one")
    assert coordinate().state == "success"
    # A topic that is not there fails `compute_assignment` as well, which repeats it and notifies nobody.
    write_clusters(cluster_name, topics=[topic, "not-there"], **settings)
    missing = coordinate()
    assert (missing.tasks["fetch_partitions"], missing.tasks["compute_assignment"]) == ("failed", "failed")
    [first] = told_by(told)
    assert first.startswith("fetch_partitions: ")
    write_clusters(cluster_name, topics=[topic, "not-there"], assignor="no.such.Assignor", **settings)
    run = coordinate()
    assert (run.state, run.tasks["compute_assignment"]) == ("failed", "failed")
    planning, same = told_by(told)
    assert planning.startswith("compute_assignment: "), "news, although this task failed in the run before"
    assert "no.such.Assignor" in planning
    assert same == first
    assert coordinate().state == "failed"
    assert told_by(told) == [planning, first]
    assert assigned(zookeeper, cluster_name, topic) == dict.fromkeys("0123", "one")


def test_permanent_settings_error_in_any_task_of_the_coordinator_reaches_on_stuck_once(
    write_clusters: WriteClusters, coordinate, cluster_name: str, tmp_path: Path
):
    told = tmp_path / "told"
    write_clusters(cluster_name, count=0, consul="no_such_connection", on_stuck=[telling(told)])
    run = coordinate()
    assert run.state == "failed"
    first = told_by(told)
    assert [line.partition(":")[0] for line in first] == [
        "compute_assignment",
        "fetch_consumers",
        "fetch_partitions",
    ]
    assert all("no Airflow connection 'no_such_connection'; create it" in line for line in first)
    assert coordinate().state == "failed"
    assert told_by(told) == first


def test_isolate_and_restore(write_clusters: WriteClusters, run_dag: RunDag, cluster_name, discovery):
    write_clusters(cluster_name, count=2)
    consumer = f"{cluster_name}-2"
    form = {"cluster": cluster_name, "consumer": consumer, "reason": "swaps all day"}
    isolate = run_dag("muster_commands.py", "muster_isolate", form)
    assert isolate.state == "success"
    entry = discovery.overrides.isolated()[consumer]
    assert (entry.by, entry.why) == ("dag_test", "swaps all day")
    assert (
        isolate.note
        == f"consumer {consumer} of cluster {cluster_name} is isolated: swaps all day (by dag_test)"
    )
    [(uri, event)] = isolate.events
    assert uri == f"muster://{cluster_name}/levers"
    told = {"lever": "isolate", "who": "dag_test", "reason": "swaps all day", "consumer": consumer}
    assert event | told == event

    restore = run_dag("muster_commands.py", "muster_restore", form | {"reason": "has more memory"})
    assert restore.state == "success"
    assert not discovery.overrides.isolated()

    again = run_dag("muster_commands.py", "muster_restore", form)
    assert again.state == "failed"
    assert f"consumer '{consumer}' of cluster '{cluster_name}' is not isolated" in again.log


def test_isolation_of_what_is_not_there_is_refused(
    write_clusters: WriteClusters, run_dag: RunDag, cluster_name, discovery
):
    write_clusters(cluster_name, count=1)
    form = {"cluster": cluster_name, "consumer": "nobody", "reason": "r"}
    refused = run_dag("muster_commands.py", "muster_isolate", form)
    assert refused.state == "failed"
    assert f"cluster '{cluster_name}' has no consumer 'nobody'" in refused.log
    assert f"configured are: {cluster_name}-1" in refused.log
    assert not discovery.overrides.isolated()


@pytest.fixture
def known_topic(zookeeper: ZooKeeperSettings, cluster_name: str) -> str:
    """A topic that the coordinator has found already."""
    with TopicStore(zookeeper, cluster_name) as store:
        store.create_topic("flights", "k:9092", "g")
        store.set_partitions("flights", frozenset(range(8)))
    return "flights"


def test_pin_and_unpin(
    write_clusters: WriteClusters,
    run_dag: RunDag,
    cluster_name: str,
    known_topic: str,
    discovery: ConsulCluster,
):
    write_clusters(cluster_name, count=2)
    consumer = f"{cluster_name}-2"
    form = {"cluster": cluster_name, "topic": known_topic, "partitions": "0-2, 7", "reason": "has the cache"}
    pin = run_dag("muster_commands.py", "muster_pin", form | {"consumer": consumer})
    assert pin.state == "success"
    assert discovery.overrides.decisions().pinned() == {known_topic: dict.fromkeys((0, 1, 2, 7), consumer)}
    entry = discovery.overrides.decisions().pins[known_topic, 7]
    assert (entry.by, entry.why) == ("dag_test", "has the cache")
    assert pin.xcoms["pin.return_value"]["partitions"] == "0-2,7"
    assert f"partition(s) 0-2,7 of topic {known_topic} are pinned to consumer {consumer}" in pin.log

    unpin = run_dag("muster_commands.py", "muster_unpin", form | {"partitions": "0-2"})
    assert unpin.state == "success"
    assert unpin.xcoms["unpin.return_value"]["partitions"] == "0-2"
    assert [event["lever"] for _, event in unpin.events] == ["unpin"]
    assert discovery.overrides.decisions().pinned() == {known_topic: {7: consumer}}


def test_exclude_and_include(
    write_clusters: WriteClusters,
    run_dag: RunDag,
    cluster_name: str,
    known_topic: str,
    discovery: ConsulCluster,
):
    write_clusters(cluster_name, count=1)
    consumer = f"{cluster_name}-1"
    form = {"cluster": cluster_name, "topic": known_topic, "consumer": consumer, "reason": "no GPU"}
    exclude = run_dag("muster_commands.py", "muster_exclude", form)
    assert exclude.state == "success"
    entry = discovery.overrides.decisions().exclusions[consumer, known_topic]
    assert (entry.by, entry.why) == ("dag_test", "no GPU")
    assert exclude.xcoms["exclude.return_value"]["consumer"] == consumer

    include = run_dag("muster_commands.py", "muster_include", form | {"reason": "has one now"})
    assert include.state == "success"
    assert not discovery.overrides.decisions().exclusions
    assert f"consumer {consumer} of cluster {cluster_name} takes topic {known_topic} again" in include.log


def test_a_pin_of_what_is_not_there_is_refused(
    write_clusters: WriteClusters,
    run_dag: RunDag,
    cluster_name: str,
    known_topic: str,
    discovery: ConsulCluster,
):
    write_clusters(cluster_name, count=1)
    form = {"cluster": cluster_name, "topic": known_topic, "partitions": "7-8", "reason": "r"}
    refused = run_dag("muster_commands.py", "muster_pin", form | {"consumer": f"{cluster_name}-1"})
    assert refused.state == "failed"
    assert "topic 'flights' has no partition(s) 8; it has 0-7" in refused.log
    assert not discovery.overrides.decisions().pins


def test_a_cluster_is_paused_and_its_topics_and_assignor_changed_by_forms(
    write_clusters: WriteClusters,
    run_dag: RunDag,
    coordinate,
    topic,
    cluster_name: str,
    start_consumer,
    discovery: ConsulCluster,
    zookeeper: ZooKeeperSettings,
):
    write_clusters(cluster_name, count=0, topics=[topic])
    start_consumer("one")
    assert coordinate().state == "success"
    said = {"cluster": cluster_name, "reason": "release"}

    def pull(dag_id: str, **form: Any) -> Run:
        return run_dag("muster_commands.py", dag_id, said | form)

    assert pull("muster_unsubscribe", topic=topic, kind="name").state == "success"
    assert pull("muster_pause").state == "success"
    held = coordinate()
    assert (held.tasks["fetch_partitions"], held.tasks["compute_assignment"]) == ("skipped", "skipped")
    assert "status quo kept: paused by dag_test since " in held.log
    assert pull("muster_rebalance").state == "failed", "it is paused"
    assert pull("muster_resume").state == "success"

    closed = coordinate()
    [(_, event)] = closed.events
    assert [change["after"] for change in event["changes"]][-1] == "Initial"
    assert event["reasons"] == ["unsubscribed by dag_test: release"]
    with TopicStore(zookeeper, cluster_name, read_only=True) as store:
        assert store.topics() == []
        levers = [record.entry for record in reversed(store.history().records)]
    told = [(e.what, e.who, e.via.split()[0]) for e in levers if isinstance(e, CommandEntry)]
    assert told == [(name, "dag_test", f"muster_{name}") for name in ("unsubscribe", "pause", "resume")]

    assert pull("muster_subscribe", topic=f"{topic[:-1]}.", kind="pattern").state == "success"
    assert pull("muster_subscribe", topic=topic, kind="name").state == "success"
    assert pull("muster_assignor", assignor="range", options={}).state == "success"
    again = coordinate()
    assert "planned with assignor range by dag_test since " in again.log
    assert assigned(zookeeper, cluster_name, topic) == dict.fromkeys("0123", "one")
    assert pull("muster_assignor", assignor="sticky", options={"no": 1}).state == "failed"
    assert pull("muster_assignor", assignor="(as in clusters.yaml)", options={}).state == "success"
    assert discovery.overrides.decisions().assignor is None
    assert pull("muster_rebalance").state == "success"
    asked = coordinate()
    assert asked.tasks["advance_state"] == "skipped"
    assert "rebalance asked for by dag_test: release; there is nothing to move" in asked.log


def test_pins_that_cannot_be_obeyed_and_unreadable_keys_are_named_in_the_run(
    write_clusters: WriteClusters, coordinate, topic, cluster_name, start_consumer, discovery, consul
):
    write_clusters(cluster_name, count=0, topics=[topic])
    start_consumer("one")
    discovery.overrides.pin(topic, 2, "gone", by="ann", why="has the cache", at=1.0)
    key = f"muster/{cluster_name}/excluded/one/{topic}"
    httpx.put(f"http://{consul.host}:{consul.port}/v1/kv/{key}", content="rubbish").raise_for_status()
    run = coordinate()
    assert run.state == "success"
    assert run.tasks["advance_state"] == "success"
    unreadable, impossible = run.xcoms["compute_assignment.report"]["warnings"]
    assert unreadable.startswith(f"Consul key {key}: holds b'rubbish'")
    assert "the pin to consumer 'gone' cannot be obeyed: the consumer is not live" in impossible
    assert run.log.count(unreadable) >= 2
    assert "cannot be obeyed" in run.log


def test_coordinator_without_a_slot_to_wait_in_defers_and_is_woken_by_a_change(
    write_clusters: WriteClusters,
    coordinate,
    run_log: Path,
    topic,
    cluster_name: str,
    start_consumer,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "1")
    write_clusters(cluster_name, count=0, topics=[topic], long_poll_timeout="60s")
    start_consumer("one")
    assert coordinate().tasks["advance_state"] == "success"
    runs: list[Run] = []
    running = threading.Thread(target=lambda: runs.append(coordinate()))
    running.start()
    eventually(lambda: run_log.exists() and "waiting in the triggerer, at most" in run_log.read_text(), 60)
    began = time.monotonic()
    start_consumer("two")
    running.join(60)
    assert time.monotonic() - began < 40, "not at the tick"
    [run] = runs
    assert "Consul has news" in run.log
    assert run.tasks["compute_assignment"] == "success"
    if run.tasks["advance_state"] == "skipped":  # what woke it was over again; the next run has the newcomer
        run = coordinate()
    assert run.tasks["advance_state"] == "success"
    assert run.xcoms["compute_assignment.report"]["reasons"] == ["consumer two joined"]


def test_the_history_prunes_itself_when_its_hundredth_entry_is_written(
    write_clusters: WriteClusters,
    coordinate,
    topic,
    cluster_name: str,
    start_consumer,
    zookeeper: ZooKeeperSettings,
):
    path = write_clusters(cluster_name, count=0, topics=[topic])
    path.write_text(f"{path.read_text()}retention: {{history_entries: 50}}\n")
    start_consumer("one")
    with TopicStore(zookeeper, cluster_name) as store:
        while store.append_history(CommandEntry(1.0, "ann", "pin", "r")) < 99:
            pass
        run = coordinate()
        assert run.tasks["advance_state"] == "success"
        entries = [record.entry for record in store.history(limit=1000).records]
    assert len(entries) == 50
    assert isinstance(entries[0], Transitions), "the newest stay"
    assert "old entries of the history" in run.log


@pytest.mark.spark
def test_handler_that_cannot_be_imported_fails_for_good_and_calls_on_stuck(
    write_clusters: WriteClusters,
    run_dag: RunDag,
    cluster_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("MUSTER_APPLICATION")
    told = tmp_path / "told"
    options = {"path": str(told), "text": "{{ ti.task_id }} {{ ti.try_number }}: {{ exception }}"}
    notifier = {"notifier": "tests.dags.told.FileNotifier", "options": options}
    write_clusters(cluster_name, consumers={"handler": "none.such"}, on_stuck=[notifier])
    run = run_dag("muster_consumers.py", f"muster_consumers__{cluster_name}")
    assert run.tasks == {f"consumer[{cluster_name}-1]": "failed"}
    assert told.read_text().startswith(f"consumer 1: consumer {cluster_name}-1 cannot start: ")
    assert "handler 'none.such': module 'none' cannot be imported" in told.read_text()


@pytest.mark.spark
def test_the_consumers_dag_runs_the_real_job_and_ends_when_a_person_stops_the_consumer(
    write_clusters: WriteClusters,
    run_dag: RunDag,
    run_log: Path,
    cluster_name: str,
    discovery: ConsulCluster,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("MUSTER_APPLICATION")
    handler = {
        "handler": "muster.handlers.parquet.ParquetHandler",
        "handler_options": {"path": str(tmp_path / "out")},
        "startup_timeout": "2m",
    }
    write_clusters(cluster_name, count=1, consumers=handler)
    consumer = f"{cluster_name}-1"
    runs: list[Run] = []
    running = threading.Thread(
        target=lambda: runs.append(run_dag("muster_consumers.py", f"muster_consumers__{cluster_name}"))
    )
    running.start()
    try:
        eventually(lambda: run_log.exists() and f"watching consumer {consumer}" in run_log.read_text(), 150)
        registration = discovery.catalog.members().registered[consumer]
    finally:
        if submitted := discovery.jobs.submission(consumer):
            discovery.jobs.request_stop(consumer, submitted["incarnation"], "anna", "the test is over")
        running.join(120)
    assert registration.incarnation == submitted["incarnation"]
    [run] = runs
    assert run.tasks == {f"consumer[{consumer}]": "skipped"}
    assert "was stopped by anna: the test is over" in run.log
    assert not discovery.catalog.members().registered
