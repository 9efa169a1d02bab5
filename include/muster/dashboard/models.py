"""What the dashboard's API answers and takes: the contract between the server and the page.

Moments are in seconds since the Unix epoch, durations in seconds, lag in records, rates in records a second. A field
that is None is not known, never 0. Nothing here changes with the mere passing of time, so an answer that says the
same is the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Moment = Annotated[float, Field(description="Seconds since the Unix epoch.")]
Ranges = Annotated[
    list[tuple[int, int]], Field(description="Partition numbers as [first, last], both included, ascending.")
]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorAnswer(_Answer):
    """Why a request was not answered, for people to read."""

    detail: str


# --- How old it is, and what could not be reached ---------------------------------------------------------------


class SourceHealth(_Answer):
    """One of the places that a reading is put together from."""

    source: Literal["zookeeper", "consul", "kafka", "consumers", "history"]
    reachable: bool = Field(
        description="False: what is shown of it is what was read last. For 'consumers': none of those asked answered."
    )
    address: str = Field("", description="Where it is, as the connection says it; '' if unknown.")
    error: str = Field("", description="What is wrong and what to do about it; '' when reachable.")
    unreachable_since: Moment | None = Field(None, description="When it was first found out of reach.")
    last_read_at: Moment | None = Field(
        None,
        description="When what is shown of it was read; None when reachable (then Freshness.read_at), or never.",
    )


class Freshness(_Answer):
    """How old an answer is. Not part of what makes an answer 'changed', as far as `read_at` goes."""

    read_at: Moment | None = Field(description="When the servers were last asked; None if never yet.")
    ttl: float = Field(description="Seconds for which a reading is used again; ask again after them.")
    sources: list[SourceHealth] = Field(default_factory=list)


# --- Clusters ---------------------------------------------------------------------------------------------------


class Health(StrEnum):
    """Worst first: `critical` needs a person now, `warning` a look; `rebalancing` passes by itself."""

    CRITICAL = "critical"
    WARNING = "warning"
    REBALANCING = "rebalancing"
    OK = "ok"
    UNKNOWN = "unknown"


class Problem(_Answer):
    """Something that a person should know, in words that name the thing and the next step."""

    level: Literal["critical", "warning"]
    what: str
    topic: str | None = None
    consumer: str | None = None


class Said(_Answer):
    """Who decided something, when and why."""

    by: str
    at: Moment | None = None
    why: str


class LastRebalance(_Answer):
    """The last change of an assignment that is known."""

    at: Moment = Field(description="When it began, or ended if only that is known.")
    reason: str
    topics: int = Field(description="Topics that took part.")
    moved: int | None = Field(None, description="Partitions that changed hands.")
    lasted: float | None = Field(
        None, description="Seconds from its beginning to Stable; None while it lasts."
    )


class ConsumerCounts(_Answer):
    """Consumers by how they stand. Every consumer is in exactly one of these."""

    live: int = 0
    isolated: int = 0
    missing: int = Field(
        0, description="Gone or not passing, and named in an assignment or expected by the settings."
    )
    not_passing: int = Field(
        0, description="Registered in Consul with a failing check, and with no partitions."
    )
    unknown: int = Field(0, description="Consul cannot be trusted at present.")


class ClusterSummary(_Answer):
    """A cluster at a glance."""

    name: str
    health: Health
    error: str = Field(
        "", description="Why the cluster's settings cannot be used; then nothing else is known."
    )
    coordinator_dag: str = Field("", description="Its DAG's id; the page links to ../dags/{id} in Airflow.")
    may_edit: bool = Field(description="Whether this user may give commands.")
    paused: Said | None = Field(
        None, description="Coordination is paused: nothing is planned until it is resumed."
    )
    rebalance_asked: Said | None = Field(
        None, description="A rebalance was requested now, and it is not carried out yet."
    )
    state: Literal["Stable", "Rebalancing", "Empty", "Unknown"] = Field(
        "Unknown",
        description="Rebalancing while any topic is Initial, Starting or Closing; Empty without topics.",
    )
    since: Moment | None = Field(None, description="Since when it is in that state.")
    topics: dict[str, int] = Field(
        default_factory=dict,
        description="Topics by state: Initial, Starting, Stable, Closing, Unreadable. Only those above 0.",
    )
    partitions: int = 0
    partition_states: dict[str, int] = Field(
        default_factory=dict,
        description="Partitions by `muster.cluster.partitions.PartitionState`. Only those above 0.",
    )
    pinned: int = Field(0, description="Partitions pinned to it by a person.")
    consumers: ConsumerCounts = ConsumerCounts()
    lag: int | None = Field(
        None, description="Records not yet consumed, over the partitions where that is known."
    )
    lag_unknown: int = Field(0, description="Partitions whose lag is not known.")
    rate: float | None = Field(None, description="Records that arrive a second.")
    consumed_rate: float | None = Field(None, description="Records that are committed a second.")
    last_rebalance: LastRebalance | None = None
    assignor: str = Field("", description="The assignor in force.")
    problems: list[Problem] = Field(default_factory=list, description="The worst first, at most five here.")
    problem_count: int = Field(0, description="All of them.")
    freshness: Freshness


class ClustersAnswer(_Answer):
    """All clusters that the user may read, by name."""

    user: str
    clusters: list[ClusterSummary]
    error: str = Field("", description="Why clusters.yaml as a whole cannot be read.")


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
    obstacle: str = Field("", description="Why the pin is not obeyed now; '' if it is.")


class ExclusionEntry(_Answer):
    """A consumer that is kept from a topic."""

    consumer: str
    topic: str
    said: Said


class WaitingEntry(_Answer):
    """A consumer that holds up partitions of a topic."""

    topic: str
    consumer: str
    phase: Literal["answer", "close", "start", "progress"]
    partitions: Ranges
    why: str
    since: Moment | None = Field(None, description="When the topic's rebalance began.")


class AssignorInForce(_Answer):
    """The assignor that the coordinator plans with."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    from_settings: bool = Field(True, description="False: a person chose it, over what clusters.yaml says.")
    said: Said | None = Field(None, description="Who chose it; None when it is what clusters.yaml says.")
    configured: str = Field("", description="What clusters.yaml says.")


class CommandState(_Answer):
    """Whether a command can be given at all; its fields are checked when it is."""

    lever: str = Field(description="The command's name, as in the path: isolate, restore, pin, pause, ...")
    available: bool
    why_not: str = ""


class OverrideEntry(_Answer):
    """An override in force, which a command left."""

    command: str
    on: dict[str, Any] = Field(description="What it is about, by the command's fields.")
    said: Said


class ClusterAnswer(_Answer):
    """One cluster: the summary and everything that is not by topic or by consumer. Lists have at most 100 entries."""

    summary: ClusterSummary
    problems: list[Problem] = Field(default_factory=list)
    waiting: list[WaitingEntry] = Field(default_factory=list)
    waiting_count: int = 0
    isolated: list[Isolation] = Field(default_factory=list)
    pins: list[PinEntry] = Field(default_factory=list)
    pin_count: int = Field(0, description="Entries of `pins` before it was cut.")
    exclusions: list[ExclusionEntry] = Field(default_factory=list)
    assignor: AssignorInForce
    assignors: list[str] = Field(
        default_factory=list, description="The built-in ones, for the choice in a form."
    )
    shadow_assignor: str | None = None
    stuck_after: float = Field(description="Seconds after which a topic that is not Stable counts as stuck.")
    tick: float = Field(description="Seconds between two looks of the coordinator when nothing happens.")
    group_id: str
    consul_service: str
    levers: list[CommandState]
    overrides: list[OverrideEntry] = Field(
        default_factory=list, description="Those about consumers and topics, in the order of the commands."
    )


# --- Topics -----------------------------------------------------------------------------------------------------


class TopicRow(_Answer):
    """One topic in the list."""

    topic: str
    state: Literal["Initial", "Starting", "Stable", "Closing", "Unreadable"]
    since: Moment | None = Field(None, description="Since when it is Stable, or is not.")
    error: str = Field("", description="Why it cannot be read; the other topics go on.")
    stuck: str = Field(
        "", description="The full message if it, or an owner's progress, waits longer than stuck_after."
    )
    reason: str = Field("", description="Why it left or reached its state.")
    epoch: int = 0
    partitions: int = 0
    partition_states: dict[str, int] = Field(
        default_factory=dict, description="By PartitionState; only above 0."
    )
    pinned: int = 0
    owners: int = Field(0, description="Consumers that have partitions of it.")
    lag: int | None = None
    rate: float | None = None


class TopicsAnswer(_Answer):
    """A page of topics. `sort`: topic, state (worst first), lag, rate, partitions, since."""

    topics: list[TopicRow]
    total: int = Field(description="Topics that fit the filter.")
    offset: int
    freshness: Freshness


class TopicAnswer(_Answer):
    """One topic with the matrix of its partitions, in columns: entry i of each is of the i-th partition.

    `partitions` are the numbers as ranges, so with [[0, 99]] entry 7 is partition 7. `owner`, `source` and `target`
    are indices into `consumers`, -1 for none. `source` is to close it (state C), `target` is to have it
    when that is not the owner yet.
    """

    row: TopicRow
    partitions: Ranges
    consumers: list[str] = Field(description="Those that the columns name, by id.")
    state: str = Field(description="One letter of PartitionState a partition.")
    owner: list[int]
    source: list[int] = Field(description="Empty if -1 everywhere.")
    target: list[int] = Field(description="Empty if -1 everywhere.")
    lag: list[int | None] = Field(description="Empty if not known of any.")
    rate: list[float | None] = Field(description="Empty if not known of any.")
    committed: list[int | None] = Field(description="The group's offset; empty if not known of any.")
    end: list[int | None] = Field(description="Offset after the last record; empty if not known of any.")
    pins: list[PinEntry]
    standbys: dict[int, list[str]] = Field(
        default_factory=dict, description="Partition number to who stands by."
    )
    waiting: list[WaitingEntry] = Field(default_factory=list)
    exclusions: list[ExclusionEntry] = Field(default_factory=list)
    bootstrap_servers: str = ""
    group_id: str = ""
    freshness: Freshness


# --- Consumers --------------------------------------------------------------------------------------------------


class ConsumerRow(_Answer):
    """One consumer in the list. What its status page does not tell (foreign consumers need not) is None or ''."""

    consumer: str
    state: Literal["live", "isolated", "not passing", "gone", "unknown"]
    expected: bool = Field(False, description="Airflow runs it for this cluster (clusters.yaml).")
    said: Said | None = Field(None, description="Who isolated it; None for others.")
    error: str = Field(
        "", description="Its status is unavailable, or what it reports to be wrong; '' if nothing."
    )
    doing: str = Field("", description="What it says it does: running, starting, leaving, isolated, ...")
    host: str = ""
    address: str = Field("", description="host:port of its status page.")
    version: str = ""
    incarnation: str = ""
    started_at: Moment | None = Field(None, description="The age of it is its uptime.")
    partitions: int = Field(0, description="Assigned to it.")
    running: int = Field(0, description="Of those, reported running.")
    starting: int = 0
    closing: int = Field(0, description="No longer assigned to it, and not yet let go of.")
    pinned: int = 0
    topics: int = Field(0, description="Topics that it has partitions of.")
    commands: list[str] = Field(default_factory=list, description="Those that make sense on it now.")
    overrides: list[OverrideEntry] = Field(default_factory=list, description="Those on it alone.")
    lag: int | None = Field(None, description="Over its partitions.")
    rate: float | None = Field(None, description="Records that arrive a second in its partitions.")
    share: float | None = Field(
        None, description="Its partitions per weight over the average of the live ones; 1 is its fair share."
    )
    weight: float | None = None
    priority: int | None = None
    zone: str | None = None


class ConsumersAnswer(_Answer):
    """A page of consumers. `sort`: consumer, state (worst first), partitions, lag, rate, started_at, host."""

    consumers: list[ConsumerRow]
    total: int = Field(description="Consumers that fit the filter.")
    offset: int
    freshness: Freshness


class ConsumerTopic(_Answer):
    """What a consumer has of one topic."""

    topic: str
    running: Ranges
    starting: Ranges
    closing: Ranges
    unknown: Ranges = Field(description="Assigned; whether it runs is unknown.")
    standby: Ranges
    pinned: Ranges
    lag: int | None = None
    rate: float | None = None


class ConsumerAnswer(_Answer):
    """One consumer with all that it has, at most 1,000 topics."""

    row: ConsumerRow
    topics: list[ConsumerTopic]
    errors: list[str] = Field(default_factory=list, description="What its status page reports to be wrong.")
    exclusions: list[ExclusionEntry] = Field(default_factory=list)
    subscribes: list[str] | None = Field(None, description="The topics that it takes; None: all.")
    records: int | None = Field(None, description="Records that it has processed since it started.")
    batches: int | None = None
    last_batch_at: Moment | None = None
    freshness: Freshness


# --- Timeline ---------------------------------------------------------------------------------------------------


class MoveEntry(_Answer):
    """Partitions of one topic that went the same way for the same reason."""

    topic: str
    partitions: Ranges
    source: str | None = Field(description="None: no consumer had them.")
    target: str | None = Field(description="None: no consumer takes them.")
    why: str


class TimelineEntry(_Answer):
    """Something that happened: a step of a topic, or what a person did."""

    id: str = Field(description="Stays the same; newer ones are greater as text.")
    at: Moment
    kind: Literal["transition", "lever", "unreadable"]
    topic: str | None = None
    lever: str | None = Field(None, description="The command that a person gave: isolate, pin, pause, ...")
    details: dict[str, Any] = Field(default_factory=dict, description="What the command was given.")
    before: str | None = Field(None, description="The state before, of a transition.")
    after: str | None = Field(None, description="The state after, of a transition.")
    reason: str
    who: str | None = Field(None, description="The person who caused it, as far as one did.")
    epoch: int | None = None
    moved: int = Field(0, description="Partitions that change hands.")
    moves: list[MoveEntry] = Field(
        default_factory=list, description="Cut at 200 partitions; `moved` has all."
    )
    lasted: float | None = Field(
        None,
        description="Seconds that the phase which ends here (`before`) took; None where that is not on the page.",
    )
    rebalance_lasted: float | None = Field(None, description="Seconds since the topic's rebalance began.")
    by: str = Field("", description="What wrote it: a DAG and its run, the command line, the dashboard.")


class TimelineAnswer(_Answer):
    """The newest first."""

    entries: list[TimelineEntry]
    next_before: int | None = Field(None, description="Pass as `before` for what is older; None at the end.")
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
    options: dict[str, Any] = Field(default_factory=dict)


class SupposedAssignor(_Request):
    """An assignor by name or dotted path, with its options; without a name the one in force, with these options put
    over its own."""

    name: Annotated[str, StringConstraints(max_length=200)] = ""
    options: dict[str, Any] = Field(default_factory=dict)


class WhatIfRequest(_Request):
    """What is supposed. Nothing at all: what the next coordinator run would do."""

    without: list[str] = Field(
        default_factory=list, max_length=10_000, description="As if these live consumers had left."
    )
    more: int = Field(
        0, ge=0, le=1000, description="As if so many more consumers were live, named new-1, new-2, ..."
    )
    joining: list[JoiningConsumer] = Field(default_factory=list, max_length=1000)
    partitions: dict[str, int] = Field(
        default_factory=dict, description="As if topics had so many partitions."
    )
    assignor: SupposedAssignor | None = Field(None, description="Another one instead of the one in force.")


class ShareEntry(_Answer):
    """What a consumer has before and after."""

    consumer: str
    before: int
    after: int
    weight: float
    zone: str | None


class BalanceEntry(_Answer):
    """How evenly partitions are spread over the live consumers."""

    consumers: int
    partitions: int
    least: int = Field(description="Partitions of the consumer with the fewest.")
    most: int
    unowned: int
    words: str = Field(description="The same in words.")


class Applicable(_Answer):
    """Whether a previewed plan can be brought about in one way."""

    possible: bool
    why_not: str = ""


class WhatIfAnswer(_Answer):
    """A plan that is not carried out. Lists are cut; the counts are of all."""

    plan: str = Field(description="Names this very plan; `apply` refuses if it would be another one by then.")
    assignor: str
    held: str = Field("", description="Why nothing would be planned; '' otherwise.")
    moved: int
    moves: list[MoveEntry] = Field(description="At most 500.")
    reasons: list[tuple[str, int]] = Field(description="Why, with the number of partitions, the most first.")
    shares: list[ShareEntry] = Field(description="Those that change, the largest change first, at most 500.")
    share_count: int
    before: BalanceEntry
    after: BalanceEntry
    impossible_pins: list[str] = Field(default_factory=list)
    under_way: list[str] = Field(
        default_factory=list, description="Topics whose rebalance is finished first."
    )
    unreadable: dict[str, str] = Field(default_factory=dict, description="Topic to the reason.")
    warnings: list[str] = Field(default_factory=list)
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
    plan: str = Field(description="`WhatIfAnswer.plan` of what was shown.")
    way: Literal["pins", "assignor"]


class CommandAnswer(_Answer):
    """What the command did."""

    lines: list[str] = Field(description="In words; the first says what was done.")
    values: dict[str, Any] = Field(default_factory=dict)


class CommandField(_Answer):
    """Something that a command has to be given, besides the reason."""

    name: str
    kind: Literal["consumer", "topic", "partitions", "pattern", "assignor"]
    label: str
    hint: str


class CommandEntry(_Answer):
    """One command of `muster.commands.table`, for menus and dialogs."""

    name: str = Field(description="As in the path.")
    label: str
    question: str = Field(description="Fields, and `cluster`, stand in braces.")
    happens: list[str] = Field(description="What will happen, one paragraph each.")
    fields: list[CommandField]
    subject: Literal["cluster", "consumer", "topic", "partitions", "assignor"]
    undo: str = Field(description="The command that takes the override back; '' if none is left.")
    override: str = Field(description="The override in an adjective: isolated, pinned, ...")
    risky: bool = Field(description="It takes capacity away.")
    preview: dict[str, Any] | None = Field(
        description="What a preview has to suppose (`WhatIfRequest`, fields in braces); None for no preview."
    )


class CommandsAnswer(_Answer):
    """All commands, in the order in which they are offered."""

    commands: list[CommandEntry]
    did: dict[str, str] = Field(description="What a name in the timeline means, to complete 'ann ...'.")
