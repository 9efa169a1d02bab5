"""Which deployment coordinates a cluster: notices two that share a cluster's keys in Consul. Pure.

Two deployments (dev and prod, say) with the same `consul_prefix`, `consul_service` and cluster name take each other's
consumers for their own. So the coordinator notes in Consul where its ZooKeeper nodes are, renews that while it runs,
and goes no further where another place was noted shortly before.
"""

from __future__ import annotations

from dataclasses import dataclass

RENEWED_EVERY = 60.0
"""Seconds until what is noted is written again."""
COUNTS_FOR = 300.0
"""Seconds for which another deployment's note counts: quiet runs may be 240 s apart."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The ZooKeeper `hosts` (`h1:2181,h2:2181`) and the `path` of a cluster's nodes there, its chroot in front.

    `at` is when that was noted, in seconds since the epoch. `modified` is Consul's index of the key.
    """

    hosts: str
    path: str
    at: float = 0.0
    modified: int = 0

    @classmethod
    def of(cls, connection: str, cluster: str) -> Deployment:
        """Name the deployment that reads `cluster` by this ZooKeeper connection string."""
        hosts, slash, chroot = connection.partition("/")
        return cls(hosts, f"{slash}{chroot}".rstrip("/") + f"/consumers/{cluster}")

    def __str__(self) -> str:
        return f"ZooKeeper {self.hosts}, {self.path}"

    def is_another(self, noted: Deployment) -> bool:
        """Tell whether `noted` is elsewhere: under another path, or on hosts of which none is one of these."""
        return self.path != noted.path or _addresses(self.hosts).isdisjoint(_addresses(noted.hosts))

    def due(self, noted: Deployment | None, now: float) -> bool:
        return noted is None or self.is_another(noted) or abs(now - noted.at) >= RENEWED_EVERY

    def clash(self, noted: Deployment | None, now: float) -> str:
        """Say which other deployment has `noted` that it coordinates the cluster, and what to do; '' if none has.

        A moment far in the future, which no clock has shown, counts as little as one long ago.
        """
        if noted is None or not self.is_another(noted) or abs(now - noted.at) >= COUNTS_FOR:
            return ""
        return (
            f"another deployment coordinates a cluster of this name with the same keys in Consul: {noted}, noted "
            f"{max(now - noted.at, 0.0):.0f} s ago, and this one is at {self}. Give each its own consul_prefix and "
            "consul_service. If ZooKeeper has moved, stop the coordinator that reads the old one and wait "
            f"{COUNTS_FOR / 60:g} minutes"
        )


def _addresses(hosts: str) -> set[str]:
    found = (host.strip().lower() for host in hosts.split(","))
    return {host if ":" in host else f"{host}:2181" for host in found if host}
