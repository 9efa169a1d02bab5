"""What stands in a Delta table."""

from __future__ import annotations

from pathlib import Path

import deltalake


def delta_rows(path: Path, *columns: str) -> list[tuple[object, ...]]:
    """The rows of these columns, sorted; none while there is no table."""
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table(columns=list(columns))
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
