"""Exclusions: a person keeps a consumer away from topics. To an assignor it looks as if it did not subscribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.core.model import Consumer


def without_excluded(
    consumers: Mapping[str, Consumer], exclusions: Mapping[str, frozenset[str]], topics: Iterable[str]
) -> Mapping[str, Consumer]:
    """Return `consumers` with what each one is excluded from taken out of its subscription.

    `exclusions` is consumer to topics, `topics` are those there are. A consumer that is not excluded from
    anything it would take stays as it is, one that takes everything goes on taking all of `topics` but those.
    Exclusions of consumers or topics that do not exist have no effect.
    """
    if not exclusions:
        return consumers
    existing = frozenset(topics)
    changed: dict[str, Consumer] = {}
    for name, kept_from in exclusions.items():
        consumer = consumers.get(name)
        if consumer is None:
            continue
        wanted = existing if consumer.topics is None else consumer.topics
        if wanted & kept_from & existing:
            changed[name] = replace(consumer, topics=wanted - kept_from)
    return {**consumers, **changed}
