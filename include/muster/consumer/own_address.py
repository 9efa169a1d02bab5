"""The address of this machine at which Consul and the coordinator can reach it."""

from __future__ import annotations

import socket
from ipaddress import ip_address


def own_address(consul_host: str) -> str:
    """The address that this machine has on the way to Consul; the loopback address if Consul is on it."""
    try:
        if consul_host == "localhost" or ip_address(consul_host).is_loopback:
            return "127.0.0.1"
    except ValueError:
        pass  # a host name
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((consul_host, 9))  # sends nothing; it only chooses the local address
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
