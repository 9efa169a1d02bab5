"""A disk that can be filled: a small tmpfs, seen by this process and what it starts, gone when they are.

It takes root. Without, the consumers' workers get a limit on the size of files that they write, which stops them at
the same place with another error.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x00020000, 16384, 1 << 18
SIZE = 256 * 1024 * 1024


class SmallDisk:
    """`folder` on a disk of its own if that is possible."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.own = os.geteuid() == 0 and _mount(folder)

    @contextmanager
    def full(self, workers: Iterable[psutil.Process]) -> Iterator[None]:
        """Nothing can be written: the disk has no byte left, or `workers` and what they start may write none."""
        with ExitStack() as stack:
            if self.own:
                stack.enter_context(_filled(self.folder / "filler"))
            else:
                for worker in workers:
                    stack.enter_context(_limited(worker))
            yield


@contextmanager
def _filled(filler: Path) -> Iterator[None]:
    try:
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                with suppress(OSError):  # no space left, which is what it is for
                    while file.write(bytes(size)):
                        pass
        yield
    finally:
        filler.unlink()


@contextmanager
def _limited(worker: psutil.Process) -> Iterator[None]:
    before = worker.rlimit(psutil.RLIMIT_FSIZE)
    worker.rlimit(psutil.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        worker.rlimit(psutil.RLIMIT_FSIZE, before)


def _mount(folder: Path) -> bool:
    """A tmpfs at `folder` in a mount namespace of this process, so that nothing is left however it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(
        libc.unshare(_CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
        and libc.mount(b"muster-test", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode()) == 0
    )
