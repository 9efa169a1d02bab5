"""How many partitions of one topic each of its subscribers takes, in proportion to weight."""

from __future__ import annotations

from collections.abc import Mapping


class Quota:
    """The sizes of the blocks of a topic, and what is still open of them while they are filled.

    By the largest remainder: each consumer is sure of its proportional share rounded down, and what then is
    left over goes, one each, to the consumers whose share was cut most. Where several were cut equally and
    not all of them can have one more, the choice is open, and those that are filled first get it. With equal
    weights all are cut equally. Whole numbers throughout, so that ties are ties.
    """

    def __init__(self, total: int, weights: Mapping[str, int]) -> None:
        """Take as `weights` whole numbers of at least 1, in the order in which blocks stand."""
        everything = sum(weights.values())
        cut = {c: total * weight % everything for c, weight in weights.items()}
        self._sure = {c: total * weight // everything for c, weight in weights.items()}
        self._extras = total - sum(self._sure.values())
        self._open: frozenset[str] = frozenset()
        if self._extras:
            least = sorted(cut.values(), reverse=True)[self._extras - 1]
            for consumer, remainder in cut.items():
                if remainder > least:
                    self._sure[consumer] += 1
                    self._extras -= 1
            self._open = frozenset(c for c, remainder in cut.items() if remainder == least)
        self._taken = dict.fromkeys(weights, 0)
        self.consumers = tuple(weights)

    def room(self, consumer: str) -> int:
        """Return how many more `consumer` may take now; it never grows."""
        one_more = self._extras > 0 and consumer in self._open
        return max(0, self._sure[consumer] + one_more - self._taken[consumer])

    def take(self, consumer: str, partitions: int) -> None:
        """Count that `consumer` took so many, at most its `room`."""
        if not partitions:
            return
        self._taken[consumer] += partitions
        if self._taken[consumer] > self._sure[consumer]:
            self._extras -= 1

    def blocks(self) -> list[tuple[str, int]]:
        """Fill what is open, in order, and return how many more each consumer takes, if any."""
        sizes = []
        for consumer in self._taken:
            if room := self.room(consumer):
                sizes.append((consumer, room))
                self.take(consumer, room)
        return sizes
