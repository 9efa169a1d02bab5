"""The connection types that Airflow gets from the package: their forms, and their buttons to test a connection."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

from muster.airflow.hooks import ConsulHook, ZooKeeperHook
from muster.airflow.provider import get_provider_info
from muster.settings.connections import ConsulSettings, ZooKeeperSettings
from tests.dags.conftest import connection

TYPES = {each["connection-type"]: each for each in get_provider_info()["connection-types"]}
pytestmark = pytest.mark.airflow


def test_provider_information_is_as_airflow_wants_it() -> None:
    schema = json.loads(Path(airflow.__file__).with_name("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)
    for name, each in TYPES.items():
        module, _, hook = each["hook-class-name"].rpartition(".")
        found = getattr(importlib.import_module(module), hook)
        assert (found.conn_type, found.hook_name) == (name, each["hook-name"])


@pytest.mark.parametrize(
    ("kind", "model", "elsewhere"),
    [
        ("zookeeper", ZooKeeperSettings, {"hosts", "username", "password"}),
        ("consul", ConsulSettings, {"host", "port", "scheme", "token"}),
    ],
)
def test_form_has_a_field_for_each_key_of_the_extra(kind: str, model: Any, elsewhere: set[str]) -> None:
    assert TYPES[kind]["conn-fields"].keys() == model.model_fields.keys() - elsewhere
    kinds = {"boolean": bool, "number": (int, float), "string": str}
    for key, field in TYPES[kind]["conn-fields"].items():
        default = model.model_fields[key].default
        shown = field["schema"].get("default")
        assert shown in (None, default)
        assert default is None or isinstance(default, kinds[field["schema"]["type"][0]])
        jsonschema.validate(shown, field["schema"])


def test_fields_that_are_left_empty_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = {**dict.fromkeys(TYPES["zookeeper"]["conn-fields"]), "ca": "", "verify_certs": True}
    monkeypatch.setenv(
        "AIRFLOW_CONN_MUSTER_ZOOKEEPER", connection(conn_type="zookeeper", host="h1:2181", extra=empty)
    )
    assert ZooKeeperHook().get_conn() == ZooKeeperSettings(hosts="h1:2181")


def test_zookeeper_that_answers_is_fine_and_one_that_does_not_is_named(
    zookeeper: ZooKeeperSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ZK", connection(conn_type="zookeeper", host=zookeeper.hosts))
    well, said = ZooKeeperHook("zk").test_connection()
    assert well, said
    assert said == f"{zookeeper.hosts}, without a user"
    monkeypatch.setenv("AIRFLOW_CONN_ZK", connection(conn_type="zookeeper", host="127.0.0.1:9"))
    well, said = ZooKeeperHook("zk").test_connection()
    assert not well
    assert "127.0.0.1:9" in said
    wrong = connection(conn_type="zookeeper", host="127.0.0.1:9", login="ann")
    monkeypatch.setenv("AIRFLOW_CONN_ZK", wrong)
    assert ZooKeeperHook("zk").test_connection()[1].startswith("Airflow connection 'zk', key 'login': ")


def test_consul_that_answers_is_fine_and_one_that_does_not_is_named(
    consul: ConsulSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = {"conn_type": "consul", "host": consul.host, "port": consul.port}
    monkeypatch.setenv("AIRFLOW_CONN_C", connection(**address))
    well, said = ConsulHook("c").test_connection()
    assert well, said
    assert said == f"http://{consul.host}:{consul.port}"
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps(address | {"port": 9}))
    well, said = ConsulHook("c").test_connection()
    assert not well
    assert "127.0.0.1:9" in said
