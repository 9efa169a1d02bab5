"""Many reads in one request, which ZooKeeper knows since 3.6 (`multiRead`) and kazoo 2.11 does not.

A request of kazoo's own costs its sending thread and ours some 0.1 ms each; with thousands of nodes that is most of
the time that reading takes. Each part has its own outcome: one node that is not there, or may not be read, keeps
no caller from the others. There are no watches in it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import MultiHeader, stat_struct
from kazoo.protocol.states import ZnodeStat

DATA, CHILDREN = 4, 8
"""ZooKeeper's numbers of `getData` and `getChildren`."""
_FAILED = -1
_length = struct.Struct("!i")
_header = struct.Struct("!iBi")


@dataclass(frozen=True, slots=True)
class Read:
    """One node's data and stat (`DATA`) or the names of its children (`CHILDREN`)."""

    kind: int
    path: str


class _MultiRead:
    """As kazoo's own requests are: it writes itself, and reads its answer."""

    type: ClassVar[int] = 22

    def __init__(self, operations: Sequence[Read]) -> None:
        self.operations = operations

    def serialize(self) -> bytes:
        """Write the request's body: each read with a header, without a watch."""
        parts = []
        for read in self.operations:
            path = read.path.encode()
            parts += [_header.pack(read.kind, 0, -1), _length.pack(len(path)), path, b"\0"]
        return b"".join([*parts, bytes(MultiHeader(-1, True, -1).serialize())])

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        """Read the outcomes, in the order of the reads; exceptions for what could not be read."""
        found: list[Any] = []
        while True:
            kind, done, _ = _header.unpack_from(buffer, offset)
            offset += _header.size
            if done:
                return found
            (number,) = _length.unpack_from(buffer, offset)
            offset += _length.size
            if kind == _FAILED:
                found.append(EXCEPTIONS[number]())
            elif kind == DATA:
                end = offset + max(0, number)
                stat = ZnodeStat._make(stat_struct.unpack_from(buffer, end))
                found.append((bytes(buffer[offset:end]), stat))
                offset = end + stat_struct.size
            else:
                names = []
                for _ in range(number):
                    (length,) = _length.unpack_from(buffer, offset)
                    offset += _length.size
                    names.append(str(buffer[offset : offset + length], "utf-8"))
                    offset += length
                found.append(names)


def multi_read_async(client: KazooClient, reads: Sequence[Read]) -> Any:
    """Send `reads` as one request. The asynchronous result holds for each, in order, `(data, stat)`, the list of
    children, or the exception that says why it could not be read."""
    result = client.handler.async_result()
    chroot = client.chroot
    client._call(_MultiRead([Read(read.kind, chroot + read.path) for read in reads]), result)
    return result
