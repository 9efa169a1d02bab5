"""A line on each world of `tests.support.poison_worlds` that was played, for `pytest -s`.

It has the shape of the table by which the rule was chosen, so that both can be laid side by side.
"""

from __future__ import annotations

import statistics

from muster.core.turns import HOUR
from tests.support.poison_worlds import Flow

HEADER = "world                        rule    good  found of      min   stood asked  after    read"
"""Good records left out, bad ones left out of so many, the median minutes for which these were waited for, hours for
which partitions stood, questions, the median minutes before them, and the share of records that was read."""


def row(name: str, flow: Flow) -> str:
    """Return the line of a world."""
    ends = {tp: flow.end(tp) for tp in flow.at}
    bad = sum(len(flow.bads(tp, 0, end)) for tp, end in ends.items())
    good = len(flow.good)
    found = len(flow.letters) + len(flow.answered) + flow.named - good
    took = statistics.median([*flow.took, *flow.named * [0.0]] or [0.0]) / 60
    after = statistics.median(flow.after or [0.0]) / 60
    return (
        f"{name:28} {'ten':6}{good:6}{found:7} {bad:<6}{took:6.1f}{flow.stood / HOUR:8.1f}"
        f"{len(flow.asked):6}{after:7.1f}{flow.read:9.2%}"
    )
