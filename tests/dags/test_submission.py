"""What a driver in client mode is started with."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from muster.airflow.submission import SubmissionError, consumer_settings, make_hook, submit_detached
from muster.core.wire import PROTOCOL
from muster.settings.clusters import load_clusters
from muster.settings.connection_lookup import CONNECTIONS
from muster.settings.consumer import VARIABLE, VERSION
from tests.dags.conftest import WriteClusters, connection
from tests.dags.dag_runner import ROOT

PRIVATE = {
    "_build_spark_submit_command",
    "_conf",
    "_connection",
    "_env_vars",
    "_kubernetes_driver_pod",
    "_properties_file",
    "_track_driver_via_k8s_api",
    "_yarn_application_id",
}
PRIVATE_OF_OPERATOR = {"_conn_id", "_get_hook"}


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `spark-submit` that shows its environment, first on the PATH; returns an application for it."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nenv\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name, fields in {
        "SPARK": {"conn_type": "spark", "host": "local[1]"},
        "ZOOKEEPER": {"conn_type": "generic", "host": "h"},
        "CONSUL": {"conn_type": "http"},
        "KAFKA": {"conn_type": "kafka", "extra": {"bootstrap.servers": "k:1"}},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_MUSTER_{name}", connection(**fields))
    application = tmp_path / "job.py"
    application.touch()
    return application


def test_env_vars_of_the_operator_reach_the_driver_in_client_mode(
    spark_submit: Path, tmp_path: Path, cluster_name: str, write_clusters: WriteClusters
) -> None:
    options = {"kafka.max.poll.records": 20_000, "maxOffsetsPerTrigger": 7}
    write_clusters(cluster_name, consul_prefix="dev/muster", consumers={"source_options": options})
    settings = consumer_settings(load_clusters()[cluster_name], "one", "an-incarnation", CONNECTIONS)
    assert settings.consul_prefix == "dev/muster"
    assert settings.source_options == {"kafka.max.poll.records": "20000"}
    assert settings.max_records_per_batch == 7
    each = {f"{cluster_name}-2": {"weight": 2, "metadata": {"disks": 4}, "advertise": "h2", "port": 7}}
    write_clusters(cluster_name, consumers={"metadata": {"zone": "a"}, "bind": "::", "each": each})
    first, second = (
        consumer_settings(load_clusters()[cluster_name], f"{cluster_name}-{n}", "i", CONNECTIONS)
        for n in (1, 2)
    )
    assert (first.metadata, first.bind, first.advertise, first.port) == ({"zone": "a"}, "::", "", 0)
    assert second.metadata == {"zone": "a", "weight": "2", "disks": "4"}
    assert (second.bind, second.advertise, second.port) == ("::", "h2", 7)
    hook = SparkSubmitHook(conn_id="muster_spark", env_vars={"MY_HANDLER_KEY": "v", "PYSPARK_PYTHON": "py"})
    _, process = submit_detached(hook, settings, str(spark_submit), tmp_path / "driver.log")
    assert process.wait(30) == 0
    seen = (tmp_path / "driver.log").read_text().splitlines()
    assert "MY_HANDLER_KEY=v" in seen
    assert "PYSPARK_PYTHON=py" in seen
    assert any(line.startswith("MUSTER_CONSUMER=") for line in seen)


@pytest.mark.usefixtures("spark_submit")
def test_consumer_of_version_1_knows_every_setting_that_a_cluster_with_defaults_gives_it(
    cluster_name: str, write_clusters: WriteClusters
) -> None:
    write_clusters(cluster_name)
    settings = consumer_settings(load_clusters()[cluster_name], "one", "an-incarnation", CONNECTIONS)
    environment = settings.to_environment()
    known = json.loads((ROOT / "tests" / "support" / "version_1" / "written.json").read_text())["environment"]
    assert keys(json.loads(environment[VARIABLE])) <= keys(json.loads(known))
    assert environment[VERSION] == str(PROTOCOL)
    assert settings.dead_letters_to == f"__muster.dead-letters.{cluster_name}"
    write_clusters(cluster_name, fencing=False, consumers={"dead_letter_topic": "letters"})
    unfenced = consumer_settings(load_clusters()[cluster_name], "one", "an-incarnation", CONNECTIONS)
    assert (unfenced.dead_letter_topic, unfenced.dead_letters_to) == ("letters", "")


def keys(settings: dict[str, Any], of: str = "") -> set[str]:
    """The dotted names of all settings."""
    return {f"{of}{key}" for key in settings}.union(
        *(keys(value, f"{of}{key}.") for key, value in settings.items() if isinstance(value, dict))
    )


@pytest.mark.usefixtures("spark_submit")
def test_driver_does_not_start_in_a_pod_that_ends_with_its_task(
    spark_submit: Path,
    tmp_path: Path,
    cluster_name: str,
    write_clusters: WriteClusters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_clusters(cluster_name)
    settings = consumer_settings(load_clusters()[cluster_name], "one", "an-incarnation", CONNECTIONS)
    hook = make_hook(SparkSubmitOperator(task_id="t", application=str(spark_submit)), "muster_spark")
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")
    with pytest.raises(SubmissionError, match="'deploy-mode' to 'cluster'"):
        submit_detached(hook, settings, str(spark_submit), tmp_path / "driver.log")
    assert not (tmp_path / "driver.log").exists()


def test_private_members_of_the_spark_provider_are_known_and_used_in_one_module(spark_submit: Path) -> None:
    operator = SparkSubmitOperator(task_id="t")
    assert {name for name in PRIVATE_OF_OPERATOR if hasattr(operator, name)} == PRIVATE_OF_OPERATOR
    hook = make_hook(operator, "muster_spark")
    assert {name for name in PRIVATE if hasattr(hook, name)} == PRIVATE
    assert hook._connection["master"] == "local[1]"
    assert "deploy_mode" in hook._connection
    used = {
        (file.name, name)
        for file in (ROOT / "include" / "muster").rglob("*.py")
        for name in re.findall(r"\b(?:hook|operator)\.(_\w+)", file.read_text(encoding="utf-8"))
    }
    assert used == {("submission.py", name) for name in PRIVATE | PRIVATE_OF_OPERATOR}
