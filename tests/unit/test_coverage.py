"""`Coverage` beside a plain set of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from muster.core.model import OffsetRange
from muster.sinks import Coverage

ranges = st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda t: (t[0], t[0] + t[1]))


@given(st.lists(ranges, max_size=12), ranges)
def test_coverage_against_a_set(covered: list[OffsetRange], asked: OffsetRange) -> None:
    coverage = Coverage()
    offsets: set[int] = set()
    for held in covered:
        coverage.add(*held)
        offsets |= set(range(*held))
    missing = coverage.missing(*asked)
    assert [n for held in missing for n in range(*held)] == sorted(set(range(*asked)) - offsets)
    assert all(a[1] < b[0] for a, b in pairwise(missing))
    assert [n for held in coverage.ranges for n in range(*held)] == sorted(offsets)
    assert coverage.ranges == Coverage(covered).ranges
