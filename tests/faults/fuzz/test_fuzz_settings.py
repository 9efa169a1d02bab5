"""Whatever a person writes into `clusters.yaml`, or the environment holds: one cluster's mistake is its own.

Every key is given every odd value. What is accepted can be used: durations can be waited for, names can be looked up.
"""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from muster.settings.cluster_settings import (
    AssignorSettings,
    ClusterSettings,
    ConsumersSettings,
    EachConsumer,
    TopicsSettings,
)
from muster.settings.clusters import load_clusters
from muster.settings.connection_lookup import read_variable
from muster.settings.connection_parsing import (
    ConnectionSettingsError,
    check_extra,
    parse_consul,
    parse_kafka,
    parse_zookeeper,
)
from muster.settings.consumer import VARIABLE, ConsumerSettings
from tests.faults.fuzz.error_text import explains
from tests.faults.fuzz.malformed import Path as Place
from tests.faults.fuzz.malformed import changed, mangled, odd_texts, odd_values, places, without
from tests.faults.fuzz.tally import count, examples
from tests.faults.model.process import SETTINGS

GOOD = "clusters:\n  good: {consul_service: g, group_id: g, topics: [t], consumers: {handler: a.b}}\n"
PLACE = {"bind": "::", "advertise": "h1.example", "port": 8_080}
CLUSTER: dict[str, Any] = {
    "consul_service": "s",
    "group_id": "g",
    "topics": {"names": ["t"], "patterns": ["x.*"]},
    "consumers": {
        "count": 2,
        "spark": "muster_spark",
        "kafka": "k",
        "zookeeper": "z",
        "consul": "c",
        "handler": "a.b",
        "handler_options": {"path": "/x"},
        "handlers": {"t-.*": {"handler": "a.b", "handler_options": {"path": "/y"}}},
        "spark_conf": {"spark.driver.memory": "1g", "spark.ui.enabled": False},
        "source_options": {"kafka.max.poll.records": 20_000},
        "metadata": {"zone": "a", "weight": 2},
        "each": {
            "bad-1": {
                "weight": 2,
                "zone": "b",
                "priority": 1,
                "topics": ["t"],
                "metadata": {"x": "y"},
                **PLACE,
            }
        },
        **PLACE,
        "trigger_interval": "200ms",
        "max_records_per_batch": 10,
        "target_batch_time": "5s",
        "max_bytes_per_batch": 1_000_000,
        "max_read_ahead": 32_000_000,
        "max_rate": {"t": 100, "u-.*": 0.5},
        "max_batch_time": "5m",
        "check_interval": "1s",
        "lost_after": 60,
        "startup_timeout": "3m",
        "graceful_timeout": 60,
        "on_poison": "dead_letter",
        "dead_letter_topic": "lost",
        "state": ["t"],
        "state_folder": "/var/lib/muster",
    },
    "kafka": "muster_kafka",
    "zookeeper": "muster_zookeeper",
    "consul": "muster_consul",
    "consul_prefix": "muster",
    "status": "muster_status",
    "airflow": {
        "coordinator": {"queue": "q", "pool": "p", "executor": "LocalExecutor", "priority_weight": 7},
        "consumers": {"queue": "q"},
    },
    "assignor": {"name": "sticky", "options": {}},
    "shadow_assignor": {"name": "range", "options": {}},
    "allowed_assignors": ["a.b.Assignor"],
    "allowed_imports": {"zookeeper": ["old"], "checkpoints": ["/data/checkpoints"]},
    "long_poll_timeout": "20s",
    "schedule_interval": 2,
    "advance_budget": "20s",
    "stuck_after": "5m",
    "on_stuck": [{"notifier": "a.b.Notifier", "options": {"to": "x"}}],
    "rebalance_delay": 0,
    "closing_timeout": "30s",
    "planning_error_delay": "1m",
    "fencing": True,
    "status_timeout": "2s",
    "max_lag": "5m",
    "max_warm_ups": 2,
    "warm_up_timeout": "10m",
}
PLACES: list[Place] = [place for place in places(CLUSTER) if place]
TOKENS = (
    *(
        ".inf",
        "-.inf",
        ".nan",
        "1e999",
        "~",
        "yes",
        "0o17",
        "0x1F",
        "1_000",
        "12:30:45",
        "2001-99-99",
        "2001-02-03",
    ),
    *(
        "!!binary x",
        "!!binary aGk=",
        "!!set {a}",
        "!!python/object/apply:os.system [x]",
        "!x y",
        "*nobody",
        "&a [*a]",
    ),
    *(
        '"\\ud800"',
        '"\\0"',
        "'a\n  b'",
        "{a: 1, a: 2}",
        "? [a]\n",
        "<<: x",
        "[" * 3_000,
        "{a: " * 500,
        "9" * 400,
        "9" * 5_000,
    ),
    *(
        "'a{99999999999999}'",
        "'" + "(" * 2_000 + "'",
        "'(a+)+$'",
        "'[z-a]'",
        "../../etc",
        "'{{ 1 }}'",
        "${HOME}",
        "a b",
        "'a/b'",
    ),
)


def test_every_key_there_is_is_fuzzed(tmp_path: Path) -> None:
    assert CLUSTER.keys() == ClusterSettings.model_fields.keys() - {"name"}
    assert CLUSTER["consumers"].keys() == ConsumersSettings.model_fields.keys()
    assert CLUSTER["consumers"]["each"]["bad-1"].keys() == EachConsumer.model_fields.keys()
    assert CLUSTER["topics"].keys() == TopicsSettings.model_fields.keys()
    assert CLUSTER["assignor"].keys() == AssignorSettings.model_fields.keys()
    assert [*read(tmp_path / "c.yaml", yaml.safe_dump({"clusters": {"bad": CLUSTER}}).encode()).clusters] == [
        "bad"
    ]


def read(path: Path, text: bytes) -> Any:
    path.write_bytes(text)
    count("clusters.yaml")
    return load_clusters(path)


@st.composite
def entries(draw: st.DrawFn) -> str:
    """One cluster's entry as JSON, which is YAML, with something wrong; a token stands in the place of a value."""
    place = draw(st.sampled_from(PLACES))
    how = draw(st.sampled_from(("value", "value", "token", "more", "gone")))
    if how == "gone":
        return json.dumps(without(CLUSTER, place))
    if how == "more":
        return json.dumps({**CLUSTER, draw(odd_texts): draw(odd_values)})
    if how == "token":
        return json.dumps(changed(CLUSTER, place, "@@")).replace('"@@"', draw(st.sampled_from(TOKENS)), 1)
    return json.dumps(changed(CLUSTER, place, draw(odd_values)))


def check(path: Path, name: str, text: bytes) -> None:
    found = read(path, text)
    if path.name in found.general:
        explains(found.general[path.name], str(path))  # the file as a whole is no YAML
        return
    assert "good" in found.clusters, "the other cluster goes on"
    for key, error in found.errors.items():
        told_of_settings(error, str(path), key)
    for cluster in found.clusters.values():
        usable(cluster)


def told_of_settings(error: str, path: str, cluster: str) -> None:
    for line in error.splitlines():
        assert re.match(rf"{re.escape(path)}:\d+: cluster {re.escape(repr(cluster))}", line), line
        assert len(line) < 2_000, f"{len(line)} characters"


def usable(cluster: Any) -> None:
    """What was accepted can be used where it is needed."""
    of = cluster.consumers
    for seconds in (
        cluster.long_poll_timeout,
        cluster.schedule_interval,
        cluster.advance_budget,
        cluster.stuck_after,
        cluster.warm_up_timeout,
    ):
        assert timedelta(seconds=seconds) >= timedelta()
    for seconds in (cluster.rebalance_delay, cluster.status_timeout, of.trigger_interval, of.lost_after):
        assert timedelta(seconds=seconds) >= timedelta()
    for connection in (cluster.kafka, cluster.zookeeper, cluster.consul, cluster.status, of.spark, of.kafka):
        assert connection is None or os.environ.get(f"AIRFLOW_CONN_{connection.upper()}") is None
    assert cluster.topics.includes("t") in {True, False}
    assert all(isinstance(v, str) for v in (*of.spark_conf.values(), *of.metadata.values()))
    cluster.model_dump_json()  # whoever starts a consumer hands options on as JSON


def test_any_value_of_any_key(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"

    @examples(300)
    @given(entries())
    def play(entry: str) -> None:
        check(path, "bad", (GOOD + f"  bad: {entry}\n").encode("utf-8", "surrogatepass"))

    play()


def test_any_name_of_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"

    @examples(150)
    @given(odd_texts, st.sampled_from(("{}: {}", '"good": {1}', "? {} : {}", "{}", "1: {1}\n  '1': {1}")))
    def play(name: str, form: str) -> None:
        line = form.replace("{1}", "{consul_service: s, group_id: g, topics: [t], consumers: {handler: a.b}}")
        check(
            path,
            name,
            (GOOD + "  " + line.replace("{}", json.dumps(name), 1) + "\n").encode("utf-8", "surrogatepass"),
        )

    play()


def test_settings_file_of_any_content_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"

    @examples(150)
    @given(
        mangled(
            {
                "clusters": {
                    "good": {k: CLUSTER[k] for k in ("consul_service", "group_id", "topics", "consumers")}
                }
            }
        )
    )
    def play(text: bytes) -> None:
        found = read(path, text)
        for error in found.general.values():
            explains(error, str(path))
        for key, error in found.errors.items():
            told_of_settings(error, str(path), key)

    play()


CONNECTION = {
    "conn_type": "generic",
    "host": "h:1",
    "port": 5,
    "login": "u",
    "password": "pw-secret",
    "extra": {"acl": "auth::r"},
}


@examples(400)
@given(
    mangled(CONNECTION)
    | odd_texts.map(lambda t: f"generic://u:pw-secret@{t}/?acl={t}".encode("utf-8", "replace"))
)
def test_any_connection_in_the_environment(value: bytes) -> None:
    count("environment")
    text = value.decode("utf-8", "replace").strip()
    try:
        fields = read_variable("x", "AIRFLOW_CONN_X", text)
        check_extra(fields)
        extra = json.loads(fields.extra) if fields.extra else {}
    except ConnectionSettingsError as error:
        explains(str(error), "x" if "AIRFLOW_CONN_X" not in str(error) else "AIRFLOW_CONN_X")
        assert "pw-secret" not in str(error)
        return
    for parse in (parse_zookeeper, parse_consul, parse_kafka):
        try:
            parse(fields, extra)
        except ConnectionSettingsError as error:
            explains(str(error), "'x'")
            assert "pw-secret" not in str(error)


@examples(300)
@given(mangled(json.loads(SETTINGS.model_dump_json())))
def test_any_settings_of_a_consumer(value: bytes) -> None:
    text = value.decode("utf-8", "replace").replace("\x00", "?")
    count("environment")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, text)
        try:
            ConsumerSettings.from_environment()
        except ValueError as error:
            assert VARIABLE in str(error)
            assert len(str(error)) < 2_000
