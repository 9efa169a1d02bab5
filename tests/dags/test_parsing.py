"""DAG files: thin, light, and parsed without a network, however wrong `clusters.yaml` is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.airflow import preload as preloading

ROOT = Path(__file__).resolve().parents[2]
DAG_FILES = sorted(path.name for path in (ROOT / "dags").glob("*.py"))
DAGS = "muster_dags.py"
OF_A_CLUSTER = {"coordinator", "consumers", "isolate", "commands", "stuck"}
OF_TASK = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"
"""Environment variable by which Airflow says which DAG a task's process is for."""

# A process that has Airflow in memory and forks for each file, as a DAG processor does.
PARSER = """
import json, os, socket, sys, time, traceback
def no_network(*_, **__):
    raise AssertionError("a DAG file used the network")
from airflow.dag_processing.dagbag import DagBag
import airflow.serialization.serialized_objects
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = no_network
before = set(sys.modules)
heavy = {"pyspark", "pandas", "pyarrow", "numpy", "kazoo", "confluent_kafka", "fastapi", "uvicorn"}
def parsed(file):
    began = time.process_time()
    bag = DagBag(file)
    took = time.process_time() - began
    return {
        "took": took,
        "dags": {
            dag_id: {
                "tasks": sorted(dag.task_dict),
                "schedule": dag.schedule,
                "doc": dag.doc_md,
                "on": dag.is_paused_upon_creation is False,
                "routes": sorted({
                    (task.queue, task.pool, task.executor or "", task.priority_weight) for task in dag.tasks
                }),
            }
            for dag_id, dag in bag.dags.items()
        },
        "errors": list(bag.import_errors.values()),
        "heavy": sorted(heavy & (set(sys.modules) - before)),
        "kinds": [k for k in ("coordinator", "consumers", "stuck") if f"muster.airflow.{k}_dag" in sys.modules],
    }
for line in sys.stdin:
    file, environment = json.loads(line)
    if pid := os.fork():
        os.waitpid(pid, 0)
        continue
    os.environ.update(environment)
    try:
        answer = {"parsed": parsed(file)}
    except BaseException:
        answer = {"failed": traceback.format_exc()}
    print("answer:" + json.dumps(answer, default=str), flush=True)
    os._exit(0)
"""

# As in the processes that Airflow forks, of a task or for a file: what was loaded before the fork need not be again.
FORKED = """
import runpy, sys
component, root, *files = sys.argv[1:]
sys.argv = ["airflow", component]
from airflow.dag_processing.dagbag import DagBag
runpy.run_path(f"{root}/config/airflow_local_settings.py")
before = set(sys.modules)
for file in files:
    assert DagBag(f"{root}/dags/{file}").dags or file == "muster_settings.py"
if component == "scheduler":
    import muster.airflow.coordination
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] == "muster"))
"""


@pytest.fixture(scope="module")
def parse():
    parser = subprocess.Popen(
        [sys.executable, "-c", PARSER],
        env=os.environ | {"PYTHONPATH": str(ROOT / "include")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def asked(file: str, clusters: Path | None = None, only: str = "") -> dict:
        environment = {"MUSTER_CLUSTERS": str(clusters or ROOT / "clusters.d")} | (
            {OF_TASK: only} if only else {}
        )
        parser.stdin.write(json.dumps([str(ROOT / "dags" / file), environment]) + "\n")
        parser.stdin.flush()
        line = next(line for line in parser.stdout if line.startswith("answer:"))
        return json.loads(line.removeprefix("answer:"))["parsed"]

    yield asked
    parser.stdin.close()
    assert parser.wait(60) == 0


@pytest.fixture
def of_clusters(parse):
    """The DAGs that belong to a cluster."""
    return lambda file: {name: dag for name, dag in parse(DAGS, file)["dags"].items() if "__" in name}


@pytest.fixture
def clusters(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "clusters.yaml"
        path.write_text(text)
        return path

    return write


GOOD = """
  good:
    consul_service: good
    group_id: good
    topics: [a]
    consumers: {count: 2, handler: m.h}
"""


@pytest.mark.parametrize("file", DAG_FILES)
def test_a_dag_file_parses_in_under_a_second_without_network_and_heavy_imports(parse, file):
    parsed = parse(file)
    assert parsed["errors"] == []
    assert parsed["heavy"] == []
    assert parsed["took"] < 1.0


@pytest.mark.parametrize(
    ("component", "files", "only"),
    [("scheduler", ["muster_dags.py"], "muster_coordinator__flights"), ("dag-processor", DAG_FILES, "")],
)
def test_modules_of_every_process_are_loaded_before_it_is_forked(component, files, only):
    answer = subprocess.run(
        [sys.executable, "-c", FORKED, component, str(ROOT), *files],
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "include"), "MUSTER_CLUSTERS": str(ROOT / "clusters.d")}
        | ({OF_TASK: only} if only else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1].strip() == "", "see muster.airflow.preload"


def test_modules_that_cannot_be_loaded_beforehand_are_logged_and_nothing_else(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MUSTER_CLUSTERS", str(tmp_path / "none"))
    monkeypatch.setattr(preloading, "_OF_TASKS", ("no.such.module",))
    preloading.preload(["airflow", "scheduler"])
    assert "no.such.module cannot be loaded beforehand" in caplog.text
    assert "the settings cannot be read beforehand" in caplog.text


@pytest.mark.parametrize("module", ["", "raise RuntimeError('broken')", "import no_such_module"])
def test_airflow_starts_where_muster_is_missing_or_broken(module, tmp_path):
    if module:
        (tmp_path / "muster").mkdir()
        (tmp_path / "muster" / "__init__.py").write_text(module)
    code = (
        "import sys, runpy; sys.meta_path = [f for f in sys.meta_path if '__editable__' not in str(f)]; "
        f"sys.path[:] = [{str(tmp_path)!r}] + [p for p in sys.path if '/include' not in p]; "
        f"runpy.run_path({str(ROOT / 'config' / 'airflow_local_settings.py')!r}); print('started')"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr
    assert "Muster's modules are not loaded beforehand" in answer.stderr
    assert "Error" in answer.stderr


def test_file_makes_all_dags_of_each_cluster_and_those_of_all(parse, clusters):
    found = parse(DAGS, clusters("clusters:" + GOOD + GOOD.replace("good", "other")))["dags"]
    of_clusters = {f"muster_{kind}__{name}" for kind in OF_A_CLUSTER for name in ("good", "other")}
    assert found.keys() == of_clusters | {"muster_pruning"}
    assert found["muster_coordinator__good"]["tasks"] == [
        "advance_state",
        "compute_assignment",
        "fetch_consumers",
        "fetch_partitions",
    ]


def test_pruning_is_on_and_the_consumers_dag_says_what_deleting_it_does(parse, clusters):
    dags = parse(DAGS, clusters("clusters:" + GOOD))["dags"]
    assert dags["muster_pruning"]["on"]
    doc = dags["muster_consumers__good"]["doc"]
    (said,) = (
        part for part in doc.replace("\n  ", " ").split("\n- ") if part.startswith("**delete this DAG**")
    )
    for promise in ("every consumer is stopped", "the DAG comes back", "paused"):
        assert promise in said


@pytest.mark.parametrize(
    "only",
    [
        *("muster_coordinator__good", "muster_stuck__good", "muster_isolate__good", "muster_commands__good"),
        "muster_pruning",
    ],
)
def test_process_of_a_task_makes_only_its_dag_and_imports_no_other_kind(parse, clusters, only):
    parsed = parse(DAGS, clusters("clusters:" + GOOD + GOOD.replace("good", "other")), only)
    assert list(parsed["dags"]) == [only]
    kind = only.removeprefix("muster_").partition("__")[0]
    # The question when something is stuck ends in a command and listens to a coordinator.
    allowed = OF_A_CLUSTER if kind == "stuck" else {kind}
    assert set(parsed["kinds"]) <= allowed, parsed["kinds"]


def test_a_mistake_in_one_cluster_is_shown_and_leaves_the_others(parse, clusters):
    file = clusters("clusters:" + GOOD + GOOD.replace("good", "bad").replace("count", "cuont"))
    parsed = parse(DAGS, file)
    assert parsed["errors"] == []
    assert {name.split("__")[1] for name in parsed["dags"] if "__" in name} == {"good"}
    [error] = parse("muster_settings.py", file)["errors"]
    assert (
        "clusters.yaml:12: cluster 'bad', key 'consumers.cuont': unknown key; did you mean 'count'?" in error
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clusters: [", "not YAML"),
        ("clusters: []", "expected a top-level key 'clusters'"),
    ],
)
def test_a_file_that_cannot_be_read_at_all_is_an_import_error_with_the_reason(
    parse, clusters, text, expected
):
    [error] = parse("muster_settings.py", clusters(text))["errors"]
    assert "clusters.yaml" in error
    assert expected in error


def test_mistakes_leave_the_dags_as_they_were(parse, of_clusters, clusters):
    """Airflow takes a DAG that is no longer in its file for removed, and ends its scheduling."""
    file = clusters("clusters:" + GOOD)
    before = of_clusters(file)
    assert set(before) == {f"muster_{kind}__good" for kind in OF_A_CLUSTER}
    for broken in (
        "clusters: [",
        "clusters:" + GOOD.replace("count", "cuont"),
        GOOD.replace("  good", "good"),
    ):
        assert of_clusters(clusters(broken)) == before
        [error] = parse("muster_settings.py", file)["errors"]
        assert "cluster 'good' goes on with the settings it had before" in error
    assert of_clusters(clusters("clusters: {}")) == {}, "taken out on purpose"


@pytest.mark.parametrize("file", DAG_FILES)
def test_no_clusters_at_all_break_no_dag_file(parse, clusters, file):
    assert parse(file, clusters("clusters: {}"))["errors"] == []


def test_tasks_are_routed_as_the_settings_say(parse, clusters):
    coordinator = "{queue: quick, pool: muster, executor: LocalExecutor, priority_weight: 1000}"
    consumers = "{queue: gateways, pool: drivers, executor: LocalExecutor, priority_weight: 5}"
    routed = f"    airflow: {{coordinator: {coordinator}, consumers: {consumers}}}\n"
    dags = parse(DAGS, clusters("clusters:" + GOOD + routed + GOOD.replace("good", "other")))["dags"]
    for name, route, other in (
        ("coordinator", ["quick", "muster", "LocalExecutor", 1000], ["default", "default_pool", "", 100]),
        ("commands", ["quick", "muster", "LocalExecutor", 1000], ["default", "default_pool", "", 1]),
        ("stuck", ["quick", "muster", "LocalExecutor", 1000], ["default", "default_pool", "", 1]),
        ("consumers", ["gateways", "drivers", "LocalExecutor", 5], ["default", "default_pool", "", 1]),
    ):
        assert dags[f"muster_{name}__good"]["routes"] == [route]
        assert dags[f"muster_{name}__other"]["routes"] == [other]


def test_a_cluster_without_consumers_is_not_run_over_and_over(parse, clusters):
    parsed = parse(DAGS, clusters("clusters:" + GOOD.replace("count: 2", "count: 0")))
    assert parsed["errors"] == []
    assert parsed["dags"]["muster_consumers__good"]["schedule"] is None
