"""Where a consumer is: the address that its status page listens on, and the one that it is registered under.

Others have to reach it: the coordinator from another machine, and Consul's agent for its check. So a loopback address
is taken only where everything is on one machine.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from ipaddress import ip_address

from muster.edges.consul_api import ConsulApi, ConsulError
from muster.settings.consumer import ConsumerSettings

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def placed(settings: ConsumerSettings) -> ConsumerSettings:
    """Return `settings` with the addresses that are not given.

    Where `bind` is a wildcard, such as 0.0.0.0, the address to register is still looked for.
    """
    bind, advertise = settings.bind, settings.advertise
    if not advertise and bind and not _is_wildcard(bind):
        advertise = bind
    if not bind and advertise and is_own(advertise):
        bind = advertise
    if not (bind and advertise):
        here = own_address(settings)
        bind, advertise = bind or here, advertise or here
    return settings.model_copy(update={"bind": bind, "advertise": advertise})


def own_address(settings: ConsumerSettings) -> str:
    """Return the address of this machine that others reach: the first that is not a loopback address of

    1. the one on the way to Consul's agent, which is on another machine then;
    2. the one that a local agent advertises, if it is this machine's (an agent may be in another container);
    3. those on the way to ZooKeeper's servers.
    """
    for address in _candidates(settings):
        if address and not _is_loopback(address):
            return address
    return LOOPBACK


def _candidates(settings: ConsumerSettings) -> Iterator[str]:
    yield _on_the_way_to(settings.consul.host)
    try:
        advertised = ConsulApi(settings.consul).advertised_address()
    except ConsulError as error:
        log.warning(
            "the address of Consul's agent is unknown, and that on the way to ZooKeeper is taken: %s", error
        )
    else:
        yield advertised if is_own(advertised) else ""
    for server in settings.zookeeper.hosts.partition("/")[0].split(","):
        yield _on_the_way_to(server.strip().rpartition(":")[0].strip("[]") or server.strip())


def is_own(address: str) -> bool:
    """Tell whether this machine has `address`, an IP address or the name of one."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except (OSError, UnicodeError):
        return False
    return True


def _on_the_way_to(host: str) -> str:
    """Return the address that this machine has on the way to `host`, '' if there is no way."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # sends nothing; it only chooses the local address
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):
        return ""


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False  # a name


def _is_wildcard(address: str) -> bool:
    try:
        return ip_address(address).is_unspecified
    except ValueError:
        return False
