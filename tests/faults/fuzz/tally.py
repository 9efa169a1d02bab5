"""How many inputs were played, counted where each is given to the project's code."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, settings

from tests.support.only_long import ALL_FAULTS

PLAYED: Counter[str] = Counter()
"""By kind of input; what Hypothesis plays again, because something failed, counts again."""

KINDS = frozenset(
    {
        "znode, coordinator",
        "znode, consumer",
        "partition child",
        "racks node",
        "history entry",
        "Consul key",
        "Consul entry",
        "Consul answer",
        "status answer",
        "clusters.yaml",
        "DAG parameter",
        "command line",
        "local API",
        "environment",
    }
)


def count(kind: str, inputs: int = 1) -> None:
    assert kind in KINDS
    PLAYED[kind] += inputs


def examples(number: int) -> settings:
    """The same inputs in every run, so that what fails once fails again; all of them with every fault."""
    return settings(
        max_examples=number if ALL_FAULTS else number // 4,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
