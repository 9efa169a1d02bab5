"""When a fault was injected, and when all was well again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Window:
    """One fault, which may be more than one injection (`times`).

    Times are in seconds since the epoch; `flowed` is when all partitions flowed again. `doubled` counts records that
    a handler was given again, where that is counted as the fault goes on.
    """

    fault: str
    planned: bool
    began: float
    times: int = 1
    ended: float = 0.0
    flowed: float = 0.0
    doubled: int = 0

    @property
    def seconds(self) -> float:
        """Until all partitions flowed again; if they never did, until that was given up."""
        return (self.flowed or self.ended) - self.began
