"""What fails in state by key."""

from __future__ import annotations

from typing import NoReturn


class StateError(ValueError):
    """The handler uses state in a way that cannot work; the message names what, and what to write instead."""


class StateStoreError(RuntimeError):
    """The local store, or what brings it to its position, failed, which is no fault of a record."""


class NoState:
    """Stands for `batch.state` where no topic has state."""

    def __getattr__(self, name: str) -> NoReturn:
        """Say what is missing."""
        raise StateError(
            "no topic of this cluster has state; name those that have it in 'state' of the cluster's consumers, as "
            "regular expressions of whole topic names"
        )
