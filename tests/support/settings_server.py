"""What the connector is for Python processes of an executor: it gives Kafka's settings to those with the token."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.edges.executor_settings import FILE
from muster.settings.connections import KafkaSettings

TOKEN = "0123456789abcdef" * 4


@contextmanager
def giving(folder: Path, kafka: KafkaSettings, executor: str = "7") -> Iterator[None]:
    """Answer as executor `executor`, whose stores are in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(f"127.0.0.1 {server.getsockname()[1]} {TOKEN}")
        thread = threading.Thread(target=_serve, args=(server, f"{executor}\n{kafka.model_dump_json()}"))
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def _serve(server: socket.socket, answer: str) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            if client.recv(len(TOKEN), socket.MSG_WAITALL) == TOKEN.encode():
                client.sendall(answer.encode())
