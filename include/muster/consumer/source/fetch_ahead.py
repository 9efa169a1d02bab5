"""How much a fetcher fetches ahead, as librdkafka's settings: bounded for all its partitions together. Pure.

librdkafka bounds each partition's queue by itself, so a fetcher of many partitions would take a multiple of the
memory that one of few takes. `RECORDS` and `KILOBYTES` are for one fetcher; a partition's share is rounded to a power
of two, so that a partition more or less does not change the settings, for which a new fetcher would have to be made.
An answer of the broker may exceed them by `fetch.message.max.bytes` (1 MB) a partition.
"""

from __future__ import annotations

from math import ceil, log2

RECORDS = 131_072
KILOBYTES = 65_536
_MOST_RECORDS, _LEAST_RECORDS = 32_768, 1_024
_MOST_KILOBYTES, _LEAST_KILOBYTES = 16_384, 512


def fetch_ahead(partitions: float) -> dict[str, str]:
    """The settings for a fetcher of about so many partitions."""
    share = 2 ** ceil(log2(max(1.0, partitions)))
    return {
        "queued.min.messages": str(max(_LEAST_RECORDS, min(_MOST_RECORDS, RECORDS // share))),
        "queued.max.messages.kbytes": str(max(_LEAST_KILOBYTES, min(_MOST_KILOBYTES, KILOBYTES // share))),
    }
