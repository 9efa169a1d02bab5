"""Writes batches by a `DeltaSink` of this process."""

from __future__ import annotations

from muster.sinks import DeltaSink
from tests.support.database_writer import PARTITIONS, batch_of


def write(
    sink: DeltaSink, *cuts: tuple[int, int], partitions: tuple[int, ...] = PARTITIONS, rebuild: int = 0
) -> None:
    for begin, end in cuts:
        sink.store(*batch_of(begin, end, partitions, rebuild))
