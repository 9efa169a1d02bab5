"""What the demo and the incident say before they begin."""

from __future__ import annotations

from pathlib import Path

from devstack.demo.needs import Needs


def test_needs_say_minutes_memory_and_disk(tmp_path: Path) -> None:
    assert next(Needs("The demo", 4, 5.0, 1.5).said(tmp_path)) == (
        f"The demo takes about 4 minutes on two quiet cores, 5 GB of memory, and 1.5 GB of disk in {tmp_path}"
    )


def test_needs_name_what_there_is_too_little_of(tmp_path: Path) -> None:
    _, memory, disk = Needs("The demo", 4, 1e6, 1e9).said(tmp_path / "not" / "there")
    assert memory.startswith("Only ") and "memory" in memory
    assert disk.startswith("Only ") and "--folder" in disk
