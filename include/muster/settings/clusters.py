"""`clusters.yaml`: what Muster coordinates. One entry a cluster; a cluster is one consumer application.

Every error names the file, the cluster, the key and what is allowed. A cluster that is wrong does not take
the others with it: `load_clusters` returns the good ones beside the errors.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from muster.core.overrides import TopicOverride
from muster.core.subscription import Subscription, check_pattern
from muster.core.wire import check_id, check_topic
from muster.settings.connection_lookup import extra_in_environment
from muster.settings.consumer import TopicHandler, dotted
from muster.settings.source_options import LIMIT, check_source_options, is_limit

DEFAULT_PATH = Path(__file__).resolve().parents[2] / "clusters.yaml"
LONGEST_NAME = 200
"""Characters of a cluster's name that are looked at; fewer are allowed."""
LONGEST_DURATION = 365 * 86_400.0
"""Seconds; what is longer is a slip of the finger, and more than a clock can wait."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class SettingsError(ValueError):
    """`clusters.yaml` does not say what it should; the message names file, cluster and key."""


def _identifier(value: str) -> str:
    return check_id(value, "name")


def _prefix(value: str) -> str:
    for part in value.split("/"):
        check_id(part, "prefix")
    return value


def _plain(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value[:100]!r} holds characters that cannot be shown")
    return value


Plain = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_plain)]
"""A name that stands in messages, environment variables or Kafka requests."""


def parse_duration(value: Any) -> float:
    """Return `value` in seconds. Raises ValueError for anything that is not a duration from 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_DURATION:
        return float(value)
    if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        seconds = float(found[1]) * _SECONDS[found[2]]
        if seconds <= LONGEST_DURATION:
            return seconds
    raise ValueError(
        "a duration is a number of seconds from 0, or text such as '500ms', '20s', '5m', '2h', '7d', and at most "
        "a year"
    )


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds."""


def _check_texts(value: Any, under: tuple[int, ...] = (), done: set[int] | None = None) -> None:
    """Raise ValueError for what cannot be written again: broken Unicode, or a list or mapping within itself."""
    done = set() if done is None else done
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{value[:100]!r} is not Unicode") from error
    elif id(value) in under:
        raise ValueError("a list or mapping that holds itself")
    elif isinstance(value, dict | list | tuple) and id(value) not in done:
        for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            _check_texts(part, (*under, id(value)), done)
        done.add(id(value))


class _Loader(yaml.SafeLoader):
    """YAML as it is meant: a key that stands twice in one mapping is an error; PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make the mapping, unless a key stands in it twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value[:100]!r} stands there twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AssignorSettings(_Settings):
    """An assignor by name (`muster.core.assignors.BUILT_IN`) or dotted path, with its options."""

    name: str = "sticky"
    options: dict[str, Any] = Field(default_factory=dict)


class TopicsSettings(_Settings):
    """Topics by name, and by regular expressions that must match the whole name."""

    names: tuple[Annotated[str, AfterValidator(check_topic)], ...] = ()
    patterns: tuple[Annotated[str, AfterValidator(check_pattern)], ...] = ()

    @model_validator(mode="after")
    def _some(self) -> TopicsSettings:
        if not self.names and not self.patterns:
            raise ValueError("name at least one topic, under 'names' or 'patterns'")
        return self

    def includes(self, topic: str) -> bool:
        """Whether `topic` belongs to the cluster. Kafka's internal topics only by name, never by pattern."""
        return self.read_with(()).includes(topic)

    def read_with(self, decided: Iterable[TopicOverride], doubt: bool = False) -> Subscription:
        """These topics and what persons `decided` on top of them; `doubt`: some of that cannot be read."""
        return Subscription(frozenset(self.names), self.patterns, tuple(decided), doubt)


class ConsumersSettings(_Settings):
    """The consumers that Airflow runs for a cluster.

    `count` jobs named `[CLUSTER]-1` to `[CLUSTER]-[count]`, submitted through the Spark connection `spark`.
    `handler` is the dotted path of `process(batch_df, batch)`, or of a class that is called with
    `handler_options` and gives such a callable; `handlers` are those of topics that regular expressions match whole,
    in the order in which they are tried. `metadata` may hold `priority`, `weight`, `zone`, `topics`.
    `kafka`, `zookeeper` and `consul` are Airflow connections for the jobs, if they are not to have the rights of the
    cluster's own.
    """

    count: Annotated[int, Field(ge=0, le=10_000)] = 1
    spark: Plain = "muster_spark"
    kafka: Plain | None = None
    zookeeper: Plain | None = None
    consul: Plain | None = None
    handler: Annotated[str, AfterValidator(dotted)]
    handler_options: dict[str, Any] = Field(default_factory=dict)
    handlers: dict[Annotated[str, AfterValidator(check_pattern)], TopicHandler] = Field(default_factory=dict)
    spark_conf: dict[str, str] = Field(default_factory=dict)
    source_options: dict[str, str] = Field(default_factory=dict)
    """Options of Spark's Kafka source; see `muster.settings.source_options`."""
    metadata: dict[str, str] = Field(default_factory=dict)
    trigger_interval: Duration = 0.2
    max_records_per_batch: Annotated[int, Field(gt=0)] = 500_000
    check_interval: Duration = 1.0
    lost_after: Duration = 60.0
    """A consumer whose check fails this long is ended, as far as it can be reached, and submitted again."""
    startup_timeout: Duration = 180.0
    """How long a submitted consumer may take until it is live in Consul."""
    graceful_timeout: Duration = 60.0
    """How long a consumer that is asked to stop may take to close its partitions."""

    @model_validator(mode="before")
    @classmethod
    def _limit(cls, value: Any) -> Any:
        """Take Spark's name for the most records of a batch for the setting that it is."""
        options = value.get("source_options") if isinstance(value, dict) else None
        if not isinstance(options, dict) or not (limits := [name for name in options if is_limit(name)]):
            return value
        if "max_records_per_batch" in value:
            raise ValueError(
                f"'source_options.{LIMIT}' and 'max_records_per_batch' are the same; remove one of them"
            )
        others = {name: option for name, option in options.items() if not is_limit(name)}
        return {**value, "source_options": others, "max_records_per_batch": options[limits[-1]]}

    @field_validator("spark_conf", "source_options", "metadata", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return as_text(value)

    @field_validator("source_options")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        check_source_options(value)
        return value


def as_text(value: Any) -> Any:
    """A mapping's values as Java properties have them: text, numbers, true and false; others stay to be refused."""
    if not isinstance(value, dict):
        return value
    return {
        str(k) if isinstance(k, str | int | float) else k: str(v).lower()
        if isinstance(v, bool)
        else str(v)
        if isinstance(v, int | float)
        else v
        for k, v in value.items()
    }


Positive = Annotated[Duration, Field(gt=0)]


class RetentionSettings(_Settings):
    """`retention` in `clusters.yaml`: for how long what Muster leaves behind is kept, in seconds once read.

    `ticks` are runs of coordinators that succeeded and did nothing, `failures` those that failed, `rebalances` all
    others: runs that changed something (they have a note), by hand or not. `history` and the two limits are for each
    cluster's history in ZooKeeper. `airflow` is the Airflow connection through which runs are deleted. The
    DAG `muster_pruning` deletes what Airflow has of it, each coordinator its history in ZooKeeper.
    """

    ticks: Positive = 86_400.0
    failures: Positive = 7 * 86_400.0
    rebalances: Positive = 90 * 86_400.0
    history: Positive = 90 * 86_400.0
    history_entries: Annotated[int, Field(ge=1, le=20_000)] = 5_000
    history_megabytes: Annotated[int, Field(ge=1, le=1_000)] = 64
    airflow: str = "muster_airflow"

    @property
    def longest(self) -> float:
        """What is older than this is not needed any more."""
        return max(self.ticks, self.failures, self.rebalances)


class NotifierSettings(_Settings):
    """An Airflow notifier by the dotted path of its class, and what it is made with."""

    notifier: Annotated[str, AfterValidator(dotted)]
    options: dict[str, Any] = Field(default_factory=dict)


class ClusterSettings(_Settings):
    """One cluster. `name` is its key in the file. Durations are in seconds once read."""

    name: Annotated[str, AfterValidator(_identifier)]
    consul_service: Annotated[str, AfterValidator(_identifier)]
    group_id: Plain
    topics: TopicsSettings
    consumers: ConsumersSettings
    kafka: Plain = "muster_kafka"
    zookeeper: Plain = "muster_zookeeper"
    consul: Plain = "muster_consul"
    consul_prefix: Annotated[str, Field(max_length=200), AfterValidator(_prefix)] = "muster"
    """What the cluster's keys in Consul begin with; see `muster.edges.consul_keys`."""
    status: Plain | None = None
    """Airflow connection whose password is the bearer token of the consumers' status pages; None leaves them open."""
    assignor: AssignorSettings = AssignorSettings()
    shadow_assignor: AssignorSettings | None = None
    """Planned beside `assignor` to be compared with it; its plan is never carried out."""
    allowed_assignors: tuple[Annotated[str, AfterValidator(dotted)], ...] = ()
    """Dotted paths that people may choose by hand, besides the built-in assignors and the two above."""
    long_poll_timeout: Annotated[
        Duration, Field(ge=1, validation_alias=AliasChoices("long_poll_timeout", "tick"))
    ] = 20.0
    """How long a quiet run waits for a change; `tick` is its earlier name."""
    schedule_interval: Annotated[Duration, Field(ge=1)] = 2.0
    advance_budget: Annotated[Duration, Field(ge=1)] = 20.0
    stuck_after: Duration = 300.0
    on_stuck: tuple[NotifierSettings, ...] = ()
    """What is called when `advance_state`, `fetch_partitions`, `fetch_consumers` or, for good, a consumer fails."""
    rebalance_delay: Duration = 0.0
    closing_timeout: Duration = 30.0
    """How long a consumer that is isolated or fails its check, and still answers, may take to close partitions."""
    planning_error_delay: Duration = 60.0
    """How long the partitions of a consumer that is gone wait for the assignor, if that fails, before the sticky one
    replaces it."""
    fencing: bool = True
    """Whether Kafka refuses the commits of consumers that were replaced."""
    status_timeout: Positive = 2.0

    @field_validator("topics", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return {"names": value} if isinstance(value, list | tuple) else value

    @field_validator("on_stuck", mode="before")
    @classmethod
    def _notifiers(cls, value: Any) -> Any:
        return (
            [{"notifier": v} if isinstance(v, str) else v for v in value]
            if isinstance(value, list)
            else value
        )

    @field_validator("assignor", "shadow_assignor", mode="before")
    @classmethod
    def _name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def consumer_ids(self) -> tuple[str, ...]:
        """The ids of the consumers that Airflow runs for this cluster."""
        return tuple(f"{self.name}-{n}" for n in range(1, self.consumers.count + 1))


@dataclass(frozen=True)
class Clusters:
    """What a `clusters.yaml` holds: the clusters that are right, and an error for each that is not.

    `retention` is None if that entry is wrong, and `errors` says why: then nothing is to be deleted.
    """

    path: Path
    clusters: dict[str, ClusterSettings] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    retention: RetentionSettings | None = None

    def __getitem__(self, name: str) -> ClusterSettings:
        """Return the cluster `name`, or raise `SettingsError` saying what is wrong and which there are."""
        if name in self.clusters:
            return self.clusters[name]
        if name in self.errors:
            raise SettingsError(self.errors[name])
        known = ", ".join(sorted(self.clusters)) or "none"
        raise SettingsError(f"{self.path}: no cluster {name[:100]!r}; there are: {known}")


class _Accepted:
    """What the clusters of a file share with no other: a Consul service, and a group on one Kafka."""

    def __init__(self) -> None:
        self._services: dict[str, str] = {}
        self._groups: dict[tuple[str, str], str] = {}

    def conflict(self, cluster: ClusterSettings) -> str:
        """Why `cluster` must not stand beside those accepted before; '' if it may, and then it is accepted."""
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
    """What tells one Kafka from another without asking it: the connection's id, and its brokers where an environment
    variable has them. A connection that cannot be read has its id only."""
    extra = extra_in_environment(conn_id)
    servers = str(extra.get("bootstrap.servers") or "").lower().split(",")
    return {conn_id} | {f"{s if ':' in s else f'{s}:9092'}" for server in servers if (s := server.strip())}


def clusters_path() -> Path:
    """Where `clusters.yaml` is: `$MUSTER_CLUSTERS`, or beside the package in `include/`."""
    return Path(os.environ.get("MUSTER_CLUSTERS") or DEFAULT_PATH)


def _shown(part: str | int) -> str:
    text = str(part)[:100]
    return text if text.isprintable() else repr(text)


def _explain(
    path: Path, cluster: str, error: ValidationError, model: type[BaseModel] = ClusterSettings
) -> str:
    where = f"cluster {cluster!r}" if model is ClusterSettings else f"'{cluster}'"
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(map(_shown, item["loc"])) or "(the whole entry)"
        given = (
            ""
            if item["type"] in {"missing", "extra_forbidden"}
            else f" (given: {reprlib.repr(item['input'])})"
        )
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key; allowed are: " + ", ".join(_allowed(item["loc"], model))
        lines.append(f"{path}: {where}, key '{key}': {message}{given}")
    return "\n".join(lines)


def _allowed(location: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return sorted(set(model.model_fields) - {"name"} if model is ClusterSettings else set(model.model_fields))


def _with_retention(path: Path, entry: Any) -> Clusters:
    try:
        return Clusters(path, retention=RetentionSettings.model_validate({} if entry is None else entry))
    except ValidationError as error:
        return Clusters(path, errors={"retention": _explain(path, "retention", error, RetentionSettings)})


def load_clusters(path: Path | None = None) -> Clusters:
    """Read and validate `clusters.yaml`.

    Raises `SettingsError` if the file as a whole cannot be read; an error in one cluster is put in
    `Clusters.errors` and leaves the others usable.
    """
    path = path or clusters_path()
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); create it, or set MUSTER_CLUSTERS"
        ) from error
    found = _parse(path, text)
    return replace(found, clusters=dict(found.clusters), errors=dict(found.errors))


@lru_cache(maxsize=1)
def _parse(path: Path, text: bytes) -> Clusters:
    """What the file holds. Kept, because a task needs it twice, and a file of a hundred clusters takes 0.2 s; what
    Airflow's scheduler has read by then, the tasks' processes inherit."""
    try:
        content = yaml.load(text.decode(), _Loader)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: of bytes that are no UTF-8, and of a date that there is not.
        raise SettingsError(f"{path}: not YAML: {str(error)[:1000]}; correct the file") from error
    if not isinstance(content, dict) or not isinstance(content.get("clusters"), dict):
        raise SettingsError(
            f"{path}: expected a top-level key 'clusters' with one entry a cluster; docs/settings.md shows it"
        )
    if extra := sorted(repr(str(key)[:100]) for key in content if key not in {"clusters", "retention"}):
        raise SettingsError(
            f"{path}: unknown top-level key {', '.join(extra)}; only 'clusters' and 'retention' are allowed, take "
            "the others out"
        )
    result = _with_retention(path, content.get("retention"))
    accepted = _Accepted()
    for key, entry in content["clusters"].items():
        name = str(key)[:LONGEST_NAME]
        if name in result.clusters or name in result.errors:
            result.clusters.pop(name, None)
            result.errors[name] = (
                f"{path}: cluster {name!r} stands there twice; give one of them another name"
            )
            continue
        if not isinstance(entry, dict):
            result.errors[name] = (
                f"{path}: cluster {name!r}: expected keys and values, found {reprlib.repr(entry)}"
            )
            continue
        try:
            _check_texts(entry)
        except ValueError as error:
            result.errors[name] = f"{path}: cluster {name!r}: {error}; correct it"
            continue
        try:
            cluster = ClusterSettings.model_validate({**entry, "name": name})
        except ValidationError as error:
            result.errors[name] = _explain(path, name, error)
            continue
        if conflict := accepted.conflict(cluster):
            result.errors[name] = f"{path}: cluster {name!r}, {conflict}"
            continue
        result.clusters[name] = cluster
    return result
