"""What an assignor is. It fits on one page, so that anyone can write one.

How the family is meant to grow without breaking an assignor of a user: what a rule needs to know of a
consumer is a field of `Consumer` (`priority`, `weight`, `zone`, `topics`); what it needs to know once is an
option of its constructor; anything further that changes while it runs (measured load, leaders' racks, pins)
comes as a keyword argument, and only to assignors that have a parameter of that name. The three positional
arguments and the result stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from muster.core.model import Assignment, Consumer


class AssignorError(RuntimeError):
    """An assignor is unavailable, or what it returned cannot be obeyed; the message names it and the reason."""


@runtime_checkable
class Assignor(Protocol):
    """Decides which consumer reads which partition.

    An assignor is pure: no I/O, no clock, no memory between calls (`previous` is its memory), and the same
    arguments give an equal result whatever the order of the mappings, because a coordinator may be started again
    at any moment and must come to the same plan.
    """

    @property
    def name(self) -> str:
        """What `clusters.yaml`, errors and the audit call it. A class attribute does."""
        ...

    def assign(
        self, topics: Mapping[str, frozenset[int]], consumers: Mapping[str, Consumer], previous: Assignment, /
    ) -> Assignment:
        """Give every partition to one of the consumers that subscribe to its topic.

        `topics` maps each topic to its partitions, which need not be contiguous. `consumers` are the live ones,
        by id. `previous` is what stood before, as it was written: it may name consumers that left, topics and
        partitions that are gone, and it need not be balanced.

        A topic that no consumer subscribes to is left out of the result; every other topic is in it with all
        its partitions. `muster.core.assignors.validate` checks just that.
        """
        ...


@contextmanager
def blamed_on(assignor: Assignor, what: str) -> Iterator[None]:
    """Turn whatever is raised within into an `AssignorError` that says `what` the assignor did.

    A user's own code may raise anything, and must not take the coordinator with it.
    """
    try:
        yield
    except AssignorError:
        raise
    except Exception as error:
        raise AssignorError(
            f"assignor {assignor.name!r} {what} ({type(error).__name__}: {error}); nothing is moved. Correct the "
            "assignor, or name another one in clusters.yaml"
        ) from error
