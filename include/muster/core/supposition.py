"""Suppositions about a cluster, held against what is there: what consumers joined, left or grew. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.core.assignors import Assignor
from muster.core.model import Consumer, Membership
from muster.core.preview import WhatIf, WhatIfError

ATTRIBUTES = "weight=2, zone=b, priority=1, topics=a|b"
"""What a consumer may be supposed to have, as the command line writes it."""


@dataclass(frozen=True)
class Joining:
    """A consumer that is supposed to be there, and the attributes that were given."""

    consumer: str
    attributes: Mapping[str, Any]


def what_if(
    without: Sequence[str],
    joining: Sequence[Joining],
    partitions: Sequence[tuple[str, int]],
    assignor: Assignor | None,
    membership: Membership,
    unreadable_topics: Mapping[str, str],
) -> WhatIf:
    """Put suppositions together. A consumer that is live keeps the attributes that are not given.

    `unreadable_topics` maps the topics that cannot be read to the reason. Raises `WhatIfError` for what does not fit
    what is there.
    """
    for topic, _ in partitions:
        if topic in unreadable_topics:
            raise WhatIfError(f"topic {topic!r} cannot be read: {unreadable_topics[topic]}")
    supposed: dict[str, Consumer] = {}
    for each in joining:
        there = membership.live.get(each.consumer)
        if there is not None and not each.attributes:
            raise WhatIfError(
                f"consumer {each.consumer!r} is live already; to suppose other attributes, name them: {ATTRIBUTES}"
            )
        supposed[each.consumer] = replace(there or Consumer(each.consumer), **each.attributes)
    return WhatIf(frozenset(without), supposed, dict(partitions), assignor)
