"""Which Python worker will get which task, so that it is given the partitions that it has fetched ahead.

Spark hands idle workers out in the order in which they finished their last task, the first one to the first task. A
worker that is given other partitions than the last time throws away what it has fetched of the old ones, which with
many partitions is more than a batch. So each task says when it has finished, and the tasks of the next batch stand in
that order.

It is a hint, and nothing but speed depends on it: a datagram on the loopback interface, which an executor on another
machine sends to nobody. Without it the tasks stay in the order they were made in.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from muster.consumer.source.offsets import TopicPartition

_HOST = "127.0.0.1"
_LONGEST = 64


@dataclass(frozen=True)
class Finish:
    """How a task says that it has finished: `word` names batch and task to the `FinishOrder` at `port`."""

    port: int
    word: str

    def say(self) -> None:
        """Say it; whether anybody hears it is not known."""
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(self.word.encode(), (_HOST, self.port))


class FinishOrder:
    """In which order the tasks of the last batch finished. Lives beside the driver, in the planner's process.

    Raises OSError if it can have no port.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((_HOST, 0))
        self._socket.setblocking(False)
        self._words: dict[str, Collection[TopicPartition]] = {}

    def expect(self, groups: Sequence[Collection[TopicPartition]]) -> list[Finish]:
        """What the tasks of a new batch, one a group of partitions, are to say in the end."""
        port = int(self._socket.getsockname()[1])
        batch = secrets.token_hex(8)
        said = [Finish(port, f"{batch} {number}") for number in range(len(groups))]
        self._words = {finish.word: group for finish, group in zip(said, groups, strict=True)}
        return said

    def ranks(self) -> dict[TopicPartition, int]:
        """Of each partition of the last batch whose task has finished: how many tasks finished before it.

        A task that ran twice, because the handler used the batch twice, counts the last time.
        """
        order: dict[str, None] = {}
        with suppress(BlockingIOError):
            while True:
                word = self._socket.recv(_LONGEST).decode(errors="replace")
                if word in self._words:
                    order.pop(word, None)
                    order[word] = None
        return {tp: rank for rank, word in enumerate(order) for tp in self._words[word]}

    def close(self) -> None:
        """Hear nothing more."""
        self._socket.close()
