"""The store of a Delta Lake table: of commits that take one name at once, exactly one may succeed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import deltalake
from deltalake.fs import DeltaStorageHandler

from muster.sinks.sink_error import SinkError

PROBES = "_muster"
"""The folder, in a table's folder, in which commits race."""
RACING = 4
UNSAFE = {"aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "mount_allow_unsafe_rename"}
"""Options of `deltalake` by which two commits may take one name."""


def refuse_unsafe(options: Mapping[str, str]) -> None:
    """Raise ValueError for options by which an object store would let two commits take one name."""
    given = {name.lower(): value.lower() for name, value in {**os.environ, **options}.items()}
    for name in sorted(UNSAFE):
        if given.get(name) in {"true", "1"}:
            raise ValueError(f"'storage_options' {name}: two commits could take one name; leave it out")
    for name in ("aws_conditional_put", "conditional_put"):
        if given.get(name) == "disabled":
            raise ValueError(
                f"'storage_options' {name}: without a write that fails if the name is there two commits could take "
                "one name; set it to 'etag'"
            )
    if given.get("aws_s3_locking_provider"):
        raise ValueError(
            "'storage_options' aws_s3_locking_provider: deltalake takes no lock of DynamoDB any more, and a writer "
            "that takes one and this sink could take one name; leave it out, and have no such writers"
        )


def probe(path: str, options: Mapping[str, str]) -> None:
    """Have commits race for one name in the store of `path`, in a table of their own that is deleted afterwards.

    Raises `SinkError` if one has replaced another, and deltalake's errors for a store that cannot be written to.
    Local files are not asked: there a commit is a hard link, which fails if the name is there.
    """
    if urlsplit(path).scheme in {"", "file"}:
        return
    place, given = f"{path.rstrip('/')}/{PROBES}/{uuid.uuid4().hex}", dict(options)
    column = deltalake.Field("n", "integer", nullable=True)
    deltalake.DeltaTable.create(place, deltalake.Schema([column]), storage_options=given)
    racing = [deltalake.DeltaTable(place, storage_options=given) for _ in range(RACING)]
    with ThreadPoolExecutor(RACING) as threads:
        list(threads.map(_commit, racing))
    stand = deltalake.DeltaTable(place, storage_options=given).version()
    DeltaStorageHandler(place, given).delete_dir("")
    if stand < RACING:  # more, if an answer was lost and the commit made again
        raise SinkError(
            f"Delta table {path}: of {RACING} commits at once {RACING - stand} were replaced by another, because its "
            "store has no atomic write that fails if the name is there (S3's If-None-Match), so records would be "
            "lost; use a store, or a version of it, that has it"
        )


def _commit(table: Any) -> None:
    table.create_write_transaction([], "append", table.schema())
