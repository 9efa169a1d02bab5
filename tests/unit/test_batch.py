"""What a handler is given beside the DataFrame."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from muster.sinks import Batch

RANGES = {("t", 0): (3, 5), ("t", 1): (0, 2)}


def test_partitions_without_an_offset_are_left_out() -> None:
    assert dict(Batch({**RANGES, ("t", 2): (7, 7)}).ranges) == RANGES


def test_id_names_the_offsets_and_the_topic() -> None:
    one = Batch(RANGES, {"t": "A"})
    assert one.id == Batch(dict(reversed(RANGES.items())), {"t": "A"}, attempt=2).id
    others = [Batch(RANGES), Batch(RANGES, {"t": "B"}), Batch({**RANGES, ("t", 1): (0, 3)}, {"t": "A"})]
    assert len({one, *others}) == 4
    assert one == Batch(RANGES, {"t": "A"})
    assert f"part-{one}" == f"part-{one.id}"
    assert len(one.id) == 32


def test_ranges_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        Batch(RANGES).ranges["t", 0] = (0, 1)  # type: ignore[index]


@pytest.mark.parametrize(
    "use",
    [
        int,
        float,
        bool,
        hex,
        lambda batch: batch == 0,
        lambda batch: 0 in [batch],
        lambda batch: batch % 10,
        lambda batch: batch + 1,
        lambda batch: batch > 3,
        range,
        lambda batch: "%d" % batch,  # noqa: UP031
        operator.index,
    ],
)
def test_use_as_a_number_is_refused(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"not Spark's batch_id.*batch\.id.*batch\.ranges|not Batch"):
        use(Batch(RANGES))
