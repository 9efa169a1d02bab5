"""The connector's jar: what is in it, the same bytes whenever it is built, and that the wheel has it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from devstack.connector import build_connector, connector_jar
from muster.consumer.connector import JAR
from tests.support.only_long import only_long

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@only_long
def test_jar_has_the_same_bytes_whenever_it_is_built(tmp_path: Path) -> None:
    one, other = (build_connector(tmp_path / name).read_bytes() for name in ("one", "another/folder"))
    assert digest(one) == digest(other)


def test_jar_holds_kafkas_client_under_another_name_and_nothing_of_spark() -> None:
    with ZipFile(connector_jar()) as jar:
        classes = [name for name in jar.namelist() if name.endswith(".class")]
        registered = jar.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister")
    assert registered.split() == [b"muster.connector.MusterSource"]
    assert "muster/connector/shaded/kafka/clients/consumer/KafkaConsumer.class" in classes
    assert [name for name in classes if not name.startswith("muster/connector/")] == []


def test_wheel_of_the_checkout_holds_the_jar_and_every_other_file_of_the_package(tmp_path: Path) -> None:
    jar = connector_jar()
    # A copy, because setuptools leaves folders of its own.
    checkout = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "include", checkout / "include", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, checkout / name)
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "build", "--wheel", "--quiet", "--no-build-isolation"),
            *("--python", sys.executable, "--out-dir", str(tmp_path), str(checkout)),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as content:
        assert digest(content.read(f"muster/consumer/{JAR.name}")) == digest(jar.read_bytes())
        missing = package_files(checkout / "include") - set(content.namelist())
    assert sorted(missing) == []


def package_files(folder: Path) -> set[str]:
    """The files of `muster` below `folder`, as a wheel names them."""
    return {
        path.relative_to(folder).as_posix()
        for path in (folder / "muster").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
