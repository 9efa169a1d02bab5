"""What is wrong now, for people: one text a key. Each is logged when it comes, when it changes, and when it goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from muster.core.model import TopicPartition

log = logging.getLogger(__name__)

HANDLER = "handler"
"""The key of the problem that the handler fails."""
UNCOMMITTED = "uncommitted"
"""The key of the problem that partitions are held back."""
UNREAD = "unread "
"""What the keys of the problems begin with that partitions cannot be read."""
DOUBTED = "doubted"
"""What the keys of the problems begin with that partitions are read apart."""
LOG_AGAIN = 60.0
"""Seconds until a problem that lasts is logged again, if its message is another one by then."""

SHOWN = 5
"""So many partitions are named at most."""


class Problems:
    """The problems of one consumer. Thread-safe; `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._now: dict[str, str] = {}
        self._logged: dict[str, float] = {}

    @property
    def all(self) -> dict[str, str]:
        """The messages by key."""
        with self._lock:
            return dict(self._now)

    def note(self, key: str, message: str | None) -> None:
        """Note what is wrong with `key` now; None when all is well again."""
        with self._lock:
            if message is None:
                if self._now.pop(key, None) is not None:
                    log.info("%s: all is well again", key)
                return
            now = self._clock()
            changed = self._now.get(key) != message and now - self._logged.get(key, 0.0) > LOG_AGAIN
            if key not in self._now or changed:
                log.warning("%s: %s", key, message)
                self._logged[key] = now
            self._now[key] = message

    def note_all(self, prefix: str, messages: Mapping[str, str]) -> None:
        """Note all that is wrong with the keys that begin with `prefix`."""
        for key in [key for key in self.all if key.startswith(prefix) and key not in messages]:
            self.note(key, None)
        for key, message in messages.items():
            self.note(key, message)

    def drop(self, keys: Iterable[str]) -> None:
        """Forget what goes together with its cause, which is known."""
        with self._lock:
            for key in keys:
                self._now.pop(key, None)


def of_partition(what: str, tp: TopicPartition) -> str:
    """Return the key of the problem of one partition."""
    return f"{what} {tp[0]} [{tp[1]}]"


def named(partitions: Mapping[TopicPartition, str]) -> str:
    """Name partitions, with what is said of each, in a line."""
    shown = [
        f"topic {topic!r}, partition {partition}{said}"
        for (topic, partition), said in sorted(partitions.items())[:SHOWN]
    ]
    more = len(partitions) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
