"""How many inputs Hypothesis draws: a third in the usual runs, which draw other ones each time.

A test that fails prints its smallest input. With `CI` set Hypothesis draws the same ones in each run.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.support.only_long import LONG

ALL = LONG or "MUSTER_MUTANTS" in os.environ
"""`make test-mutants` draws all, too, for tests to notice as many mutants."""


def examples(number: int) -> settings:
    """Draw so many in the long run."""
    return settings(max_examples=number if ALL else number // 3, deadline=None)
