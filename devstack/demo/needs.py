"""What a story takes of the machine, estimated: said before it begins."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_GB = 2**30


@dataclass(frozen=True)
class Needs:
    """What `what` takes.

    `minutes` on two cores that do nothing else, with everything fetched; `memory` in GB at the most, of all processes
    together; `disk` in GB in the stack's folder at the end, and what flows afterwards comes on top.
    """

    what: str
    minutes: int
    memory: float
    disk: float

    def said(self, folder: Path) -> Iterator[str]:
        """Yield what to say before `folder` is written to: what is needed, and of what there is too little."""
        yield (
            f"{self.what} takes about {self.minutes} minutes on two quiet cores, {self.memory:g} GB of memory, "
            f"and {self.disk:g} GB of disk in {folder}"
        )
        memory = psutil.virtual_memory().available / _GB
        if memory < self.memory:
            yield f"Only {memory:.1f} GB of memory are available: end other programs if it gets slow"
        there = next(path for path in (folder, *folder.parents) if path.is_dir())
        disk = shutil.disk_usage(there).free / _GB
        if disk < self.disk:
            yield f"Only {disk:.1f} GB of the disk are free: make room, or name another one with --folder"
