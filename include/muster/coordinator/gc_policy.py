"""Keep Python's cyclic garbage collector out of the way while a coordinator works.

A reading of a large cluster makes hundreds of thousands of objects, none of them in a cycle, and the collector goes
through them again and again as they become more: that was half of the time of a tick with nothing to do. A run makes
few cycles, and its process ends with it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_LIMIT = 200_000
"""Objects that are made until a collection begins; Python's default is 700."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect only after `YOUNG_LIMIT` objects, and none of those that exist now, in the whole process."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG_LIMIT, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
