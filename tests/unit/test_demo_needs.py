"""What the demo says before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from devstack.demo import needs


def test_needs_say_minutes_memory_and_disk(tmp_path: Path) -> None:
    assert next(needs.needs(tmp_path)) == (
        f"The demo takes about {needs.MINUTES} minutes on two quiet cores, {needs.MEMORY:g} GB of memory, "
        f"and {needs.DISK:g} GB of disk in {tmp_path}"
    )


def test_needs_name_what_there_is_too_little_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "MEMORY", 1e6)
    monkeypatch.setattr(needs, "DISK", 1e9)
    _, memory, disk = needs.needs(tmp_path / "not" / "there")
    assert memory.startswith("Only ") and "memory" in memory
    assert disk.startswith("Only ") and "--folder" in disk
