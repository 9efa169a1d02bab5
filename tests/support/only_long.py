"""What is slow and rarely breaks: left out of `make test` unless `LONG=1` is set."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("LONG") == "1"
"""`make test LONG=1`."""
_FAULTS = os.environ.get("MUSTER_TEST_FAULTS") == "all"
ALL_FAULTS = LONG or _FAULTS
"""Every real fault: `make test-faults`, too."""
HOURS = LONG and _FAULTS
"""`make test-faults LONG=1`."""
only_long = pytest.mark.skipif(not LONG, reason="slow: LONG=1 runs it")
