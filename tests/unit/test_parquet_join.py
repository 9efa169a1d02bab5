"""Parquet files are joined: the rows of each piece, up to the first with other columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.core.model import OffsetRange
from muster.sinks.parquet import join, parse_size
from muster.sinks.pending_files import PendingFile, Piece


def piece(place: Path, held: OffsetRange, kept: OffsetRange, *more: str) -> Piece:
    """A pending file with a row for each even offset of `held`, of which `kept` is to be taken."""
    offsets = pa.array([n for n in range(*held) if n % 2 == 0], pa.int64())
    table = pa.table({"offset": offsets} | {name: pa.nulls(len(offsets), pa.int8()) for name in more})
    path = place / f"{held[0]}"
    pq.write_table(table.replace_schema_metadata({"made by": path.name}), path, row_group_size=3)
    return Piece(PendingFile(path, held, path.stat().st_size, 0.0), kept)


def offsets(file: Path) -> list[int]:
    found: list[int] = pq.read_table(file).column("offset").to_pylist()
    return found


def test_joined_file_has_the_rows_of_each_piece_in_order(tmp_path: Path) -> None:
    pieces = [piece(tmp_path, (0, 20), (5, 20)), piece(tmp_path, (18, 50), (20, 33))]
    assert join(pieces, tmp_path / "joined", "zstd") == 2
    assert offsets(tmp_path / "joined") == list(range(6, 33, 2))
    assert pq.ParquetFile(tmp_path / "joined").metadata.num_row_groups == 1
    assert pq.ParquetFile(tmp_path / "joined").metadata.row_group(0).column(0).compression == "ZSTD"


def test_join_stops_before_other_columns(tmp_path: Path) -> None:
    pieces = [piece(tmp_path, (0, 4), (0, 4)), piece(tmp_path, (4, 8), (4, 8), "more")]
    assert join(pieces, tmp_path / "joined", "snappy") == 1
    assert offsets(tmp_path / "joined") == [0, 2]


def test_pieces_without_rows_become_a_file_without_rows(tmp_path: Path) -> None:
    assert join([piece(tmp_path, (0, 4), (3, 4))], tmp_path / "joined", "snappy") == 1
    assert offsets(tmp_path / "joined") == []


def test_join_raises_if_a_file_is_gone(tmp_path: Path) -> None:
    pieces = [piece(tmp_path, (0, 4), (0, 4)), piece(tmp_path, (4, 8), (4, 8))]
    pieces[1].file.path.unlink()
    with pytest.raises(FileNotFoundError):
        join(pieces, tmp_path / "joined", "snappy")


@pytest.mark.parametrize(
    ("text", "size"), [("500kB", 500_000), ("128 MB", 128_000_000), ("1.5GB", 1_500_000_000), (7, 7)]
)
def test_sizes_are_in_bytes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "128", "1TB", "0MB", 0, -1, True])
def test_size_of_no_use_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="'file_size'"):
        parse_size(text)
