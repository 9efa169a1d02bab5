"""Free TCP ports on 127.0.0.1 for servers."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST = 15_000
_HIGHEST = 32_767
_given: set[int] = set()


def free_port() -> int:
    """Return a port on which no process listens, and which this process was not given before.

    It lies below the range that the kernel takes for outgoing connections. A client that tries again and again
    to reach a stopped server on a port of that range can be given this very port as its own end, is then
    connected to itself, and keeps the server from coming back.

    Another process may take the port before the server does: the caller that starts a server on it tries again then.
    """
    highest = min(_HIGHEST, _first_ephemeral() - 1)
    for _ in range(1000):
        port = random.randint(_LOWEST, max(highest, _LOWEST + 1000))  # noqa: S311  no secret depends on it
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError("no free TCP port found on 127.0.0.1; end some servers")


def is_free(port: int) -> bool:
    """Tell whether a server could listen on 127.0.0.1:`port` now, with TCP and UDP (Consul's gossip uses both)."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                # As servers do: connections of the last holder that linger in TIME_WAIT are no hindrance.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return _HIGHEST + 1  # not Linux: macOS and Windows begin at 49152
