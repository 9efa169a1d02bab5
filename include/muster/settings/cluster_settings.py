"""What one cluster is: the keys of its entry in the settings, checked, with their defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from muster.core.overrides import TopicOverride
from muster.core.parking import OnPoison
from muster.core.seeking import StartingOffsets
from muster.core.state_topics import StateTopics
from muster.core.subscription import Subscription, check_pattern
from muster.core.wire import check_id, check_topic
from muster.settings.consumer import LEAST_READ_AHEAD, TopicHandler, default_dead_letter_topic, dotted
from muster.settings.shared_state import why_not_shared
from muster.settings.source_options import (
    LIMIT,
    MIN_PARTITIONS,
    check_source_options,
    is_limit,
    min_partitions,
    starting_offsets,
)

LONGEST_DURATION = 365 * 86_400.0
"""Seconds; what is longer is a slip of the finger, and more than a clock can wait."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_METADATA = 512
"""Bytes of one value of Consul's metadata."""
SET_BY_PROCESS = frozenset(
    {"cluster", "generation", "host", "incarnation", "leaving", "pid", "protocol", "replaces", "version"}
)
"""The metadata keys that a consumer itself registers."""
_METADATA_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
_HOST_NAME = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?"
)


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
        """Tell whether `topic` belongs to the cluster. Kafka's internal topics only by name, never by pattern."""
        return self.read_with(()).includes(topic)

    def read_with(self, decided: Iterable[TopicOverride], doubt: bool = False) -> Subscription:
        """Return these topics and what persons `decided` on top of them; `doubt`: some of that cannot be read."""
        return Subscription(frozenset(self.names), self.patterns, tuple(decided), doubt)


def as_text(value: Any) -> Any:
    """Write a mapping's values as Java properties have them: text, numbers, booleans; others stay to be refused."""
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


def _metadata(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not _METADATA_KEY.fullmatch(key):
            raise ValueError(f"key {key[:100]!r}: Consul takes up to 128 letters, digits, '-' and '_'")
        if len(text.encode()) > LONGEST_METADATA:
            raise ValueError(f"key {key!r}: Consul takes at most {LONGEST_METADATA} bytes")
        if key in SET_BY_PROCESS:
            raise ValueError(f"key {key!r} is set by the consumer itself; take it out, or use another one")
    return value


Metadata = Annotated[dict[str, str], BeforeValidator(as_text), AfterValidator(_metadata)]
"""What a consumer registers in Consul beside its address."""


def _address(value: str) -> str:
    if not (_HOST_NAME.fullmatch(value) or _is_ip(value)):
        raise ValueError("expected an IP address or a host name, without scheme and port")
    return value


def _is_ip(value: str) -> bool:
    try:
        ip_address(value)
    except ValueError:
        return False
    return True


Address = Annotated[str, Field(max_length=255), AfterValidator(_address)]
Port = Annotated[int, Field(ge=0, lt=65536)]


class EachConsumer(_Settings):
    """What one consumer has instead of what all have: its place in assignments, where it is, and more metadata."""

    weight: Annotated[float, Field(ge=0.001, le=1_000_000)] | None = None
    zone: Plain | None = None
    priority: int | None = None
    topics: Annotated[tuple[Annotated[str, AfterValidator(check_topic)], ...], Field(min_length=1)] | None = (
        None
    )
    metadata: Metadata = Field(default_factory=dict)
    bind: Address | None = None
    advertise: Address | None = None
    port: Port | None = None

    def registered(self) -> dict[str, str]:
        """Return what it registers, as Consul's metadata has it."""
        known = {
            "weight": None if self.weight is None else f"{self.weight:g}",
            "zone": self.zone,
            "priority": None if self.priority is None else str(self.priority),
            "topics": None if self.topics is None else ",".join(self.topics),
        }
        return self.metadata | {key: text for key, text in known.items() if text is not None}

    @model_validator(mode="after")
    def _fits(self) -> EachConsumer:
        _metadata(self.registered())
        return self


def _no_or_absolute(value: str) -> str:
    return _absolute(value) if value else value


class ConsumersSettings(_Settings):
    """The consumers that Airflow runs for a cluster.

    `count` jobs named `[CLUSTER]-1` to `[CLUSTER]-[count]`, submitted through the Spark connection `spark`.
    `handler` is the dotted path of `process(batch_df, batch)`, or of a class that is called with
    `handler_options` and gives such a callable; `handlers` are those of topics that regular expressions match whole,
    in the order in which they are tried. `metadata` may hold `priority`, `weight`, `zone`, `topics`, and what
    an assignor of one's own looks at; `each` has by id what single consumers have instead.
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
    metadata: Metadata = Field(default_factory=dict)
    each: dict[str, EachConsumer] = Field(default_factory=dict)
    bind: Address | None = None
    """What the status page listens on; None: the address that is found out."""
    advertise: Address | None = None
    """What Consul, and so the coordinator, reaches the status page at; None: `bind`, else the address found out."""
    port: Port = 0
    """Of the status page; 0 takes a free one."""
    trigger_interval: Duration = 0.2
    max_records_per_batch: Annotated[int, Field(gt=0)] = 500_000
    target_batch_time: Annotated[Duration, Field(gt=0)] = 10.0
    """A batch that takes longer makes the next one smaller; see `muster.consumer.source.batch_size`."""
    max_bytes_per_batch: Annotated[int, Field(gt=0)] | None = None
    max_read_ahead: Annotated[int, Field(ge=LEAST_READ_AHEAD)] | None = None
    """About so many bytes of keys, values and headers; None: any."""
    max_rate: dict[
        Annotated[str, AfterValidator(check_pattern)], Annotated[float, Field(gt=0, allow_inf_nan=False)]
    ] = Field(default_factory=dict)
    """Records a second of a topic, over all consumers, by regular expressions that match its whole name; the first
    that matches counts. A number is for each topic."""
    state: tuple[
        Annotated[str, AfterValidator(check_pattern)]
        | tuple[Annotated[str, AfterValidator(check_topic)], ...],
        ...,
    ] = ()
    """The topics with state by key, by regular expressions that match their whole names; a list names topics that
    share it, see `muster.core.state_topics`."""
    state_folder: Annotated[str, AfterValidator(_no_or_absolute)] = ""
    """Where consumers keep the local stores; empty: below the folder for temporary files."""
    on_poison: OnPoison = OnPoison.PARK
    dead_letter_topic: Annotated[str, AfterValidator(check_topic)] | None = None
    """Where dead letters go; None: see `ClusterSettings.dead_letter_topic`."""
    max_batch_time: Annotated[Duration, Field(gt=0)] | None = None
    """A batch that is still in its handler after so long is asked about; None: no batch is."""
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

    @field_validator("max_rate", mode="before")
    @classmethod
    def _of_all(cls, value: Any) -> Any:
        return {".*": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("spark_conf", "source_options", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return as_text(value)

    @field_validator("source_options")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        check_source_options(value)
        return value

    @property
    def starting_offsets(self) -> StartingOffsets:
        """Where the partitions of a topic begin that is new to the group."""
        return starting_offsets(self.source_options)

    def place_of(self, consumer: str) -> tuple[str, str, int]:
        """Return `bind`, `advertise` and `port` of `consumer`, '' for an address that is found out."""
        own = self.each.get(consumer, EachConsumer())
        port = self.port if own.port is None else own.port
        return own.bind or self.bind or "", own.advertise or self.advertise or "", port

    def metadata_of(self, consumer: str) -> dict[str, str]:
        """Return what `consumer` registers: what all do, and its own on top."""
        own = self.each.get(consumer)
        return {**self.metadata, **(own.registered() if own is not None else {})}


Positive = Annotated[Duration, Field(gt=0)]


def _absolute(value: str) -> str:
    if not PurePath(value).is_absolute():
        raise ValueError(f"{value[:100]!r} is no absolute path; begin it with a slash")
    return value


class AllowedImports(_Settings):
    """What people may name in `import-offsets` that Airflow then reads with its own rights: connections to
    ZooKeeper besides the cluster's own, and folders that hold checkpoints of Spark queries, at any depth."""

    zookeeper: tuple[Plain, ...] = ()
    checkpoints: tuple[Annotated[Plain, AfterValidator(_absolute)], ...] = ()


class RetentionSettings(_Settings):
    """`retention` in the settings: for how long what Muster leaves behind is kept, in seconds once read.

    `quiet_runs` (`ticks` is its earlier name) are runs of coordinators that succeeded and did nothing, `failures`
    those that failed, `rebalances` all others: runs that changed something (they have a note), by hand or not.
    `history` and the two limits are for each cluster's history in ZooKeeper. `airflow` is the Airflow connection
    through which runs are deleted. The DAG `muster_pruning` deletes what Airflow has of it, each coordinator its
    history in ZooKeeper.
    """

    quiet_runs: Annotated[Positive, Field(validation_alias=AliasChoices("quiet_runs", "ticks"))] = 86_400.0
    failures: Positive = 7 * 86_400.0
    rebalances: Positive = 90 * 86_400.0
    history: Positive = 90 * 86_400.0
    history_entries: Annotated[int, Field(ge=1, le=20_000)] = 5_000
    history_megabytes: Annotated[int, Field(ge=1, le=1_000)] = 64
    airflow: str = "muster_airflow"

    @property
    def longest(self) -> float:
        """What is older than this is not needed any more."""
        return max(self.quiet_runs, self.failures, self.rebalances)


class NotifierSettings(_Settings):
    """An Airflow notifier by the dotted path of its class, and what it is made with."""

    notifier: Annotated[str, AfterValidator(dotted)]
    options: dict[str, Any] = Field(default_factory=dict)


class TaskSettings(_Settings):
    """Where and when Airflow runs tasks, with the names of its `BaseOperator`; None leaves Airflow's default."""

    queue: Plain | None = None
    pool: Plain | None = None
    executor: Plain | None = None
    priority_weight: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None

    def arguments(self) -> dict[str, Any]:
        """Return what is given, as arguments of an operator."""
        return self.model_dump(exclude_none=True)


class AirflowSettings(_Settings):
    """How Airflow routes the tasks of the coordinator's DAGs and those of the consumers."""

    coordinator: TaskSettings = TaskSettings()
    consumers: TaskSettings = TaskSettings()


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
    airflow: AirflowSettings = AirflowSettings()
    assignor: AssignorSettings = AssignorSettings()
    shadow_assignor: AssignorSettings | None = None
    """Planned beside `assignor` to be compared with it; its plan is never carried out."""
    allowed_assignors: tuple[Annotated[str, AfterValidator(dotted)], ...] = ()
    """Dotted paths that people may choose by hand, besides the built-in assignors and the two above."""
    allowed_imports: AllowedImports = AllowedImports()
    long_poll_timeout: Annotated[
        Duration, Field(ge=1, validation_alias=AliasChoices("long_poll_timeout", "tick"))
    ] = 20.0
    """How long a quiet run waits for a change; `tick` is its earlier name."""
    schedule_interval: Annotated[Duration, Field(ge=1)] = 2.0
    advance_budget: Annotated[Duration, Field(ge=1)] = 20.0
    stuck_after: Duration = 300.0
    max_lag: dict[Annotated[str, AfterValidator(check_pattern)], Annotated[Duration, Field(gt=0)]] = Field(
        default_factory=dict
    )
    """How old the oldest record of a topic may be that is not committed, by regular expressions that match its whole
    name; the first that matches counts. One duration is for each topic."""
    on_stuck: tuple[NotifierSettings, ...] = ()
    """What is called when `advance_state`, `fetch_partitions`, `fetch_consumers` or, for good, a consumer fails."""
    rebalance_delay: Duration = 0.0
    closing_timeout: Duration = 30.0
    """How long a consumer that is isolated or fails its check, and still answers, may take to close partitions."""
    planning_error_delay: Duration = 60.0
    """How long the partitions of a consumer that is gone wait for the assignor, if that fails, before the sticky one
    replaces it."""
    max_warm_ups: Annotated[int, Field(ge=1)] = 2
    """How many partitions with state are warmed up at once where they move to for the sake of balance."""
    warm_up_timeout: Positive = 600.0
    """How long a drain, an exclusion or a pin waits for a warm copy of a partition's state, before it moves cold."""
    fencing: bool = True
    """Whether Kafka refuses the commits of consumers that were replaced."""
    status_timeout: Positive = 2.0

    @field_validator("topics", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(  # noqa: TRY004  pydantic takes no other
                f"expected a list of names, such as [{value[:100]}]"
            )
        return {"names": value} if isinstance(value, list | tuple) else value

    @field_validator("on_stuck", mode="before")
    @classmethod
    def _notifiers(cls, value: Any) -> Any:
        return (
            [{"notifier": v} if isinstance(v, str) else v for v in value]
            if isinstance(value, list)
            else value
        )

    @field_validator("max_lag", mode="before")
    @classmethod
    def _of_all(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {".*": value}

    @field_validator("assignor", "shadow_assignor", mode="before")
    @classmethod
    def _name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _each(self) -> ClusterSettings:
        for consumer in self.consumers.each:
            number = consumer.removeprefix(f"{self.name}-")
            if number == consumer or not re.fullmatch(r"[1-9]\d{0,4}", number):
                raise ValueError(
                    f"'consumers.each' has {consumer[:100]!r}; a consumer is called {self.name}-[NUMBER], such as "
                    f"{self.name}-1"
                )
        return self

    @property
    def state(self) -> StateTopics:
        """Which topics have state by key."""
        return StateTopics(self.consumers.state)

    def without_room(self, options: Mapping[str, Any]) -> str:
        """Say why an assignor's standbys would have no room where topics have state, '' if they have."""
        wanted, count = options.get("standbys"), self.consumers.count
        if not self.consumers.state or not isinstance(wanted, int) or not 0 < count <= wanted:
            return ""
        return (
            f"'standbys: {wanted}' has no room: an owner and its standbys need {wanted + 1} consumers, and "
            f"'consumers.count' is {count}. Raise that, or lower 'standbys'"
        )

    @model_validator(mode="after")
    def _state(self) -> ClusterSettings:
        if why := self.without_room(self.assignor.options):
            raise ValueError(f"'assignor': {why}")
        if self.consumers.state and not self.fencing:
            raise ValueError(
                "'consumers.state' needs 'fencing: true': state is written in the transaction that fences its "
                "offset. Take 'fencing: false' out"
            )
        if wrong := why_not_shared(
            self.state,
            self.topics.includes,
            self.consumers.handlers,
            self.assignor.name,
            self.assignor.options,
        ):
            raise ValueError(f"'consumers.state': {wrong}")
        if self.consumers.state and min_partitions(self.consumers.source_options) > 1:
            raise ValueError(
                f"'consumers.state' and 'consumers.source_options.{MIN_PARTITIONS}' exclude each other: one task "
                f"reads all of a partition that has state. Take '{MIN_PARTITIONS}' out"
            )
        return self

    @model_validator(mode="after")
    def _dead_letters(self) -> ClusterSettings:
        if self.consumers.on_poison is OnPoison.DEAD_LETTER and not self.fencing:
            raise ValueError(
                "'consumers.on_poison: dead_letter' needs 'fencing: true': a dead letter is written in the "
                "transaction that fences its offset. Take 'fencing: false' out, or set 'on_poison: park'"
            )
        if self.topics.includes(self.dead_letter_topic):
            raise ValueError(
                f"'consumers.dead_letter_topic' is {self.dead_letter_topic!r}, which the cluster itself reads by "
                "'topics'; name another topic, such as one that begins with '__', which no pattern covers"
            )
        return self

    @property
    def dead_letter_topic(self) -> str:
        """Where dead letters of this cluster go."""
        return self.consumers.dead_letter_topic or default_dead_letter_topic(self.name)

    def max_lag_of(self, topic: str) -> float | None:
        """Return the `max_lag` that `topic` is held to, None if there is none."""
        return next((most for name, most in self.max_lag.items() if re.fullmatch(name, topic)), None)

    def consumer_ids(self) -> tuple[str, ...]:
        """Return the ids of the consumers that Airflow runs for this cluster."""
        return tuple(f"{self.name}-{n}" for n in range(1, self.consumers.count + 1))
