"""clusters.yaml and its errors: file, cluster, key and what is allowed are named; the good clusters stay usable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from muster.edges.consul import ConsulCluster
from muster.settings.cluster_settings import parse_duration
from muster.settings.clusters import Clusters, SettingsError, load_clusters
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings
from muster.settings.consumer import VARIABLE, ConsumerSettings

GOOD = """
  good:
    consul_service: good
    group_id: g
    topics: [t]
    consumers: {handler: a.b}
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_file_is_right() -> None:
    clusters = load_clusters(Path(__file__).parents[2] / "clusters.d")
    assert clusters.errors == {}
    assert clusters["flights"].consumer_ids() == ("flights-1", "flights-2", "flights-3")
    assert clusters["flights"].long_poll_timeout == 20
    assert clusters["flights"].fencing


def test_earlier_name_of_long_poll_timeout_is_accepted(tmp_path: Path) -> None:
    found = load_clusters(write(tmp_path / "c.yaml", f"clusters:{GOOD}    tick: 7s\n"))
    assert found["good"].long_poll_timeout == 7
    both = load_clusters(
        write(tmp_path / "c.yaml", f"clusters:{GOOD}    tick: 7s\n    long_poll_timeout: 8s\n")
    )
    assert "key 'tick': unknown key" in both.errors["good"]


@pytest.mark.parametrize(
    ("lines", "key", "allowed"),
    [
        ("topics: []", "topics", "at least one topic"),
        ("topics: {patterns: ['(']}", "topics.patterns.0", "not a regular expression"),
        ("topics: ['a/b']", "topics.names.0", "allowed are"),
        ("tick: soon", "tick", "'20s'"),
        ("long_poll_timeout: 0.1", "long_poll_timeout", "greater than or equal to 1"),
        ("consumers: {handler: nodots}", "consumers.handler", "dotted path"),
        (
            "consumers: {handler: a.b, handlers: {'a(': {handler: a.b}}}",
            "consumers.handlers.a(.[key]",
            "not a regular",
        ),
        (
            "consumers: {handler: a.b, handlers: {t: {handler: b}}}",
            "consumers.handlers.t.handler",
            "dotted path",
        ),
        ("consumers: {handler: a.b, count: -1}", "consumers.count", "greater than or equal to 0"),
        (
            "consumers: {handler: a.b, max_read_ahead: 1000}",
            "consumers.max_read_ahead",
            "greater than or equal to 1048576",
        ),
        (
            "consumers: {handler: a.b, cuont: 3}",
            "consumers.cuont",
            "unknown key; did you mean 'count'?",
        ),
        ("fencing: perhaps", "fencing", "boolean"),
        ("on_stuck: [nodots]", "on_stuck.0.notifier", "dotted path"),
        ("on_stuck: [{notifier: a.B, kwargs: {}}]", "on_stuck.0.kwargs", "unknown key"),
        ("colour: red", "colour", "allowed are: advance_budget"),
        ("consul_service: 'a b'", "consul_service", "letters, digits"),
        ("consul_prefix: dev//muster", "consul_prefix", "letters, digits"),
    ],
)
def test_errors_name_file_cluster_key_and_what_is_allowed(
    tmp_path: Path, lines: str, key: str, allowed: str
) -> None:
    entry = {
        "consul_service": "consul_service: bad",
        "group_id": "group_id: g",
        "topics": "topics: [t]",
        "consumers": "consumers: {handler: a.b}",
    }
    entry[lines.split(":", maxsplit=1)[0]] = lines
    text = "clusters:\n  bad:\n" + "".join(f"    {line}\n" for line in entry.values()) + GOOD
    path = write(tmp_path / "clusters.yaml", text)
    clusters = load_clusters(path)
    assert set(clusters.clusters) == {"good"}, "one wrong cluster does not take the others with it"
    message = clusters.errors["bad"]
    assert str(path) in message
    assert "'bad'" in message
    assert f"'{key}'" in message
    assert allowed in message
    with pytest.raises(SettingsError, match="'bad'"):
        clusters["bad"]


@pytest.mark.parametrize("text", ["", "[]", "clusters: 5", "clusters: {}\nmore: 1", "a: [", "\x00"])
def test_a_file_that_is_no_clusters_file(tmp_path: Path, text: str) -> None:
    found = load_clusters(write(tmp_path / "clusters.yaml", text))
    assert (list(found.general), found.errors) == (["clusters.yaml"], {})
    assert str(tmp_path / "clusters.yaml") in found.general["clusters.yaml"]
    with pytest.raises(SettingsError, match=r"no cluster 'x'; there are: none; .*clusters\.yaml"):
        found["x"]


def test_missing_file_and_unknown_cluster(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_clusters(tmp_path / "none.yaml")
    clusters = load_clusters(write(tmp_path / "clusters.yaml", "clusters:" + GOOD))
    with pytest.raises(SettingsError, match="no cluster 'x'; there are: good"):
        clusters["x"]


def test_two_clusters_cannot_share_a_consul_service(tmp_path: Path) -> None:
    text = "clusters:" + GOOD + GOOD.replace("good:", "other:", 1).replace("group_id: g", "group_id: h")
    assert "already that of cluster 'good'" in load_clusters(write(tmp_path / "c.yaml", text)).errors["other"]


def two_clusters(path: Path, more: str = "", other: str = "") -> Clusters:
    """`a` and `b`, both with the group g; `more` and `other` are further lines of each."""
    text = "".join(
        f"  {name}:\n    consul_service: {name}\n    group_id: g\n    topics: [t]\n"
        f"    consumers: {{handler: a.b}}\n{lines}"
        for name, lines in (("a", more), ("b", other))
    )
    return load_clusters(write(path / "c.yaml", "clusters:\n" + text))


def test_two_clusters_with_one_group_on_one_connection_are_refused(tmp_path: Path) -> None:
    clusters = two_clusters(tmp_path)
    assert set(clusters.clusters) == {"a"}
    for part in ("cluster 'b'", "key 'group_id'", "'g' is already that of cluster 'a'", "another group_id"):
        assert part in clusters.errors["b"]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("k1:9092,k2:9092", "K2", True),
        ("k1:9092", "k1:9093", False),
        ("k1:9092", "k2:9092", False),
        (None, "k1:9092", False),
    ],
)
def test_two_clusters_with_one_group_are_refused_where_connections_name_one_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str | None, second: str, same: bool
) -> None:
    for name, servers in (("KAFKA_A", first), ("KAFKA_B", second)):
        if servers is not None:
            value = {"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))
    clusters = two_clusters(tmp_path, "    kafka: kafka_a\n", "    kafka: kafka_b\n")
    assert ("b" in clusters.errors) is same, clusters.errors


def test_malformed_connection_in_the_environment_takes_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_A", '{"extra": 5')
    assert two_clusters(tmp_path, "    kafka: kafka_a\n").errors == {}


def test_consul_prefix_begins_the_keys_of_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    cluster = load_clusters(write(path, "clusters:" + GOOD + "    consul_prefix: dev/muster\n"))["good"]
    assert ConsulCluster.of(ConsulSettings(), cluster).keys.prefix == "dev/muster/good/"
    cluster = load_clusters(write(path, "clusters:" + GOOD))["good"]
    assert ConsulCluster.of(ConsulSettings(), cluster).keys.prefix == "muster/good/"


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("20s", 20), ("5m", 300), ("2h", 7200), (7, 7), (0.5, 0.5)]
)
def test_durations_are_read(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5 days", -1, True, None, "1e3s", "-5s"])
def test_malformed_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        parse_duration(text)


def settings() -> ConsumerSettings:
    return ConsumerSettings(
        cluster="c",
        consumer="c-1",
        incarnation="i",
        consul_service="s",
        zookeeper=ZooKeeperSettings(hosts="h:1", password=SecretStr("zk-secret"), username="u"),
        consul=ConsulSettings(token=SecretStr("consul-secret")),
        kafka=KafkaSettings(config={"bootstrap.servers": "k:1"}),
        handler="a.b",
    )


def test_consumer_settings_survive_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings().to_environment().items():
        monkeypatch.setenv(name, value)
    assert ConsumerSettings.from_environment() == settings()


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "secret" not in repr(settings())
    monkeypatch.setenv(VARIABLE, settings().model_dump_json().replace('"c-1"', '"c/1"'))
    with pytest.raises(ValueError, match="consumer: ") as caught:
        ConsumerSettings.from_environment()
    assert "secret" not in str(caught.value)


def test_kafka_properties_that_belong_to_muster_are_refused() -> None:
    with pytest.raises(ValueError, match=r"group\.id: set by Muster itself"):
        KafkaSettings(config={"bootstrap.servers": "k:1", "group.id": "mine"})
    with pytest.raises(ValueError, match=r"needs 'bootstrap\.servers'"):
        KafkaSettings(config={})


def test_notifiers_by_their_path_alone_or_with_options(tmp_path: Path) -> None:
    text = "clusters:" + GOOD + "    on_stuck: [a.B, {notifier: c.D, options: {to: [x]}}]\n"
    [plain, other] = load_clusters(write(tmp_path / "c.yaml", text))["good"].on_stuck
    assert (plain.notifier, plain.options) == ("a.B", {})
    assert (other.notifier, other.options) == ("c.D", {"to": ["x"]})


def test_retention_has_defaults_and_wrong_values_leave_the_clusters_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    default = load_clusters(write(path, "clusters:" + GOOD)).retention
    assert default is not None
    assert (default.quiet_runs, default.failures, default.longest) == (86_400, 7 * 86_400, 90 * 86_400)
    read = load_clusters(write(path, "retention: {quiet_runs: 2h, history: 30d}\nclusters:" + GOOD)).retention
    assert read is not None
    assert (read.quiet_runs, read.history) == (7_200, 30 * 86_400)
    wrong = load_clusters(write(path, "retention: {quite_runs: 2h, quiet_runs: soon}\nclusters:" + GOOD))
    assert wrong.retention is None
    assert (list(wrong.clusters), wrong.errors) == (["good"], {})
    assert f"{path}:1: 'retention', key 'quiet_runs': a duration is" in wrong.general["retention"]
    assert "key 'quite_runs': unknown key; did you mean 'quiet_runs'?" in wrong.general["retention"]
    wrong = load_clusters(write(path, "retained: {}\nclusters:" + GOOD))
    assert (
        f"{path}:1: unknown top-level key 'retained'; only 'clusters' and 'retention'"
        in wrong.general["c.yaml"]
    )
    assert wrong.retention is None, "what was meant may have been retention"


def test_poison_is_parked_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    found = load_clusters(write(tmp_path / "c.yaml", f"clusters:{GOOD}"))["good"]
    assert found.consumers.on_poison == "park"
    assert found.dead_letter_topic == "__muster.dead-letters.good"


@pytest.mark.parametrize(
    ("text", "rates"),
    [("1000", {".*": 1000.0}), ("{invoices: 10, 'audit-.*': 0.5}", {"invoices": 10.0, "audit-.*": 0.5})],
)
def test_rates_are_for_each_topic_or_by_patterns(tmp_path: Path, text: str, rates: dict[str, float]) -> None:
    good = GOOD.replace("a.b}", f"a.b, max_rate: {text}}}")
    found = load_clusters(write(tmp_path / "c.yaml", f"clusters:{good}"))["good"]
    assert found.consumers.max_rate == rates


@pytest.mark.parametrize("text", ["0", "{t: -1}", "{t: .inf}", "{'(': 5}", "true", "[5]"])
def test_rate_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    good = GOOD.replace("a.b}", f"a.b, max_rate: {text}}}")
    assert "max_rate" in load_clusters(write(tmp_path / "c.yaml", f"clusters:{good}")).errors["good"]


def test_no_batch_is_asked_about_unless_max_batch_time_is_set(tmp_path: Path) -> None:
    found = load_clusters(write(tmp_path / "c.yaml", f"clusters:{GOOD}"))["good"]
    assert found.consumers.max_batch_time is None
    text = GOOD.replace("a.b}", "a.b, max_batch_time: 5m}")
    assert (
        load_clusters(write(tmp_path / "c.yaml", f"clusters:{text}"))["good"].consumers.max_batch_time == 300
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("on_poison: retry", "'park', 'dead_letter' or 'stop'"),
        ("max_attempts: 0", "max_attempts"),
        ("dead_letter_topic: 'a/b'", "allowed are"),
        ("dead_letter_topic: t", "which the cluster itself reads"),
        ("dead_letter_topic: x-letters", "which the cluster itself reads"),
        ("on_poison: dead_letter}\n    fencing: false #", "needs 'fencing: true'"),
    ],
)
def test_settings_of_poison_that_cannot_be_meant_are_refused(tmp_path: Path, more: str, said: str) -> None:
    text = GOOD.replace("[t]", "{names: [t], patterns: ['x-.*']}").replace("a.b}", f"a.b, {more}}}")
    assert said in load_clusters(write(tmp_path / "c.yaml", f"clusters:{text}")).errors["good"]


@pytest.mark.parametrize(
    ("text", "of_trains", "of_planes"),
    [
        ("5m", 300.0, 300.0),
        ("{trains: 1m, '.*': 1h}", 60.0, 3_600.0),
        ("{'train': 1m, 'tr.*': 90}", 90.0, None),
        ("{}", None, None),
    ],
)
def test_max_lag_is_of_the_first_name_that_matches(
    tmp_path: Path, text: str, of_trains: float | None, of_planes: float | None
) -> None:
    good = GOOD.rstrip("\n") + f"\n    max_lag: {text}\n"
    found = load_clusters(write(tmp_path / "c.yaml", f"clusters:{good}"))["good"]
    assert (found.max_lag_of("trains"), found.max_lag_of("planes")) == (of_trains, of_planes)


@pytest.mark.parametrize("text", ["0", "soon", "[5m]", "{'(': 5m}", "{t: -1}"])
def test_malformed_max_lag_is_a_mistake_of_its_cluster(tmp_path: Path, text: str) -> None:
    good = GOOD.rstrip("\n") + f"\n    max_lag: {text}\n"
    assert "max_lag" in load_clusters(write(tmp_path / "c.yaml", f"clusters:{good}")).errors["good"]
