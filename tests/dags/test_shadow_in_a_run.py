"""What a run of the coordinator DAG keeps of the shadow assignor: an XCom and a line in its log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from airflow.sdk import AssetAlias

from muster.airflow import coordination
from muster.airflow.coordinator_dag import stuck
from tests.dags.conftest import connection, consul_and_spark
from tests.support.site import Site, site

__all__ = ["site"]


class Task:
    """Keeps what is pushed, as XCom would: as JSON."""

    dag_id = "d"

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.kept[key] = json.dumps(value)

    def xcom_pull(self, **_: Any) -> None:
        return None


@pytest.mark.parametrize("name", ["range", "no.such.Assignor"])
def test_the_shadow_is_in_the_report_and_in_the_log(
    site: Site, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.write(shadow_assignor=name, long_poll_timeout="1s")
    monkeypatch.setenv("MUSTER_CLUSTERS", str(site.clusters))
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "operation_timeout": 1}
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_KAFKA", connection(extra=nowhere))
    monkeypatch.setenv("AIRFLOW_CONN_MUSTER_ZOOKEEPER", connection(host=site.zookeeper.hosts))
    consul_and_spark(monkeypatch, site.consul)
    before, task = site.trace(), Task()
    with caplog.at_level(logging.INFO):
        context: Any = {"ti": task, "run_id": "r"}
        alias, asset = AssetAlias("when_stuck"), stuck(site.name)
        assert coordination.compute_assignment(site.name, alias, asset, context) is False
    shadow = json.loads(task.kept[coordination.REPORT])["shadow"]
    assert shadow["assignor"] == name
    (line,) = [record for record in caplog.records if record.getMessage().startswith(f"shadow: {name}: ")]
    if name == "range":
        assert line.levelno == logging.INFO
        assert shadow["error"] == ""
        assert shadow["balance"]["partitions"] == 12
    else:
        assert line.levelno == logging.WARNING
        assert "cannot be imported" in shadow["error"]
    assert site.trace() == before
