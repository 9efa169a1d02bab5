"""Asks the connector in an executor's JVM for Kafka's settings, which came there with the ranges of its reader.

They hold secrets, so they stand in no closure, which Spark may write to disk. The file beside the executor's stores
says where the connector listens, and the token that it asks for; no other user can read it.
"""

from __future__ import annotations

import socket
from pathlib import Path

from muster.settings.connections import KafkaSettings

FILE = "settings-server"
TIMEOUT = 5.0
"""Seconds that an answer may take."""


class ExecutorSettingsError(RuntimeError):
    """The connector of this executor gave no settings; the message says what to do."""


def ask_executor(folder: Path) -> tuple[str, KafkaSettings]:
    """Return the id of the executor whose stores are in `folder`, and Kafka's settings. Raises
    `ExecutorSettingsError`."""
    try:
        host, port, token = (folder / FILE).read_text(encoding="ascii").split()
        with socket.create_connection((host, int(port)), TIMEOUT) as asked:
            asked.sendall(token.encode())
            with asked.makefile("r", encoding="utf-8") as answer:
                executor, text = answer.readline().strip(), answer.read()
    except (OSError, ValueError) as error:
        raise ExecutorSettingsError(
            f"the connector of this executor did not give Kafka's settings ({type(error).__name__}: {error}); it "
            "does where it has read a task's records: give batch.state the frame as it was read, not persisted"
        ) from error
    if not text:
        raise ExecutorSettingsError(
            "the connector of this executor gave no settings; check that its jar and muster are of the same version"
        )
    return executor, KafkaSettings.model_validate_json(text)
