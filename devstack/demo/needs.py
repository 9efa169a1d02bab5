"""What the demo takes of the machine, estimated: said before it begins."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

MINUTES = 4
"""On two cores that do nothing else, with everything fetched."""
MEMORY = 5.0
"""GB at the most, of all processes together."""
DISK = 1.0
"""GB in the stack's folder at the end; what flows afterwards comes on top."""
_GB = 2**30


def needs(folder: Path) -> Iterator[str]:
    """Yield what to say before the demo writes to `folder`: what it takes, and of what there is too little."""
    yield (
        f"The demo takes about {MINUTES} minutes on two quiet cores, {MEMORY:g} GB of memory, "
        f"and {DISK:g} GB of disk in {folder}"
    )
    memory = psutil.virtual_memory().available / _GB
    if memory < MEMORY:
        yield f"Only {memory:.1f} GB of memory are available: end other programs if it gets slow"
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    disk = shutil.disk_usage(there).free / _GB
    if disk < DISK:
        yield f"Only {disk:.1f} GB of the disk are free: make room, or name another one with --folder"
