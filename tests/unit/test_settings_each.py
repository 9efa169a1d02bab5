"""An entry a consumer: what one of those that Airflow runs has instead of what all have."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.edges.consul_members import Registration, to_consumer
from muster.settings.clusters import Clusters, load_clusters


def load(path: Path, each: str, more: str = "") -> Clusters:
    file = path / "c.yaml"
    file.write_text(
        "clusters:\n  x:\n    consul_service: x\n    group_id: x\n    topics: [t, u]\n"
        f"    consumers:\n      handler: a.b\n      count: 3\n      {more}\n      each: {each}\n"
    )
    return load_clusters(file)


def test_planner_sees_what_one_consumer_has_of_its_own(tmp_path: Path) -> None:
    each = "{x-2: {weight: 2.5, zone: b, priority: 5, topics: [t, u], metadata: {disks: 4}}}"
    found = load(tmp_path, each, "metadata: {zone: a, team: red}")["x"].consumers
    assert found.metadata_of("x-1") == {"zone": "a", "team": "red"}
    second = to_consumer(Registration("x-2", meta=found.metadata_of("x-2") | {"pid": "7", "version": "1"}))
    assert (second.weight, second.zone, second.priority) == (2.5, "b", 5)
    assert second.topics == {"t", "u"}
    assert second.metadata == {"team": "red", "disks": "4"}, "what Muster does not know, and nothing else"


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (
            "{x-2: {wieght: 2}}",
            ":10: cluster 'x', key 'consumers.each.x-2.wieght': unknown key; did you mean 'weight'?",
        ),
        ("{x-2: {weight: 0}}", "'consumers.each.x-2.weight'"),
        ("{x-2: {topics: [a/b]}}", "'consumers.each.x-2.topics.0'"),
        ("{x-2: {topics: []}}", "at least 1 item"),
        ("{y-2: {weight: 2}}", "'consumers.each' has 'y-2'; a consumer is called x-[NUMBER], such as x-1"),
        ("{x-2: {metadata: {pid: 7}}}", "key 'pid' is set by the consumer itself"),
        ("{x-2: {metadata: {a b: 7}}}", "letters, digits"),
        (
            f"{{x-2: {{zone: {'z' * 250}, topics: [{'t' * 249}, {'u' * 249}, {'v' * 249}]}}}}",
            "at most 512 bytes",
        ),
    ],
)
def test_mistake_in_an_entry_of_a_consumer_is_named(tmp_path: Path, each: str, expected: str) -> None:
    assert expected in load(tmp_path, each).errors["x"]


def test_entry_of_a_consumer_that_is_not_run_now_waits_for_it(tmp_path: Path) -> None:
    assert load(tmp_path, "{x-9: {weight: 2}}").errors == {}


def test_consumer_is_placed_by_its_own_entry_else_by_that_of_all(tmp_path: Path) -> None:
    more = "bind: '::'\n      port: 8080"
    found = load(tmp_path, "{x-2: {advertise: host-2.example, port: 0}}", more)["x"].consumers
    assert found.place_of("x-1") == ("::", "", 8080)
    assert found.place_of("x-2") == ("::", "host-2.example", 0)
    for wrong in ("http://h", "h:80", "a b", "h/x"):
        error = load(tmp_path, f'{{x-2: {{advertise: "{wrong}"}}}}').errors["x"]
        assert "an IP address or a host name, without scheme and port" in error
