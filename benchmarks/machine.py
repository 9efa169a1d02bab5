"""How busy the machine is before a benchmark begins, which its report says."""

from __future__ import annotations

import psutil

LOOK = 2.0
"""Seconds for which other work on the machine is looked for."""


def load() -> float:
    """Return how many cores other work takes now: the load average would still show the benchmark before."""
    return sum(psutil.cpu_percent(LOOK, percpu=True)) / 100
