"""What the dashboard's API answers and takes: the contract between the server and the page.

Moments are in seconds since the Unix epoch, durations in seconds, lag in records, rates in records a second. A field
that is None is not known, never 0. Nothing here changes with the mere passing of time, so an answer that says the
same is the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from muster.cluster.last_rebalance import LastRebalance
from muster.cluster.problems import Problem
from muster.commands.command import Field as CommandField
from muster.core.model import ConsumerDetails
from muster.core.overrides import Override
from muster.core.preview import Share
from muster.core.time_lag import TimeLag

Moment = float
Ranges = list[tuple[int, int]]
"""Partition numbers as [first, last], both included, ascending."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# --- How old it is, and what could not be reached ---------------------------------------------------------------


class SourceHealth(_Answer):
    """One of the places that a reading is put together from.

    While it is not reachable (of 'consumers': while none of those asked answers), what is shown of it is what was
    read last, at `last_read_at`.
    """

    source: Literal["zookeeper", "consul", "kafka", "consumers", "history"]
    reachable: bool
    address: str = ""  # as the connection says it; '' if unknown
    error: str = ""  # what is wrong and what to do about it
    unreachable_since: Moment | None = None
    last_read_at: Moment | None = None  # None when reachable (then Freshness.read_at), or never


class Freshness(_Answer):
    """How old an answer is. Not part of what makes an answer 'changed', as far as `read_at` goes."""

    read_at: Moment | None  # when the servers were last asked; None if never yet
    ttl: float  # seconds for which a reading is used again; ask again after them
    sources: list[SourceHealth] = []


# --- Clusters ---------------------------------------------------------------------------------------------------


class Health(StrEnum):
    """Worst first: `critical` needs a person now, `warning` a look; `rebalancing` passes by itself."""

    CRITICAL = "critical"
    WARNING = "warning"
    REBALANCING = "rebalancing"
    OK = "ok"
    UNKNOWN = "unknown"


class Said(_Answer):
    """Who decided something, when and why."""

    by: str
    at: Moment | None = None
    why: str

    @classmethod
    def of(cls, entry: Override) -> Self:
        """Tell who decided `entry`, when and why."""
        return cls(by=entry.by, at=entry.at or None, why=entry.why)


class ConsumerCounts(_Answer):
    """Consumers by how they stand. Every consumer is in exactly one of these."""

    live: int = 0
    isolated: int = 0
    starting: int = 0  # submitted, and not registered yet
    missing: int = 0  # gone or not passing, and named in an assignment or expected by the settings
    not_passing: int = 0  # registered in Consul with a failing check, and with no partitions
    unknown: int = 0  # Consul cannot be trusted at present


class Behind(_Answer):
    """How far behind in time something is: `age` of the oldest record that is not committed, when the offsets were
    read; `catch_up` at the present rates, unless it `never` does; `kept`, a lower bound of the time until retention
    deletes that record, None also where it does not; `near` if most of that time is over."""

    age: float | None = None
    catch_up: float | None = None
    never: bool = False
    kept: float | None = None
    near: bool = False

    @classmethod
    def of(cls, found: TimeLag) -> Self:
        """Show this in seconds."""
        age, kept = (None if one is None else round(one, 1) for one in (found.age, found.kept))
        wait = found.seconds_to_catch_up
        return cls(age=age, catch_up=wait, never=found.never, kept=kept, near=found.near_deletion)


class ClusterSummary(_Answer):
    """A cluster at a glance. Counts by state have only those above 0.

    `error` says why the cluster's settings cannot be used; then nothing else is known. `state` is
    Rebalancing while any topic is Initial, Starting or Closing, and Empty without topics.
    """

    name: str
    health: Health
    error: str = ""
    coordinator_dag: str = ""  # its DAG's id; the page links to ../dags/{id} in Airflow
    may_edit: bool  # whether this user may give commands
    paused: Said | None = None  # nothing is planned until it is resumed
    rebalance_asked: Said | None = None  # and not carried out yet
    state: Literal["Stable", "Rebalancing", "Empty", "Unknown"] = "Unknown"
    since: Moment | None = None  # since when it is in that state
    topics: dict[str, int] = {}  # Initial, Starting, Stable, Closing, Unreadable
    partitions: int = 0
    partition_states: dict[str, int] = {}  # by PartitionState
    pinned: int = 0  # partitions
    consumers: ConsumerCounts = ConsumerCounts()
    lag: int | None = None  # over the partitions where it is known
    lag_unknown: int = 0  # the other partitions
    behind: Behind = Behind()  # the topic that is furthest behind, and the one that loses records first
    rate: float | None = None  # records that arrive
    consumed_rate: float | None = None  # records that are committed
    last_rebalance: LastRebalance | None = None
    assignor: str = ""  # the one in force
    problems: list[Problem] = []  # the worst first, at most five here
    problem_count: int = 0  # all of them
    freshness: Freshness


class ClustersAnswer(_Answer):
    """All clusters that the user may read, by name. `error` says which settings cannot be read."""

    user: str
    clusters: list[ClusterSummary]
    error: str = ""


class Isolation(_Answer):
    """A consumer that a person took out."""

    consumer: str
    said: Said


class PinEntry(_Answer):
    """Partitions of one topic that one decision pinned to one consumer."""

    topic: str
    partitions: Ranges
    consumer: str
    said: Said
    obstacle: str = ""  # why the pin is not obeyed now


class ExclusionEntry(_Answer):
    """A consumer that is kept from a topic."""

    consumer: str
    topic: str
    said: Said


class WaitingEntry(_Answer):
    """What holds up partitions of a topic since `since`: a consumer, or what `why` says if `consumer` is ''. `offset`
    is that of the record that holds the one partition up, if it is a record. `asked`: no person has decided it."""

    topic: str
    consumer: str
    phase: Literal["answer", "close", "start", "progress", "finish", "restore"]
    partitions: Ranges
    why: str
    since: Moment | None = None
    offset: int | None = None
    asked: bool = True


class AssignorInForce(_Answer):
    """The assignor that the coordinator plans with: what the settings say (`configured`), or what a person `said`
    instead."""

    name: str
    options: dict[str, Any] = {}
    from_settings: bool = True
    said: Said | None = None
    configured: str = ""


class CommandState(_Answer):
    """Whether a command can be given at all; its fields are checked when it is."""

    lever: str  # the command's name, as in the path: isolate, restore, pin, pause, ...
    available: bool
    why_not: str = ""


class OverrideEntry(_Answer):
    """An override in force, which a command left; `on` says by the command's fields what it is about, and `does` what
    it does if that does not say all."""

    command: str
    on: dict[str, Any]
    said: Said
    does: str = ""


class ClusterAnswer(_Answer):
    """One cluster: the summary and everything that is not by topic or by consumer. Lists have at most 100 entries."""

    summary: ClusterSummary
    problems: list[Problem] = []
    waiting: list[WaitingEntry] = []
    waiting_count: int = 0
    isolated: list[Isolation] = []
    pins: list[PinEntry] = []
    pin_count: int = 0
    exclusions: list[ExclusionEntry] = []
    assignor: AssignorInForce
    assignors: list[str] = []  # those that may be chosen by hand
    shadow_assignor: str | None = None
    stuck_after: float  # seconds after which a topic that is not Stable counts as stuck
    tick: float  # seconds between two looks of the coordinator when nothing happens
    group_id: str
    consul_service: str
    levers: list[CommandState]
    overrides: list[OverrideEntry] = []  # about consumers and topics, by command


# --- Topics -----------------------------------------------------------------------------------------------------


class TopicRow(_Answer):
    """One topic in the list. `stuck` is the full message if it, or an owner's progress, waits longer than
    stuck_after."""

    topic: str
    state: Literal["Initial", "Starting", "Stable", "Closing", "Unreadable"]
    since: Moment | None = None  # since when it is Stable, or is not
    error: str = ""  # why it cannot be read; the other topics go on
    stuck: str = ""
    reason: str = ""  # why it left or reached its state
    epoch: int = 0
    partitions: int = 0
    partition_states: dict[str, int] = {}  # by PartitionState, only above 0
    pinned: int = 0
    owners: int = 0  # consumers that have partitions of it
    lag: int | None = None
    behind: Behind = Behind()
    max_lag: float | None = None  # how old the oldest record may be by the settings; None: any
    rate: float | None = None


class TopicsAnswer(_Answer):
    """A page of the `total` topics that fit the filter. `sort`: topic, state (worst first), lag, age, rate,
    partitions, since."""

    topics: list[TopicRow]
    total: int
    offset: int
    freshness: Freshness


class ParkedEntry(_Answer):
    """What holds a parked partition up: the record at `offset`, or the first of those that are lost; `why` in words.
    `answer` was decided about it and is not done yet: `skip` or `dead_letter`, '' for nothing."""

    offset: int
    why: str
    answer: str = ""


class ShardEntry(_Answer):
    """The state by key of a partition: entries and bytes on disk, and the offset up to which it holds the records.
    `restoring` says how far its restore is, '' without one; `differs` why a person is to choose where it goes on.
    `executor` is the one on another host that computed it last, '' if the driver's host does."""

    keys: int = 0
    bytes: int = 0
    offset: int | None = None
    restoring: str = ""
    differs: str = ""
    executor: str = ""


class TopicAnswer(_Answer):
    """One topic with the matrix of its partitions, in columns: entry i of each is of the i-th partition.

    `partitions` are the numbers as ranges, so with [[0, 99]] entry 7 is partition 7; `state` has one letter of
    PartitionState each. `owner`, `source` and `target` are indices into `consumers`, -1 for none. `source` is to
    close it (state C), `target` is to have it when that is not the owner yet. Columns but `state` and `owner` are
    empty where nothing is known of any partition.
    """

    row: TopicRow
    partitions: Ranges = []
    consumers: list[str] = []
    state: str = ""
    owner: list[int] = []
    source: list[int] = []
    target: list[int] = []
    lag: list[int | None] = []
    age: list[float | None] = []  # of the oldest record that is not committed
    rate: list[float | None] = []
    committed: list[int | None] = []  # the group's offset
    end: list[int | None] = []  # the offset after the last record
    pins: list[PinEntry]
    standbys: dict[int, list[str]] = {}  # by partition number
    copies: dict[
        int, dict[str, str]
    ] = {}  # of state, by partition and consumer: how warm, and what they lack
    parked: dict[int, ParkedEntry] = {}  # those in state K, by partition number
    shards: dict[int, ShardEntry] = {}  # those with state by key, by partition number
    waiting: list[WaitingEntry] = []
    exclusions: list[ExclusionEntry] = []
    bootstrap_servers: str = ""
    group_id: str = ""
    freshness: Freshness


# --- Consumers --------------------------------------------------------------------------------------------------


class ConsumerRow(_Answer):
    """One consumer in the list. What its status page does not tell (foreign consumers need not) is None or ''."""

    consumer: str
    state: Literal["live", "starting", "isolated", "not passing", "gone", "unknown"]
    expected: bool = False  # Airflow runs it for this cluster (the settings)
    said: Said | None = None  # who isolated it
    error: str = ""  # its status is unavailable, or what it reports to be wrong
    doing: str = ""  # what it says it does: running, starting, leaving, isolated, ...
    host: str = ""
    address: str = ""  # host:port of its status page
    version: str = ""
    incarnation: str = ""
    started_at: Moment | None = None
    partitions: int = 0  # assigned to it
    running: int = 0  # of those, by PartitionState
    paused: int = 0
    parked: int = 0
    restoring: int = 0
    starting: int = 0
    closing: int = 0  # no longer assigned to it, and not yet closed
    pinned: int = 0
    topics: int = 0  # that it has partitions of
    commands: list[str] = []  # those that make sense on it now
    overrides: list[OverrideEntry] = []  # those on it alone
    lag: int | None = None  # over its partitions
    rate: float | None = None
    share: float | None = None  # its partitions per weight over the average of the live ones
    weight: float | None = None
    priority: int | None = None
    zone: str | None = None


class ConsumersAnswer(_Answer):
    """A page of the `total` consumers that fit the filter. `sort`: consumer, state (worst first), partitions, lag,
    rate, started_at, host."""

    consumers: list[ConsumerRow]
    total: int
    offset: int
    freshness: Freshness


class ConsumerTopic(_Answer):
    """What a consumer has of one topic; whether `unknown` ones run is unknown."""

    topic: str
    running: Ranges
    paused: Ranges = []
    parked: Ranges = []
    restoring: Ranges = []
    starting: Ranges
    closing: Ranges
    unknown: Ranges
    standby: Ranges
    pinned: Ranges
    lag: int | None = None
    rate: float | None = None


class ConsumerAnswer(_Answer):
    """One consumer with all that it has, at most 1,000 topics."""

    row: ConsumerRow
    topics: list[ConsumerTopic]
    details: ConsumerDetails  # what its status page says for people
    exclusions: list[ExclusionEntry] = []
    subscribes: list[str] | None = None  # the topics that it takes; None: all
    freshness: Freshness


# --- Timeline ---------------------------------------------------------------------------------------------------


class MoveEntry(_Answer):
    """Partitions of one topic that went the same way for the same reason; None: no consumer had or takes them."""

    topic: str
    partitions: Ranges
    source: str | None
    target: str | None
    why: str


class TimelineEntry(_Answer):
    """Something that happened: a step of a topic, or what a person did.

    `moves` is cut at 200 partitions; `moved` counts all. `lasted` is how long the phase that ends here (`before`)
    took, None where its beginning is not on the page; `rebalance_lasted` the time since the topic's rebalance began.
    """

    id: str  # stays the same; newer ones are greater as text
    at: Moment
    kind: Literal["transition", "lever", "unreadable"]
    topic: str | None = None
    lever: str | None = None  # the command that a person gave: isolate, pin, pause, ...
    details: dict[str, Any] = {}  # what the command was given
    before: str | None = None  # the states around a transition
    after: str | None = None
    reason: str
    who: str | None = None  # the person who caused it, as far as one did
    epoch: int | None = None
    moved: int = 0
    moves: list[MoveEntry] = []
    lasted: float | None = None
    rebalance_lasted: float | None = None
    by: str = ""  # what wrote it: a DAG and its run, the command line, the dashboard


class TimelineAnswer(_Answer):
    """The newest first. `next_before`: pass as `before` for what is older; None at the end."""

    entries: list[TimelineEntry]
    next_before: int | None = None
    freshness: Freshness


# --- What if ----------------------------------------------------------------------------------------------------


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class JoiningConsumer(_Request):
    """A consumer that is supposed to be there, or to have other attributes."""

    consumer: str
    weight: Annotated[float, Field(gt=0)] | None = None
    priority: int | None = None
    zone: str | None = None
    topics: list[str] | None = None


class AssignorChoice(_Request):
    """An assignor by name or dotted path, with its options."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    options: dict[str, Any] = {}


class SupposedAssignor(_Request):
    """An assignor by name or dotted path, with its options; without a name the one in force, with these options put
    over its own."""

    name: Annotated[str, StringConstraints(max_length=200)] = ""
    options: dict[str, Any] = {}


class WhatIfRequest(_Request):
    """What is supposed. Nothing at all: what the next coordinator run would do."""

    without: list[str] = Field(default_factory=list, max_length=10_000)  # as if these live consumers had left
    more: int = Field(0, ge=0, le=1000)  # as if so many more were live, named new-1, new-2, ...
    joining: list[JoiningConsumer] = Field(default_factory=list, max_length=1000)
    partitions: dict[str, int] = {}  # as if topics had so many partitions
    assignor: SupposedAssignor | None = None  # instead of the one in force


class BalanceEntry(_Answer):
    """How evenly partitions are spread over the live consumers; `least` and `most` are of one consumer."""

    consumers: int
    partitions: int
    least: int
    most: int
    unowned: int
    words: str  # the same in words


class Applicable(_Answer):
    """Whether a previewed plan can be brought about in one way."""

    possible: bool
    why_not: str = ""


class WhatIfAnswer(_Answer):
    """A plan that is not carried out. Lists are cut, moves and shares at 500; the counts are of all.

    `plan` names this very plan: `apply` refuses if it would be another one by then. `held` says why nothing would be
    planned.
    """

    plan: str
    assignor: str
    held: str = ""
    moved: int
    moves: list[MoveEntry]
    reasons: list[tuple[str, int]]  # with the number of partitions, the most first
    shares: list[Share]  # those that change, the largest change first
    share_count: int
    before: BalanceEntry
    after: BalanceEntry
    impossible_pins: list[str] = []
    under_way: list[str] = []  # topics whose rebalance is finished first
    unreadable: dict[str, str] = {}  # topic to the reason
    warnings: list[str] = []
    states: list[str] = []  # what the moves mean for state by key: all of them, then each that is not warm
    as_pins: Applicable
    as_assignor: Applicable


# --- Commands ---------------------------------------------------------------------------------------------------

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class CommandBody(_Request):
    """What every command takes; the fields of `muster.commands.table` are added. The actor is the logged-in user."""

    reason: Reason


class ApplyBody(CommandBody):
    """Bring about what a preview showed, as pins of the partitions that move, or as a change of assignor."""

    what_if: WhatIfRequest
    plan: str  # `WhatIfAnswer.plan` of what was shown
    way: Literal["pins", "assignor"]


class CommandAnswer(_Answer):
    """What the command did, in words; the first line says what was done."""

    lines: list[str]
    values: dict[str, Any] = {}


class CommandEntry(_Answer):
    """One command of `muster.commands.table`, for menus and dialogs; `muster.commands.command.Command` explains it.

    `happens` says what will happen, a paragraph each. `undo` is '' if no override is left. `preview` is what a
    preview has to suppose (`WhatIfRequest`, fields in braces); None for no preview.
    """

    name: str
    label: str
    question: str
    happens: list[str]
    fields: list[CommandField]
    subject: Literal["cluster", "consumer", "topic", "partitions", "record", "source", "assignor"]
    undo: str
    override: str
    risky: bool
    preview: dict[str, Any] | None
    foresees: (
        bool  # `[name]/foresee` takes the same body, says in lines what would be done, and changes nothing
    )


class CommandsAnswer(_Answer):
    """All commands, in the order in which they are offered. `did` completes 'ann ...' by a name in the timeline."""

    commands: list[CommandEntry]
    did: dict[str, str]
