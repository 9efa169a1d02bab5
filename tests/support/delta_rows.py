"""What stands in a Delta table.

python -m tests.support.delta_rows PATH COLUMN ... prints the rows of these columns as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import deltalake


def delta_rows(
    path: Path | str, *columns: str, options: Mapping[str, str] | None = None
) -> list[tuple[object, ...]]:
    """The rows of these columns, sorted; none while there is no table."""
    given = dict(options or {})
    if not deltalake.DeltaTable.is_deltatable(str(path), given):
        return []
    table = deltalake.DeltaTable(str(path), storage_options=given).to_pyarrow_table(columns=list(columns))
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


if __name__ == "__main__":
    print(json.dumps(delta_rows(Path(sys.argv[1]), *sys.argv[2:])))
