"""Which process a connection belongs to: how a proxy cuts off one consumer and lets the others pass."""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil


def processes_of_sessions(sessions: Iterable[int]) -> list[psutil.Process]:
    """The living processes of these sessions: a consumer's JVM, its driver and its Python workers share one."""
    wanted = set(sessions)
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in wanted and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue
    return found


def ports_of(processes: Iterable[psutil.Process]) -> set[int]:
    """The local TCP ports of all connections of these processes."""
    ports = set()
    for process in processes:
        try:
            ports |= {c.laddr.port for c in process.net_connections(kind="tcp") if c.raddr}
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return ports


def process_at(port: int) -> psutil.Process | None:
    """The process whose connection comes from local TCP port `port`; None if it is gone."""
    for connection in psutil.net_connections(kind="tcp"):
        local = connection.laddr
        if connection.raddr and local and local.port == port and connection.pid is not None:
            return psutil.Process(connection.pid)
    return None
