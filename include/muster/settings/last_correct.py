"""The settings that each cluster had when its entry was last correct, on this machine.

A mistake in a file changes nothing: as Prometheus and nginx do, Muster goes on with what was there before, and shows
the mistake. Airflow's processes on a machine share what is kept; they write it whenever they parse the DAG files. It
stands beside Airflow's logs, where each of them may write, as `muster/clusters-[HASH].json`, with a hash of where
the settings are read from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from muster.settings.cluster_settings import ClusterSettings

log = logging.getLogger(__name__)

LOGS = "AIRFLOW__LOGGING__BASE_LOG_FOLDER"
Kept = Mapping[str, Mapping[str, ClusterSettings]]
"""File to cluster to its settings."""


def airflow_home() -> Path:
    """Return where Airflow has its home: `$AIRFLOW_HOME`, by default `~/airflow`."""
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


def read_last_correct(settings: Path) -> Kept:
    """Return what is kept of the settings in this file or folder; nothing if nothing is, or it cannot be read."""
    text = _stands(_place(settings))
    return {} if text is None else _parse(text)


def keep_correct(settings: Path, clusters: Mapping[str, ClusterSettings], files: Mapping[str, Path]) -> None:
    """Keep `clusters`, of which each comes from one of `files`. Where that cannot be written, nothing is kept."""
    entries: dict[str, dict[str, object]] = {}
    for name, cluster in clusters.items():
        entries.setdefault(str(files[name]), {})[name] = cluster.model_dump(mode="json")
    text = json.dumps(entries).encode()  # in the order of the settings: that of handlers counts
    place, made = _place(settings), None
    try:
        if _stands(place) == text:
            return
        if not (os.environ.get(LOGS) or airflow_home().is_dir()):
            return  # no Airflow is here
        place.parent.mkdir(parents=True, exist_ok=True)
        # Readable by this user alone, for options may hold what is not everybody's.
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=place.stem)
        made = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        made.replace(place)
    except OSError as error:
        log.warning("the settings of the clusters are not kept for the case of a mistake: %s", error)
        if made is not None:
            made.unlink(missing_ok=True)


def _stands(place: Path) -> bytes | None:
    """Return what is kept; None if nothing is, or another user has kept it."""
    try:
        return place.read_bytes()
    except OSError:
        return None


def _place(settings: Path) -> Path:
    logs = os.environ.get(LOGS)
    folder = Path(logs).expanduser() if logs else airflow_home() / "logs"
    digest = hashlib.sha256(str(settings.absolute()).encode()).hexdigest()[:12]
    return folder / "muster" / f"clusters-{digest}.json"


@lru_cache(maxsize=1)
def _parse(text: bytes) -> Kept:
    kept: dict[str, dict[str, ClusterSettings]] = {}
    try:
        for file, entries in json.loads(text).items():
            for name, entry in entries.items():
                try:
                    cluster = ClusterSettings.model_validate(entry)
                except ValidationError:
                    continue  # kept by a version of Muster with other keys
                kept.setdefault(file, {})[name] = cluster
    except (ValueError, AttributeError):
        log.warning("what is kept of the clusters' settings is malformed; it is not used")
    return kept
