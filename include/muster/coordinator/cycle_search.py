"""How often Python searches a coordinator's process for reference cycles: seldom, while it works.

A reading of a large cluster makes hundreds of thousands of objects, none of them in a cycle, and Python searches them
again and again as they become more: half of the time that a tick with nothing to do took. There are few cycles in
what a run does, and its process ends with it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 200_000
"""How many objects are made until the search begins; 700 are Python's default."""


@contextmanager
def seldom() -> Iterator[None]:
    """Search for cycles only after `YOUNG` objects, and not among those that are there now. For the whole process."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
