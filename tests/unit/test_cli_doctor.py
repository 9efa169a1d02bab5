"""What `muster doctor` says of a check, without a server; `tests/integration/test_doctor.py` asks real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.doctor import packages
from muster.doctor.consul import OVERRIDES, apart
from muster.doctor.findings import CheckOutcome, Part, counts, explained, failed, named
from muster.doctor.settings import check_executors, check_settings
from muster.doctor.versions import TESTED, check_version, numbers
from muster.settings.cluster_settings import ClusterSettings

ROOT = Path(__file__).parents[2]
PART = Part("kafka")
SECRET = "tell-nobody"  # noqa: S105


def test_an_error_is_taken_apart_into_problem_and_step() -> None:
    assert explained(ValueError("no answer; check it; and that")) == ("no answer", "check it; and that")
    heard = ValueError("no answer; last heard: refused; check it")
    assert explained(heard) == ("no answer; last heard: refused", "check it")
    assert explained(ValueError("no step")) == ("no step", "see the message")


def test_a_long_list_is_cut_in_the_finding() -> None:
    assert named(["a", "b"]) == "a; b"
    assert named(str(n) for n in range(8)) == "0; 1; 2; 3; 4 and 3 more"


def test_warnings_and_what_was_skipped_are_no_failure() -> None:
    well = [PART.ok("a", "x"), PART.warning("b", "x", "do"), PART.skipped("c", "x")]
    assert not failed(well)
    assert failed([*well, PART.failed("d", "x", "do")])
    assert counts(well) == {"ok": 1, "warning": 1, "failed": 0, "skipped": 1}
    assert [check.outcome for check in well] == [CheckOutcome.OK, CheckOutcome.WARNING, CheckOutcome.SKIPPED]


@pytest.mark.parametrize(
    ("server", "skew"),
    [(100.0, 0.0), (99.0, -0.5), (101.0, 0.0), (110.0, 9.0), (90.0, -9.5)],
)
def test_clocks_are_apart_only_by_what_whole_seconds_do_not_explain(server: float, skew: float) -> None:
    assert apart(server, 100.5, 101.0) == skew


@pytest.mark.parametrize(
    ("text", "read"), [("4.2.0rc1", (4, 2, 0)), ("2.16", (2, 16)), ("unknown", ()), ("3.11.dev", (3, 11))]
)
def test_versions_are_compared_by_their_numbers(text: str, read: tuple[int, ...]) -> None:
    assert numbers(text) == read


@pytest.mark.parametrize(
    ("of", "found", "outcome", "said"),
    [
        ("Spark", "4.3.1", CheckOutcome.OK, "Spark 4.3.1"),
        ("Spark", "3.5.9", CheckOutcome.OK, "Spark 3.5.9"),
        ("Spark", "3.4.4", CheckOutcome.WARNING, "older than what is tested"),
        ("Spark", "4.4.0", CheckOutcome.WARNING, "newer than what is tested"),
        ("Python", "3.12.1", CheckOutcome.OK, "Python 3.12.1"),
        ("Python", "3.14.0", CheckOutcome.WARNING, "newer than what is tested"),
        ("ZooKeeper", "unknown", CheckOutcome.OK, "3.9 is tested"),
    ],
)
def test_version_that_is_not_tested_is_a_warning(
    of: str, found: str, outcome: CheckOutcome, said: str
) -> None:
    check = check_version(PART, of, found)
    assert check.outcome is outcome
    assert said in check.found


def test_readme_shows_the_versions_that_are_tested() -> None:
    table = "\n".join(f"| {' | '.join(row)} |" for row in (TESTED, ["---"] * 6, map(str, TESTED.values())))
    assert table in (ROOT / "README.md").read_text()
    page = (ROOT / "docs" / "install.md").read_text()
    for name, tested in TESTED.items():
        assert f"| {name} | {tested} | {tested.by} |" in page


def test_versions_are_those_of_the_pins_and_of_the_package() -> None:
    pins = (ROOT / "requirements.in").read_text() + (ROOT / "devstack" / "go.mod").read_text()
    servers = (ROOT / "devstack" / "pom.xml").read_text()
    pinned = {
        "Airflow": re.search(r"^apache-airflow==([\d.]+)", pins, re.MULTILINE),
        "Spark": re.search(r"^pyspark==([\d.]+)", pins, re.MULTILINE),
        "Consul": re.search(r"hashicorp/consul v([\d.]+)", pins),
        "Kafka": re.search(r"<artifactId>kafka_2.13</artifactId>\s*<version>([\d.]+)", servers),
        "ZooKeeper": re.search(r"<artifactId>zookeeper</artifactId>\s*<version>([\d.]+)", servers),
    }
    for name, found in pinned.items():
        assert found is not None, name
        assert check_version(PART, name, found[1]).outcome is CheckOutcome.OK
    page = (ROOT / "docs" / "spark-clusters.md").read_text()
    locks = [lock.stem.removeprefix("pyspark-") for lock in (ROOT / "tests" / "spark").glob("pyspark-*.txt")]
    assert [lock for lock in locks if lock not in page] == []
    ends = min(locks, key=numbers), max(locks, key=numbers)
    assert [each.rpartition(".")[0] for each in ends] == [TESTED["Spark"].oldest, TESTED["Spark"].newest]
    project = (ROOT / "pyproject.toml").read_text()
    python = TESTED["Python"]
    after = f"3.{numbers(python.newest)[1] + 1}"
    assert f'requires-python = ">={python.oldest},<{after}"' in project
    assert f'"apache-airflow>={TESTED["Airflow"].oldest},' in project
    assert f"another version ({TESTED['Spark'].oldest} to {TESTED['Spark'].newest})" in project


def test_missing_and_old_requirements_fail_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["click>=8.1", "kazoo[sasl]>=99", "no-such-package", 'pyarrow>=18; extra == "own-spark"']
    monkeypatch.setattr(packages, "requires", lambda _: declared)
    found = {check.name: check for check in packages.check_packages(Part("packages"))}
    assert found["requirements"].outcome is CheckOutcome.FAILED
    assert "kazoo" in found["requirements"].found
    assert "no-such-package is not installed" in found["requirements"].found
    assert found["requirements"].step == "install the wheel again, or these packages"
    assert found["extra own-spark"].outcome is CheckOutcome.OK


@pytest.mark.parametrize(
    ("spark", "says", "outcome"),
    [
        ("4.2.0", 'openjdk version "17.0.1" 2021', CheckOutcome.OK),
        ("4.2.0", 'openjdk version "11.0.2" 2019', CheckOutcome.FAILED),
        ("3.5.7", 'java version "1.8.0_392"', CheckOutcome.OK),
        ("4.2.0", "", CheckOutcome.FAILED),
    ],
)
def test_java_is_looked_at_where_spark_is(
    spark: str, says: str, outcome: CheckOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if says:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
        java.chmod(0o755)
    _spark_in(tmp_path, monkeypatch, pyspark=spark)
    (check,) = (check for check in packages.check_packages(Part("packages")) if check.name == "Java")
    assert check.outcome is outcome
    assert str(tmp_path) in check.found
    assert outcome is CheckOutcome.OK or "JAVA_HOME" in check.step


def _spark_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, jars: str | None = None, **packages: str | None
) -> None:
    """Have SPARK_HOME name a Spark in an environment with these packages."""
    home = folder / "pyspark"
    (home / "jars").mkdir(parents=True)
    if jars:
        (home / "jars" / f"spark-core_2.13-{jars}.jar").touch()
    for name, version in packages.items():
        if version:
            info = folder / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: {version}\n")
    monkeypatch.setenv("SPARK_HOME", str(home))


@pytest.mark.parametrize(
    ("pyspark", "client", "jars", "mixed"),
    [
        ("4.2.0", "4.2.0", "4.2.0", ""),
        ("3.5.9", None, "3.5.9", ""),
        (None, None, "4.3.0", ""),
        (
            "4.2.0",
            "4.3.0",
            "4.2.0",
            "has pyspark 4.2.0, pyspark-client 4.3.0, jars 4.2.0: versions are mixed",
        ),
        ("4.2.0", None, "3.5.9", "has pyspark 4.2.0, jars 3.5.9: versions are mixed"),
    ],
)
def test_mixed_versions_of_spark_fail(
    pyspark: str | None,
    client: str | None,
    jars: str,
    mixed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Airflow has a pyspark of its own beside, which none of the jobs has."""
    _spark_in(tmp_path, monkeypatch, jars, pyspark=pyspark, pyspark_client=client)
    (check,) = (check for check in packages.check_packages(Part("packages")) if check.name == "one Spark")
    assert check.outcome is (CheckOutcome.FAILED if mixed else CheckOutcome.OK)
    assert mixed in check.found


def test_installed_spark_is_one_version() -> None:
    (check,) = (check for check in packages.check_packages(Part("packages")) if check.name == "one Spark")
    assert check.outcome is CheckOutcome.OK, check.found


def test_spark_without_any_java_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    _spark_in(tmp_path, monkeypatch, pyspark="4.2.0")
    (check,) = (check for check in packages.check_packages(Part("packages")) if check.name == "Java")
    assert check.outcome is CheckOutcome.FAILED
    assert "'java' is not on the PATH" in check.found


@pytest.mark.parametrize(
    ("conf", "address", "outcome", "said"),
    [
        ({}, "", CheckOutcome.WARNING, "listens on all addresses, from port 4040 on"),
        ({"spark.ui.port": "5000"}, "10.0.0.7", CheckOutcome.WARNING, "on 10.0.0.7, from port 5000 on"),
        ({}, "127.0.0.1", CheckOutcome.OK, "127.0.0.1 only"),
        ({"spark.ui.enabled": False}, "", CheckOutcome.OK, "is off"),
        ({"spark.ui.filters": "my.Filter"}, "", CheckOutcome.OK, "my.Filter"),
    ],
)
def test_spark_ui_that_others_reach_is_a_warning(
    conf: dict[str, Any], address: str, outcome: CheckOutcome, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", address)
    cluster = {"consul_service": "c", "group_id": "g", "topics": ["t"]}
    consumers = {"handler": "json.dumps", "spark_conf": conf}
    settings = ClusterSettings.model_validate({"name": "c", "consumers": consumers, **cluster})
    (check,) = (each for each in check_settings(Part("settings"), settings) if each.name == "Spark UI")
    assert (check.outcome, bool(check.step)) == (outcome, outcome is CheckOutcome.WARNING)
    assert said in check.found


@pytest.mark.parametrize(
    ("master", "standbys", "outcome", "said"),
    [
        ("local[*]", 1, CheckOutcome.OK, "with the drivers"),
        ("spark://master", 0, CheckOutcome.OK, "with spark://master executors keep copies"),
        ("yarn", 1, CheckOutcome.WARNING, "'standbys: 1' keep theirs with the drivers only"),
    ],
)
def test_standbys_without_copies_on_executors_are_a_warning(
    master: str, standbys: int, outcome: CheckOutcome, said: str
) -> None:
    settings = ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "c",
            "group_id": "g",
            "topics": ["t"],
            "assignor": {"name": "sticky", "options": {"standbys": standbys}},
            "consumers": {"handler": "json.dumps", "state": ["t"], "count": 2},
        }
    )
    check = check_executors(Part("settings"), settings, master)
    assert (check.outcome, bool(check.step)) == (outcome, outcome is CheckOutcome.WARNING)
    assert said in check.found


def doctor(path: Path, *args: str, **connections: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *args], env={"MUSTER_CLUSTERS": str(path), **connections})


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose clusters have no connections at all."""
    for name in ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "clusters.yaml"
    path.write_text(
        "clusters:\n"
        "  c: {consul_service: c, group_id: g, topics: [t], consumers: {handler: json.dumps}, status: pages,\n"
        "      on_stuck: [json.dumps, no.such.Notifier]}\n"
        "  d: {consul_service: d}\n"
    )
    return path


def test_missing_connections_are_reported_and_dependent_checks_skipped(clusters: Path) -> None:
    result = doctor(
        clusters, "--cluster", "c", "--json", AIRFLOW_CONN_PAGES=json.dumps({"password": SECRET + " "})
    )
    assert result.exit_code == 5
    assert SECRET not in result.output
    report = json.loads(result.stdout)
    found: dict[tuple[str, str], Any] = {(c["part"], c["name"]): c for c in report["clusters"]["c"]}
    for role in ("zookeeper", "consul", "kafka", "spark"):
        assert found["connections", role]["outcome"] == "failed"
        assert f"AIRFLOW_CONN_MUSTER_{role.upper()}" in found["connections", role]["step"]
    assert "header" in found["connections", "status"]["found"]
    for part in ("zookeeper", "consul", "kafka", "consumers"):
        assert found[part, "all"]["outcome"] == "skipped"
    assert found["settings", "handler"]["outcome"] == "ok"
    notifiers = [c["outcome"] for c in report["clusters"]["c"] if c["name"] == "on_stuck"]
    assert notifiers == ["ok", "failed"]
    assert report["counts"]["failed"] == 6
    assert set(report["clusters"]) == {"c"}


@pytest.mark.parametrize(
    ("value", "outcome", "said"),
    [
        ("", "warning", "'muster_airflow', and the DAG muster_pruning deletes no runs without it"),
        ('{"host": "http://a", "login": "m"}', "failed", "muster_airflow"),
        ('{"host": "http://a", "login": "m", "password": "p"}', "ok", "well-formed"),
    ],
)
def test_connection_of_pruning_may_be_missing_and_must_be_well_formed(
    clusters: Path, value: str, outcome: str, said: str
) -> None:
    report = json.loads(doctor(clusters, "--json", AIRFLOW_CONN_MUSTER_AIRFLOW=value).stdout)
    (found,) = [check for check in report["general"] if check["name"] == "retention.airflow"]
    assert (found["part"], found["outcome"], bool(found["step"])) == ("connections", outcome, outcome != "ok")
    assert said in found["found"]


@pytest.mark.parametrize("args", [(), ("--all-clusters",)])
def test_every_cluster_is_looked_at_and_the_next_step_is_named(clusters: Path, args: tuple[str, ...]) -> None:
    result = doctor(clusters, *args)
    assert result.exit_code == 5
    assert "cluster c" in result.stdout
    assert "failed: settings, cluster: correct the entry" in result.stdout
    assert re.search(r"doctor: \d+ ok, \d+ warning, 7 failed, \d+ skipped", result.stdout)


def test_a_file_that_cannot_be_read_is_a_finding(clusters: Path) -> None:
    missing = doctor(clusters.parent / "none.yaml", "--json")
    assert missing.exit_code == 5
    (wrong,) = [c for c in json.loads(missing.stdout)["general"] if c["outcome"] == "failed"]
    assert wrong["name"] == "files"
    assert "none.yaml" in wrong["found"]
    clusters.write_text(clusters.read_text() + "\nretention: {quiet_runs: soon}\n")
    report = json.loads(doctor(clusters, "--json").stdout)
    assert ("retention", "correct the file") in {(c["name"], c["step"]) for c in report["general"]}
    assert report["clusters"].keys() == {"c", "d"}


def test_doctor_checks_every_key_that_persons_write() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    (row,) = re.findall(r"^\| a person who gives commands .*$", page, re.MULTILINE)
    assert set(re.findall(r"`(?:muster/flights/)?(\w+)/`", row)) == set(OVERRIDES)
