"""What the Python processes of executors get to reach Kafka, and what the error says if they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.consumer.connector import runs_with_driver
from muster.consumer.source.java_client import KafkaSettingError
from muster.consumer.source.portable import portable
from muster.consumer.source.protocol import NextBatch
from muster.edges.executor_settings import FILE, ExecutorSettingsError, ask_executor
from muster.settings.connections import KafkaSettings
from tests.support.settings_server import TOKEN, giving

KAFKA = KafkaSettings(
    config={"bootstrap.servers": "k:9092", "sasl.password": "secret"}, operation_timeout=3.0
)


def test_executor_gives_settings_for_the_token(tmp_path: Path) -> None:
    with giving(tmp_path, KAFKA):
        assert ask_executor(tmp_path) == ("7", KAFKA)
        file = tmp_path / FILE
        file.write_text(file.read_text().replace(TOKEN, "f" * len(TOKEN)))
        with pytest.raises(ExecutorSettingsError, match="same version"):
            ask_executor(tmp_path)


@pytest.mark.parametrize("said", [None, "", "127.0.0.1 port token", "127.0.0.1 1 token"])
def test_executor_without_a_connector_is_named(tmp_path: Path, said: str | None) -> None:
    if said is not None:
        (tmp_path / FILE).write_text(said)
    with pytest.raises(ExecutorSettingsError, match="not persisted"):
        ask_executor(tmp_path)


def test_portable_settings_hold_what_files_have(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    files = {f"ssl.{name}.location": str(tmp_path / name) for name in ("ca", "certificate", "key")}
    found = portable(KafkaSettings(config={**KAFKA.config, **files}, operation_timeout=3.0))
    pems = {f"ssl.{name}.pem": f"PEM of {name}" for name in ("ca", "certificate", "key")}
    assert found == KafkaSettings(config={**KAFKA.config, **pems}, operation_timeout=3.0)
    (tmp_path / "ca").unlink()
    with pytest.raises(KafkaSettingError, match=r"ssl\.ca\.location"):
        portable(KafkaSettings(config={**KAFKA.config, **files}))


def test_plan_does_not_show_its_settings() -> None:
    batch = NextBatch(offset={}, state=KAFKA.model_dump_json())
    assert "secret" not in repr(batch)
    assert "secret" in batch.model_dump_json(by_alias=True)


@pytest.mark.parametrize(
    ("master", "here"),
    [("local", True), ("local[*]", True), ("local-cluster[2,1,512]", False), ("yarn", False), (None, False)],
)
def test_local_masters_run_tasks_with_the_driver(master: str | None, here: bool) -> None:
    assert runs_with_driver(master) is here
