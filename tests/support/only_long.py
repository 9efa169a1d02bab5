"""What is slow and rarely breaks: left out of `make test` unless `LONG=1` is set."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("LONG") == "1"
only_long = pytest.mark.skipif(not LONG, reason="slow: LONG=1 runs it")
