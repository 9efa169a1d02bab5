"""A record that kills its process: which records are in doubt, and how a partition is read to find it. Pure.

An owner notes a token of its process with the offset of each partition that it takes up, and takes that away when it
closes the partition in order. The next owner that finds the token of another process knows that this one died, or was
killed, at that offset. It counts such ends, as long as no offset beyond is committed:

- After the first one nothing changes: a process that is killed for another reason costs nothing.
- From the second one on the partition is read apart, after a minute: the records from its offset on in pieces of
  1,000; after the next death those of the piece in pieces of 10, then of 1. Before a piece is tried, its size, where
  the doubt ends, and that this partition is tried are committed: of several that are in doubt one is tried at a time,
  and only that one is to blame for the next death.
- A record at which the process died twice alone is not tried any more: its partition is parked and a person is asked.

So it takes six deaths. If all pieces pass, the size of the batch was too much for the process: its owner halves it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

IN_DOUBT = 100_000
"""Records that are in doubt after the second death; of a larger batch the rest is in doubt after two more."""
APART = 2
"""Deaths from which a partition is read apart."""
PIECES = {2: 1_000, 3: 10, 4: 1, 5: 1}
"""Records of a piece, by the number of deaths."""
ALONE = 6
"""Deaths of which the last two were with the record alone."""
PAUSE = 60.0
"""Seconds that an owner waits before it reads a partition in doubt, so that the consumer that died is back."""
_TEXT = re.compile(r"([0-9a-f]{0,32})(?:\.([0-9]{1,4})\.([0-9]{1,9})\.([0-9]{1,18})(\.tried)?)?")


@dataclass(frozen=True, slots=True)
class Deaths:
    """What is noted of the processes that died at the offset `at` of a partition, whose owner is the process `holder`
    ('' for none): their number, and how many records are tried at once up to the offset `end` (0: all). `tried`: of
    the partitions in doubt it is the one that is tried."""

    holder: str = ""
    count: int = 0
    size: int = 0
    end: int = 0
    tried: bool = False
    at: int = field(default=-1, compare=False)

    def taken_up(self, holder: str, at: int) -> Deaths:
        """Return it as a new owner notes it that begins at the committed offset `at`."""
        if self.holder in {"", holder} or (self.size and not self.tried):
            return replace(self, holder=holder, at=at, tried=False)
        count = min(self.count + 1, ALONE)
        if count < APART:
            return Deaths(holder, count, at=at)
        end = at + (IN_DOUBT if count == APART else max(1, self.size))
        return Deaths(holder, count, PIECES.get(count, 1), end, at=at)

    def after(self, offset: int, closing: bool = False) -> Deaths:
        """Return it as it is noted with `offset`, of a partition that is `closing` or not."""
        holder = "" if closing else self.holder
        if offset != self.at and not (self.size and self.at < offset < self.end):
            return self if holder == self.holder and not self.count else Deaths(holder)
        return self if holder == self.holder else replace(self, holder=holder)

    def alone_again(self) -> Deaths:
        """Return it as it is when a person has the record tried once more."""
        return replace(self, count=ALONE - 1, tried=False)

    @property
    def deadly(self) -> bool:
        """Whether the record is not tried any more."""
        return self.count >= ALONE

    def __str__(self) -> str:
        more = f".{self.count}.{self.size}.{self.end}" if self.count else ""
        more += ".tried" if self.tried else ""
        return f"{self.holder}{more}"


NO_DEATHS = Deaths()


def parse_deaths(text: str) -> Deaths:
    """Parse what `str` formats; nothing for other text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return NO_DEATHS
    count, size, end = (int(number or 0) for number in found.groups()[1:4])
    return Deaths(found[1], count, size, end, bool(found[5]))
