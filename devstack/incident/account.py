"""Every record accounted for: what is in the topic, held against what stands in each table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(frozen=True)
class Account:
    """Records, each counted once wherever it was written.

    `arrived` stand in every table; `missing` are those of the `produced` that do not; `duplicates` are rows of any
    table beyond the first of each record, and rows of records that were not produced.
    """

    produced: int
    arrived: int
    duplicates: int

    @property
    def missing(self) -> int:
        """Produced records that do not stand in every table."""
        return self.produced - self.arrived


def account(
    produced: Collection[Place], replayed: Mapping[Place, Place], tables: Mapping[str, Counter[Place]]
) -> Account:
    """Count what arrived.

    `replayed` has for each record that was written back the record that it was at first: both are one record.
    `tables` has for each table how many rows it has of each record.
    """
    produced = frozenset(produced)
    arrived = produced
    duplicates = 0
    for rows in tables.values():
        found = {replayed.get(place, place) for place in rows} & produced
        arrived &= found
        duplicates += rows.total() - len(found)
    return Account(len(produced), len(arrived), duplicates)
