"""The settings (`clusters.d/`, or one file): what Muster coordinates.

One entry a cluster, which is one consumer application.

Every error names the file, the line, the cluster, the key and what is allowed. A mistake is its owner's own: the
other clusters and the other files go on, and a cluster with a mistake goes on with the settings that it had before
(`muster.settings.last_correct`), as long as the machine has them.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from muster.settings.cluster_settings import ClusterSettings, RetentionSettings
from muster.settings.connection_lookup import extra_in_environment
from muster.settings.last_correct import Kept, airflow_home, keep_correct, read_last_correct
from muster.settings.marked_yaml import MarkedYaml, YamlError
from muster.settings.mistakes import SettingsFile

LONGEST_NAME = 200
"""Characters of a cluster's name that are looked at; fewer are allowed."""
MOST_FILES = 1_000
"""So many files are kept taken apart; the least recently used go first."""
SUFFIXES = (".yaml", ".yml")
RETENTION = "retention"
SPARE = 3
"""Slots that coordinators which wait in their tasks leave to others: to submissions, and to their own other tasks."""
_NO_CLUSTERS = (
    "expected a top-level key 'clusters' with one entry a cluster; write 'clusters: {[NAME]: {...}}'"
)


class SettingsError(ValueError):
    """The settings are wrong; the message names file, cluster and key."""


@dataclass(frozen=True)
class Clusters:
    """What the settings hold: the clusters that can be used, and an error for each mistake.

    `errors` are by cluster. A cluster that has one and is among `clusters` goes on with the settings it had before.
    `general` has the others: by name those of files that as a whole are wrong, and that of `retention`. `files` are
    those of `clusters`. `retention` is None if that entry is wrong, or may stand in a file that cannot be read: then
    nothing is to be deleted.
    """

    path: Path
    clusters: dict[str, ClusterSettings] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    retention: RetentionSettings | None = None
    files: dict[str, Path] = field(default_factory=dict)
    general: dict[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Airflow's slots (`[core] parallelism`) if each coordinator waits in its task and `SPARE` are left."""
        return len(self.clusters) + SPARE

    @property
    def mistakes(self) -> list[str]:
        """The messages of all errors."""
        return [*self.general.values(), *self.errors.values()]

    def __getitem__(self, name: str) -> ClusterSettings:
        """Return the cluster `name`, or raise `SettingsError` saying what is wrong and which there are."""
        if name in self.clusters:
            return self.clusters[name]
        if name in self.errors:
            raise SettingsError(self.errors[name])
        known = ", ".join(sorted(self.clusters)) or "none"
        raise SettingsError(
            "; ".join([f"{self.path}: no cluster {name[:100]!r}; there are: {known}", *self._broken])
        )

    def chosen(self, name: str | None) -> ClusterSettings:
        """Return the cluster `name`, or without a name the only one there is. Raises `SettingsError`."""
        known = sorted({*self.clusters, *self.errors})
        if name is None and not known and self._broken:
            raise SettingsError("; ".join(self._broken))
        if name is None and len(known) != 1:
            raise SettingsError(
                f"{self.path}: name a cluster with --cluster; there are: {', '.join(known) or 'none'}"
            )
        return self[known[0] if name is None else name]

    def keep(self) -> None:
        """Keep the settings of these clusters, for them to go on with after a mistake."""
        keep_correct(self.path, self.clusters, self.files)

    @property
    def _broken(self) -> list[str]:
        """The errors of the files that cannot be read, where a cluster may stand."""
        return [error for key, error in self.general.items() if key != RETENTION]


@dataclass(frozen=True)
class _File:
    """What one file holds. `error` says why it cannot be read as a whole; `places` are the lines of its clusters, and
    `retention_at` is that of `retention`, '' without one."""

    path: Path
    clusters: dict[str, ClusterSettings] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    retention: RetentionSettings | None = None
    retention_at: str = ""
    retention_error: str = ""
    error: str = ""


class _Accepted:
    """What clusters share with no other: a Consul service, and a group on one Kafka."""

    def __init__(self) -> None:
        self._services: dict[str, str] = {}
        self._groups: dict[tuple[str, str], str] = {}

    def conflict(self, cluster: ClusterSettings) -> str:
        """Say why `cluster` must not stand beside those accepted before; '' if it may, and then it is accepted."""
        if other := self._services.get(cluster.consul_service):
            return (
                f"key 'consul_service': {cluster.consul_service!r} is already that of cluster {other!r}; each "
                "cluster needs its own"
            )
        groups = {(place, cluster.group_id) for place in _kafka_places(cluster.kafka)}
        if others := sorted(self._groups[group] for group in groups if group in self._groups):
            return (
                f"key 'group_id': {cluster.group_id!r} is already that of cluster {others[0]!r} on the same Kafka, "
                "and each would set back the other's committed offsets; give one of the two another group_id"
            )
        self._services[cluster.consul_service] = cluster.name
        self._groups |= dict.fromkeys(groups, cluster.name)
        return ""


def _kafka_places(conn_id: str) -> set[str]:
    """Return what tells one Kafka from another without asking it: the connection's id, and its brokers where an
    environment variable has them. A connection that cannot be read has its id only."""
    extra = extra_in_environment(conn_id)
    servers = str(extra.get("bootstrap.servers") or "").lower().split(",")
    return {conn_id} | {f"{s if ':' in s else f'{s}:9092'}" for server in servers if (s := server.strip())}


def clusters_path() -> Path:
    """Return the file or folder with the settings: `$MUSTER_CLUSTERS`, by default `$AIRFLOW_HOME/clusters.d`."""
    return Path(os.environ.get("MUSTER_CLUSTERS") or airflow_home() / "clusters.d").expanduser()


def load_clusters(path: Path | None = None) -> Clusters:
    """Read and check the settings: one file, or all `*.yaml` and `*.yml` of a folder.

    Raises `SettingsError` if there is no such file or folder. Every other mistake is put in
    `Clusters.errors` or `Clusters.general`.
    """
    path = path or clusters_path()
    try:
        path.stat()
        names = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); create it, or set AIRFLOW_HOME, or MUSTER_CLUSTERS to a "
            "file or a folder"
        ) from error
    files = [_read(each) for each in names if each == path or _counts(each)]
    found, kept = _combined(path, files, {}), read_last_correct(path)
    return _combined(path, files, kept) if found.mistakes and kept else found


def _counts(path: Path) -> bool:
    return path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _combined(path: Path, files: Iterable[_File], kept: Kept) -> Clusters:
    """Put files together. Of clusters that exclude each other, those that are as they were `kept` stay."""
    found = Clusters(path, retention=RetentionSettings())
    retention: dict[str, _File] = {}
    where: dict[str, list[_File]] = {}
    for file in files:
        if file.error:
            found.general[file.path.name] = file.error
        if file.retention_at:
            retention[file.retention_at] = file
        for name in file.places:
            where.setdefault(name, []).append(file)
    unread = bool(found.general)
    if retention:
        [first, *more] = retention.values()
        found = replace(found, retention=None if more else first.retention)
        found.general.update({RETENTION: first.retention_error} if first.retention_error else {})
        if more:
            found.general[RETENTION] = (
                f"{', '.join(retention)}: 'retention' stands in each of them; leave it in one"
            )
    elif unread:
        found = replace(found, retention=None)  # it may be in a file that cannot be read
    before = {name: cluster for entries in kept.values() for name, cluster in entries.items()}
    accepted = _Accepted()
    for name in sorted(where, key=lambda name: where[name][0].clusters.get(name) != before.get(name, name)):
        [first, *more] = where[name]
        if more:
            others = ", ".join(file.places[name] for file in more)
            found.errors[name] = (
                f"{first.places[name]}: cluster {name!r} stands in {others} as well; give one of them another name"
            )
        elif name in first.errors:
            found.errors[name] = first.errors[name]
        elif conflict := accepted.conflict(first.clusters[name]):
            found.errors[name] = f"{first.places[name]}: cluster {name!r}, {conflict}"
        else:
            found.clusters[name], found.files[name] = first.clusters[name], first.path
    _go_on(found, kept, accepted)
    return found


def _go_on(found: Clusters, kept: Kept, accepted: _Accepted) -> None:
    """Add the clusters that go on with the settings they had before their file or their entry was wrong."""
    for text, entries in kept.items():
        file = Path(text)
        for name, cluster in entries.items():
            wrong = found.errors.get(name, "")
            wrong = wrong or found.general.get(file.name, "")
            if wrong and name not in found.clusters and not accepted.conflict(cluster):
                found.clusters[name], found.files[name] = cluster, file
                found.errors[name] = (
                    f"{wrong}\n{file}: cluster {name!r} goes on with the settings it had before"
                )


def _read(path: Path) -> _File:
    try:
        return _parse(path, path.read_bytes())
    except OSError as error:
        return _File(path, error=f"{path}: cannot be read ({error.strerror}); let this user read it")


@lru_cache(maxsize=MOST_FILES)
def _parse(path: Path, text: bytes) -> _File:
    """Parse what the file holds; not to be changed. Kept, because a task needs it twice, and a file of a hundred
    clusters takes 0.2 s; what Airflow's scheduler has read by then, the tasks' processes inherit."""
    try:
        document = MarkedYaml(text)
    except YamlError as error:
        return _File(path, error=f"{path}:{error.line}: not YAML: {error}; correct the file")
    if document.has_only_comments and text.strip():
        return _File(path)  # an empty file is a mistake: it may just be being written
    content, source = document.content, SettingsFile(path, document, ClusterSettings)
    if not isinstance(content, dict) or not isinstance(content.get("clusters"), dict):
        return _File(path, error=f"{path}: {_NO_CLUSTERS}")
    if extra := [str(key)[:100] for key in content if key not in {"clusters", RETENTION}]:
        return _File(
            path,
            error=f"{source.place(extra[0])}: unknown top-level key {', '.join(map(repr, extra))}; only 'clusters' "
            "and 'retention' are allowed, take the others out",
        )
    return _entries(path, source, content)


def _entries(path: Path, source: SettingsFile, content: dict[Any, Any]) -> _File:
    file = _File(path)
    if RETENTION in content:
        file = replace(file, retention_at=source.place(RETENTION))
        try:
            file = replace(file, retention=RetentionSettings.model_validate(content[RETENTION] or {}))
        except ValidationError as error:
            file = replace(file, retention_error=source.errors(RETENTION, RetentionSettings, error))
    for key, entry in content["clusters"].items():
        name = str(key)[:LONGEST_NAME]
        if name in file.places:
            file.clusters.pop(name, None)
            file.errors[name] = source.error(name, " stands there twice; give one of them another name")
            continue
        file.places[name] = source.place("clusters", str(key))
        found = _entry(source, name, entry)
        if isinstance(found, str):
            file.errors[name] = found
        else:
            file.clusters[name] = found
    return file


def _entry(source: SettingsFile, name: str, entry: Any) -> ClusterSettings | str:
    """Read the settings of a cluster, or say what is wrong with them."""
    if not isinstance(entry, dict):
        return source.error(name, f": expected keys and values, found {reprlib.repr(entry)}")
    if "name" in entry:
        return source.error(name, ", key 'name': unknown key; the name is the key of the entry, take it out")
    try:
        _check_texts(entry)
    except ValueError as error:
        return source.error(name, f": {error}; correct it")
    try:
        return ClusterSettings.model_validate({**entry, "name": name})
    except ValidationError as error:
        return source.cluster_errors(name, error)


def _check_texts(value: Any, under: tuple[int, ...] = (), done: set[int] | None = None) -> None:
    """Raise ValueError for what cannot be written again: broken Unicode, bytes, a list or mapping within itself."""
    done = set() if done is None else done
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{value[:100]!r} is not Unicode") from error
    elif isinstance(value, bytes):
        raise ValueError("binary data, which JSON cannot hold")  # noqa: TRY004  reported like the others
    elif id(value) in under:
        raise ValueError("a list or mapping that holds itself")
    elif isinstance(value, dict | list | tuple) and id(value) not in done:
        for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            _check_texts(part, (*under, id(value)), done)
        done.add(id(value))
