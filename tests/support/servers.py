"""Servers that a test starts and stops by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from devstack.server import Server

S = TypeVar("S", bound=Server)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Start `server` and stop it at the end, even if the test has frozen it."""
    server.start()
    try:
        yield server
    finally:
        server.resume()
        server.stop()
