"""What a process of a benchmark says when it ends."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.harness.worker import Worker


def test_worker_that_ended_says_by_what(tmp_path: Path) -> None:
    with closing(Worker(int, signal.SIGKILL, log=tmp_path / "log")) as worker:
        with pytest.raises(RuntimeError, match="SIGKILL"):
            worker.call(signal.raise_signal)
        assert worker.killed
    with closing(Worker(int, 0, log=tmp_path / "log")) as worker:
        with pytest.raises(RuntimeError, match=r"exit code 1(?s:.*)has no len"):
            worker.call(len)
        assert not worker.killed
