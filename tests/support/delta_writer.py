"""Writes one batch of a topic `t` into a Delta Lake table.

python -m tests.support.delta_writer PATH FROM TO
"""

from __future__ import annotations

import os
import sys

from muster.sinks import DeltaSink
from tests.support.database_writer import batch_of


def main() -> None:
    path, begin, end = sys.argv[1], *map(int, sys.argv[2:])
    print(os.getpid(), flush=True)
    DeltaSink(path).store(*batch_of(begin, end))


if __name__ == "__main__":
    main()
