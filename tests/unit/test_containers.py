"""The Dockerfiles and the Helm values, as far as they can be tested without Docker and Helm."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.settings.clusters import load_clusters

ROOT = Path(__file__).resolve().parents[2]
CONTAINERS = ROOT / "containers"
VALUES: dict[str, Any] = yaml.safe_load((CONTAINERS / "values.yaml").read_text(encoding="utf-8"))
IMAGES = sorted(CONTAINERS.glob("*.Dockerfile"))
PINS = (ROOT / "requirements.txt").read_text(encoding="utf-8")


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Each instruction with its arguments; a line that ends with a backslash goes on."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line)]


def pinned(package: str) -> str:
    found = re.search(rf"^{package}==([^ ]+)", PINS, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("dockerfile", IMAGES, ids=lambda path: path.name)
def test_dockerfile_has_instructions_and_copies_what_is_there(dockerfile: Path) -> None:
    known = {"ARG", "FROM", "USER", "RUN", "COPY", "ENV", "WORKDIR", "ENTRYPOINT"}
    found = instructions(dockerfile)
    assert {word for word, _ in found} <= known
    copied = [
        word for name, rest in found if name == "COPY" and "--from" not in rest for word in rest.split()
    ]
    assert [name for name in copied if "/" not in name and not name.startswith("--")] == ["requirements.txt"]
    assert "dist/muster_kafka-*.whl" in copied


def test_images_have_the_versions_that_are_pinned() -> None:
    given = {
        name: value
        for dockerfile in IMAGES
        for word, rest in instructions(dockerfile)
        if word == "ARG"
        for name, value in [rest.split("=")]
    }
    assert given["AIRFLOW_VERSION"] == VALUES["airflowVersion"] == pinned("apache-airflow")
    assert given["SPARK_VERSION"] == pinned("pyspark")


def test_values_have_settings_that_load(tmp_path: Path) -> None:
    (config_map,) = VALUES["extraConfigMaps"].values()
    for name, text in yaml.safe_load(config_map["data"]).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = load_clusters(tmp_path)
    assert not found.errors
    assert found["flights"].airflow.consumers.executor in VALUES["executor"].split(",")
    (mount,) = VALUES["volumeMounts"]
    assert {entry["name"]: entry["value"] for entry in VALUES["env"]}["MUSTER_CLUSTERS"] == mount["mountPath"]
    assert [volume["configMap"]["name"] for volume in VALUES["volumes"]] == list(VALUES["extraConfigMaps"])


def test_values_make_every_connection_of_the_settings() -> None:
    given = {entry["envName"] for entry in VALUES["secret"]}
    given |= {entry["name"] for entry in yaml.safe_load(VALUES["extraEnv"])}
    assert {
        f"AIRFLOW_CONN_MUSTER_{name}" for name in ("KAFKA", "ZOOKEEPER", "CONSUL", "SPARK", "AIRFLOW")
    } <= given


def test_values_set_what_airflow_knows_and_install_names() -> None:
    airflow = importlib.util.find_spec("airflow")
    assert airflow is not None and airflow.origin is not None
    known = yaml.safe_load(
        (Path(airflow.origin).parent / "config_templates" / "config.yml").read_text("utf-8")
    )
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for section, options in VALUES["config"].items():
        for option, value in options.items():
            assert option in known[section]["options"], f"[{section}] {option}"
            assert f"| `[{section}] {option}` | `{value}` |" in page
