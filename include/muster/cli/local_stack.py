"""The local stack of a checkout (`make up`, `make demo`), found from the folder that the command is given in.

The stack writes the environment of its Airflow to `.devstack/environment.json`, or to a folder in `.devstack`, and
removes the file when it is stopped. It is used where the shell names no Airflow, settings or connection itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

FOLDER = ".devstack"
FILE = "environment.json"
_OURS = ("AIRFLOW", "MUSTER")
_NAMED_BY_THE_SHELL = ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "MUSTER_CLUSTERS", "AIRFLOW_CONN_MUSTER_")


@contextmanager
def local_stack(start: Path) -> Iterator[Path | None]:
    """Have the variables of the newest stack that runs in `start` or above it, for the block; give its folder.

    None, and nothing is changed, if there is none, or the shell has variables of its own. Only variables of Airflow
    and Muster are taken, from a file of this user.
    """
    found = None if any(name.startswith(_NAMED_BY_THE_SHELL) for name in os.environ) else _newest(start)
    if found is None:
        yield None
        return
    before = dict(os.environ)
    os.environ.update(_variables(found))
    click.echo(f"Local stack in {found.parent}", err=True)
    try:
        yield found.parent
    finally:
        os.environ.clear()
        os.environ.update(before)


def _newest(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        stacks = folder / FOLDER
        files = [file for file in (stacks / FILE, *stacks.glob(f"*/{FILE}")) if _is_ours(file)]
        if files:
            return max(files, key=lambda file: file.stat().st_mtime)
    return None


def _is_ours(file: Path) -> bool:
    """Tell whether this user wrote it: the variables name code that is run."""
    return file.is_file() and file.stat().st_uid == os.getuid()


def _variables(file: Path) -> Mapping[str, str]:
    found = json.loads(file.read_text(encoding="utf-8"))
    return {name: str(value) for name, value in found.items() if name.startswith(_OURS) and value}
