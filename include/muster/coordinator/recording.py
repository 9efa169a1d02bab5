"""Writes down in the history what consumers report to be lost or left out."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from muster.core import losses
from muster.core.history import CommandEntry
from muster.core.model import ConsumerStatus
from muster.edges.zookeeper import TopicStore

log = logging.getLogger(__name__)

LOOK_BACK = 5_000
"""Entries of the history that are looked through for what consumers report to be lost."""


def record_losses(store: TopicStore, statuses: Mapping[str, ConsumerStatus]) -> None:
    """Write down what the history does not have yet."""
    for entry in unrecorded(store, statuses):
        log.warning("consumer %s: %s (%s): %s", entry.who, entry.what, entry.why, entry.details)
        store.append_history(entry)


def unrecorded(store: TopicStore, statuses: Mapping[str, ConsumerStatus]) -> list[CommandEntry]:
    """Return what consumers report, and the history does not have."""
    reported = losses.entries(statuses)
    if not reported:
        return []
    # By ZooKeeper's clock, which has written the entries; consumers' clocks may differ from it.
    page = store.history(limit=LOOK_BACK, since=store.now() - 2 * losses.REPORTED)
    entries = (record.entry for record in page.records)
    known = {losses.identity(entry) for entry in entries if isinstance(entry, CommandEntry)}
    return [entry for entry in reported if losses.identity(entry) not in known]
