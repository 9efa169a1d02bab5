"""How a consumer stands: the one place that says which consumers are missing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster.core.overrides import IsolationEntry
from muster.core.starting import Starting


class Condition(StrEnum):
    """How a consumer stands, each in exactly one.

    LIVE: registered, passing its check and not isolated. ISOLATED: a person took it out, registered or not. STARTING:
    its job has not been live yet, and comes on. FAILING: registered, and its check does not pass. ABSENT: not
    registered. UNKNOWN: Consul's answer is not to be trusted. The values are the words that users see.
    """

    LIVE = "live"
    ISOLATED = "isolated"
    FAILING = "not passing"
    STARTING = "starting"
    ABSENT = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer.

    `expected`: Airflow runs it for the cluster; `seen`: it is registered, isolated or assigned something, not only
    expected. `partitions` are those assigned to it. `failure` says why its status is unavailable, '' if it is not or
    it was not asked; `output` what its failing checks say; `isolation` who isolated it and why, None if that was
    Consul's maintenance mode, or it is not isolated.
    """

    consumer: str
    condition: Condition
    partitions: int
    expected: bool
    seen: bool
    weight: float | None = None
    zone: str | None = None
    priority: int | None = None
    address: str = ""
    failure: str = ""
    output: str = ""
    isolation: IsolationEntry | None = None
    starting: Starting | None = None
    """How far its job has come, or why that was given up; None if it has been live since."""

    @property
    def missing(self) -> bool:
        """Whether it is needed, and failing or absent: the settings want it, or partitions are assigned to it."""
        return self.condition in {Condition.FAILING, Condition.ABSENT} and (
            self.expected or bool(self.partitions)
        )

    @property
    def counted_as(self) -> str:
        """One of `COUNTED_AS`, which sums over consumers use."""
        if self.missing:
            return "missing"
        return "not_passing" if self.condition is Condition.FAILING else str(self.condition)


COUNTED_AS = ("live", "starting", "isolated", "missing", "not_passing", "unknown")
"""How consumers are counted, each in exactly one group. `not_passing` are failing ones that are not needed."""
