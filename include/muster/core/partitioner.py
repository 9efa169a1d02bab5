"""Which partition Kafka's own producers put a key into. Pure."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_FACTOR, _SHIFT, _SEED = 0x5BD1E995, 24, 0x9747B28C


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of `key` by the default partitioner of Kafka's Java clients (murmur2)."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    length = len(data)
    found = _SEED ^ length
    for at in range(0, length - 3, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        part = (part ^ part >> _SHIFT) * _FACTOR & _MASK
        found = found * _FACTOR & _MASK ^ part
    if rest := data[length & ~3 :]:
        found = (found ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    found = (found ^ found >> 13) * _FACTOR & _MASK
    return found ^ found >> 15
