"""Where a server runs: on this machine as it is, or on a host of its own (`devstack.hosts`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`address` is what a server there listens on, and is reached at; `prefix` begins the command line of what is to
    run there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


HERE = Place()
