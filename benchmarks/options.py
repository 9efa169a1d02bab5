"""Options that several benchmarks have, and what one of them keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import click
from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

OUTPUT = click.option(
    "--output",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(__file__).parent,
    help="Where report and plot go.",
)
RESULTS = click.option(
    "--results",
    "kept",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that keeps what is measured: the report is on all that is in it, so a run can be made in parts, by "
    "the other options.",
)


def load_results(file: Path, of: TypeAdapter[T]) -> T | None:
    """Read what such a file holds, None if there is none. Raises ValueError if it is something else."""
    try:
        return of.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ValueError(f"{file}: not results of this benchmark: {error.errors()[0]['msg']}") from error
