"""Which task of a batch reads which share of it: the one whose Python worker has fetched that share ahead.

Spark does not tie tasks to workers, and a worker that is given other partitions than the last time throws away what
it has fetched of the old ones, which with many partitions is more than a batch. So a batch is planned as shares, and
each task chooses one when it runs. What it has chosen is written down before it reads, so a task that runs again, or
a handler that goes through the batch twice, reads the same.

The place is a file a batch, which all workers must see: this is for Spark on one machine only (`local[N]`).
"""

from __future__ import annotations

import fcntl
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_KEPT = 64
"""Batches whose choices are kept: more than one, for handlers that go on with a batch for a while in a thread."""


class ShareError(RuntimeError):
    """A task cannot tell which share is its own, so it must read nothing; the message names the file."""


@dataclass(frozen=True)
class Choice:
    """The choice of a batch's task `number`; all that its tasks have chosen stands in `file`."""

    file: str
    number: int

    def make(self, wishes: Sequence[int]) -> int:
        """The share that this task has already, else the first of `wishes` (all shares) that no other has.

        Raises `ShareError`.
        """
        try:
            # Opened again each time: the lock is the open file's, so threads of one process exclude each other, too.
            with Path(self.file).open("r+", encoding="ascii") as book:
                fcntl.flock(book, fcntl.LOCK_EX)
                taken = {share: task for task, share in (map(int, line.split()) for line in book)}
                for share, task in taken.items():
                    if task == self.number:
                        return share
                share = next(share for share in wishes if share not in taken)
                book.write(f"{self.number} {share}\n")
                return share
        except FileNotFoundError:
            raise ShareError(
                f"{self.file} is gone: the batch that this task belongs to is over; use a batch within the handler, "
                "or cache what is to outlive it"
            ) from None
        except OSError as error:
            raise ShareError(
                f"which part of the batch to read cannot be written to {self.file}: {error}; free the disk"
            ) from error
        except (ValueError, StopIteration):
            raise ShareError(
                f"{self.file} does not say which part of the batch is whose: something else has written to it"
            ) from None


class ShareBooks:
    """Makes the files of a query's batches, in `folder`, which the caller removes with all that is in it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._books: deque[Path] = deque()

    def open(self, count: int) -> list[Choice]:
        """The choices of a new batch's `count` tasks. Raises OSError if no file can be made."""
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix="batch-", delete=False) as book:
            path = Path(book.name)
        self._books.append(path)
        if len(self._books) > _KEPT:
            self._books.popleft().unlink(missing_ok=True)
        return [Choice(str(path), number) for number in range(count)]
