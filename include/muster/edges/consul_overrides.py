"""The overrides of a cluster in Consul's KV: how each is written, read and removed.

The keys below `muster/[CLUSTER]/`. Each holds `{"who": ..., "when": ..., "why": ...}` and what is named here:

- `isolated/[CONSUMER]`, `drained/[CONSUMER]`
- `pinned/[TOPIC]/[PARTITION]`: `consumer`
- `excluded/[CONSUMER]/[TOPIC]`
- `consumption/all`, `consumption/topics/[TOPIC]`, `consumption/partitions/[TOPIC]/[PARTITION]`: consumption is paused
- `seeks/[TOPIC]/[PARTITION]`, a request, which the coordinator deletes: `id`, `offset`, `topic.id`; for a rebuild
  `rebuild`; where the topic has state by key `state`
- `standing/[TOPIC]/[DIGEST]`: a standing answer, as `muster.edges.consul_answers` says
- `topics/[subscribed|unsubscribed]/names/[TOPIC]`
- `topics/[subscribed|unsubscribed]/patterns/[PATTERN]`: `pattern`, which counts; in the key's name it is base64 for
  URLs, without padding (Consul decodes names twice, and allows neither spaces nor empty parts)
- `coordination/paused`; `coordination/rebalance`, a request, which the coordinator deletes
- `coordination/assignor`: `name` and `options`

Beside them the coordinator's own: `coordination/epochs`, `{TOPIC: EPOCH}`, the highest that was ever about to be
written to ZooKeeper, which a topic leaves with its nodes, and `"/pending": {TOPIC: {"over": EPOCH, "gaining":
[CONSUMER]}}` of the topics that may not have been written (`muster.core.epochs`); and `coordination/deployment`,
`{"zookeeper": ..., "path": ..., "when": ...}`, see `muster.core.deployment`.

Consul's ACL says who may write them, and the coordinator's long poll waits for changes below `muster/[CLUSTER]/`, so
they are acted on at once. What is named in the key itself counts whatever the key holds (isolations, drains, pauses,
topics: fail safe). Of the others a key that cannot be read counts as not there, and is named; it never takes the
others with it. With another assignor that is unknown nothing is planned. Without epochs only what consumers
report shows that ZooKeeper was restored from a backup.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from muster.core.deployment import Deployment
from muster.core.epochs import Noted
from muster.core.model import Seek, SeekState
from muster.core.moments import to_iso
from muster.core.overrides import (
    AssignorChoice,
    ConsumptionPause,
    Drain,
    Exclusion,
    IsolationEntry,
    Overrides,
    Pause,
    Pin,
    RebalanceRequest,
    SeekRequest,
    TopicOverride,
)
from muster.core.subscription import check_pattern
from muster.core.wire import MAX_EPOCH, SEEK_ID, TOPIC_ID, WireError, check_id, check_topic, parse_partition
from muster.edges.consul_answers import STANDING, parse_standing
from muster.edges.consul_api import LARGEST_VALUE, SMALLER
from muster.edges.consul_keys import Key, Keys, of_consumer, read_object, said, seconds, text

ISOLATED, DRAINED, PINNED, EXCLUDED = "isolated", "drained", "pinned", "excluded"
TOPICS = "topics"
CONSUMPTION, SEEKS = "consumption", "seeks"
ALL, PARTITIONS = "all", "partitions"
SUBSCRIBED, UNSUBSCRIBED = "subscribed", "unsubscribed"
NAMES, PATTERNS = "names", "patterns"
PAUSED, REBALANCE = "coordination/paused", "coordination/rebalance"
ASSIGNOR, EPOCHS = "coordination/assignor", "coordination/epochs"
DEPLOYMENT = "coordination/deployment"
NOTHING_FOLLOWS = "nothing follows from it. Correct it, or delete the key"
TOPICS_STAY = (
    "until it is corrected or deleted, topics are neither taken up nor let go, but where a person decided so by "
    "their name"
)
ASSIGNOR_UNKNOWN = "so the assignor is unknown. Choose one again, or take the choice back"
ATTEMPTS = 10
"""How many times epochs are tried to be noted while others note some as well."""
PENDING = "/pending"
"""What stands beside the topics in the key of epochs; no topic has such a name."""
PENDING_BYTES = 256 * 1024
"""The longest key of epochs that says who gains by pending writes; Consul takes 512 kB."""


class OverrideStore:
    """All overrides of one cluster. Raises `ConsulError`.

    What adds an override returns False if there is one already, which stays; what removes one returns False if there
    is none, and removes also what cannot be read. `at` is in seconds since the epoch.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def read(self) -> Overrides:
        """Return all overrides of the cluster, from one read of all its keys.

        Raises `ConsulError` also if the answer may leave keys out: not to see a pin would be to move its partition,
        and not to see a pause to end it.
        """
        found: defaultdict[str, list[Any]] = defaultdict(list)
        whole: dict[str, Any] = {}
        errors: list[str] = []
        keys = self._keys.below()
        for name, key in keys.items():
            kind, _, rest = name.partition("/")
            try:
                if not rest or rest.endswith("/"):  # a "folder" that Consul's UI creates
                    continue
                if kind in _EACH:
                    found[kind].append(_EACH[kind](rest, key))
                elif name in _WHOLE:
                    whole[rest] = _WHOLE[name](key)
            except ValueError as error:
                problem = f"Consul key {key.name}: {error}"
                if name == ASSIGNOR:
                    whole["assignor_error"] = f"{problem}; {ASSIGNOR_UNKNOWN}"
                else:
                    errors.append(f"{problem}; {TOPICS_STAY if kind == TOPICS else NOTHING_FOLLOWS}")
                    whole |= {"topics_in_doubt": True} if kind == TOPICS else {}
        return Overrides(
            {(pin.topic, pin.partition): pin for pin in found[PINNED]},
            {(exclusion.consumer, exclusion.topic): exclusion for exclusion in found[EXCLUDED]},
            tuple(sorted(errors)),
            large=tuple(map(_large, filter(_is_large, keys.values()))),
            subscriptions=tuple(found[TOPICS]),
            isolated={entry.consumer: entry for entry in found[ISOLATED]},
            drained={drain.consumer: drain for drain in found[DRAINED]},
            consumption=tuple(found[CONSUMPTION]),
            seeks={(seek.topic, seek.partition): seek for seek in found[SEEKS]},
            standing=tuple(found[STANDING]),
            **whole,
        )

    def isolated(self) -> dict[str, IsolationEntry]:
        """Return every isolated consumer, from the keys on isolation alone."""
        found = self._keys.below(f"{ISOLATED}/")
        return {consumer: _isolation(consumer, key) for consumer, key in found.items()}

    def isolate(self, consumer: str, by: str, why: str, at: float) -> bool:
        return self._add(of_consumer(ISOLATED, consumer), by, why, at)

    def restore(self, consumer: str) -> bool:
        """End a consumer's isolation (by a key; maintenance mode is another thing)."""
        return self._keys.remove(of_consumer(ISOLATED, consumer))

    def drain(self, consumer: str, by: str, why: str, at: float) -> bool:
        return self._add(of_consumer(DRAINED, consumer), by, why, at)

    def undrain(self, consumer: str) -> bool:
        """Let a drained consumer have partitions again."""
        return self._keys.remove(of_consumer(DRAINED, consumer))

    def pin(self, topic: str, partition: int, consumer: str, by: str, why: str, at: float) -> None:
        """Fix a partition to a consumer, in place of an earlier pin of it."""
        value = text(by, why, at, {"consumer": check_id(consumer)})
        self._keys.write(_pinned(topic, partition), value)

    def unpin(self, topic: str, partition: int) -> bool:
        """Take a pin back."""
        return self._keys.remove(_pinned(topic, partition))

    def exclude(self, consumer: str, topic: str, by: str, why: str, at: float) -> bool:
        """Keep a consumer from a topic."""
        return self._add(_excluded(consumer, topic), by, why, at)

    def include(self, consumer: str, topic: str) -> bool:
        """Take an exclusion back."""
        return self._keys.remove(_excluded(consumer, topic))

    def pause_consumption(self, topic: str, partition: int | None, *, by: str, why: str, at: float) -> bool:
        """Pause the consumption of a partition; of the whole topic (None), or of all topics ('')."""
        return self._add(_consumption(topic, partition), by, why, at)

    def resume_consumption(self, topic: str, partition: int | None) -> bool:
        """End such a pause."""
        return self._keys.remove(_consumption(topic, partition))

    def seek(
        self,
        topic: str,
        partition: int,
        seek: Seek,
        topic_id: str,
        *,
        by: str,
        why: str,
        at: float,
    ) -> None:
        """Ask for a seek of a partition of the topic that has this id, or have it taken back, in place of an earlier
        request that was not carried out yet."""
        more: dict[str, object] = {"rebuild": seek.rebuild} if seek.rebuild else {}
        more |= {"state": seek.state} if seek.state else {}
        value = text(by, why, at, {"id": seek.id, "offset": seek.offset, "topic.id": topic_id, **more})
        self._keys.write(f"{SEEKS}/{check_topic(topic)}/{partition}", value)

    def drop_seek(self, topic: str, partition: int) -> bool:
        """Remove such a request, which nothing can carry out."""
        return self._keys.remove(f"{SEEKS}/{check_topic(topic)}/{partition}")

    def end_seek(self, request: SeekRequest) -> bool:
        """Remove a request that was carried out. False if another one has taken its place, which stands."""
        name = f"{SEEKS}/{request.topic}/{request.partition}"
        return self._keys.api.delete_key(self._keys.prefix + name, cas=request.modified)

    def decide_topic(
        self, selector: str, *, pattern: bool, subscribed: bool, by: str, why: str, at: float
    ) -> bool:
        """Subscribe or unsubscribe a topic, or a pattern."""
        more = {"pattern": selector} if pattern else {}
        return self._add(_selected(selector, pattern, subscribed), by, why, at, more)

    def undo_topic(self, selector: str, *, pattern: bool, subscribed: bool) -> bool:
        """Take such a decision back."""
        return self._keys.remove(_selected(selector, pattern, subscribed))

    def pause(self, by: str, why: str, at: float) -> bool:
        """Pause coordination."""
        return self._add(PAUSED, by, why, at)

    def resume(self) -> bool:
        """End the pause."""
        return self._keys.remove(PAUSED)

    def ask_for_rebalance(self, by: str, why: str, at: float) -> None:
        """Ask for a rebalance now, in place of an earlier request that was not carried out yet."""
        self._keys.write(REBALANCE, text(by, why, at))

    def end_rebalance(self, request: RebalanceRequest) -> bool:
        """Remove a request that was carried out. False if another one has taken its place, which stands."""
        return self._keys.api.delete_key(self._keys.prefix + REBALANCE, cas=request.modified)

    def choose_assignor(self, name: str, options: Mapping[str, Any], by: str, why: str, at: float) -> None:
        """Put an assignor in the place of the one in the settings, and of one chosen earlier."""
        self._keys.write(ASSIGNOR, text(by, why, at, {"name": name, "options": dict(options)}))

    def clear_assignor(self) -> bool:
        """Take the choice of an assignor back."""
        return self._keys.remove(ASSIGNOR)

    def epochs(self) -> dict[str, int]:
        """Return the epochs that were noted, by topic; none if the key cannot be read."""
        return {topic: note.epoch for topic, note in _epochs_in(self._keys.read(EPOCHS)).items()}

    def note_epochs(self, epochs: Mapping[str, Noted]) -> None:
        """Note that these are about to be written, by topic. One that is noted never falls."""
        for _ in range(ATTEMPTS):
            key = self._keys.read(EPOCHS)
            known = _epochs_in(key)
            merged = known | {
                topic: known[topic].merged(note) if topic in known else note for topic, note in epochs.items()
            }
            if merged == known or self._keys.change(EPOCHS, _epochs_text(merged), key):
                return
        name = self._keys.prefix + EPOCHS
        raise self._keys.error(f"key {name} was written by others {ATTEMPTS} times meanwhile; try again")

    def forget_epochs(self, epochs: Mapping[str, int]) -> None:
        """Forget the notes of these topics, unless a higher epoch than the given one was noted meanwhile."""
        for _ in range(ATTEMPTS):
            key = self._keys.read(EPOCHS)
            known = _epochs_in(key)
            left = {topic: note for topic, note in known.items() if epochs.get(topic, -1) < note.epoch}
            if key is None or left == known or self._keys.change(EPOCHS, _epochs_text(left), key):
                return
        name = self._keys.prefix + EPOCHS
        raise self._keys.error(f"key {name} was written by others {ATTEMPTS} times meanwhile; try again")

    def note_deployment(self, deployment: Deployment, before: Deployment | None) -> bool:
        """Note which deployment coordinates the cluster, in place of `before`; False if the key has changed since."""
        where = {"zookeeper": deployment.hosts, "path": deployment.path, "when": to_iso(deployment.at)}
        cas = 0 if before is None else before.modified
        return self._keys.api.put_key(self._keys.prefix + DEPLOYMENT, json.dumps(where), cas=cas)

    def _add(self, rest: str, by: str, why: str, at: float, more: Mapping[str, Any] | None = None) -> bool:
        return self._keys.change(rest, text(by, why, at, more), before=None)


def _pinned(topic: str, partition: int) -> str:
    return f"{PINNED}/{check_topic(topic)}/{partition}"


def _excluded(consumer: str, topic: str) -> str:
    return f"{EXCLUDED}/{check_id(consumer)}/{check_topic(topic)}"


def _consumption(topic: str, partition: int | None) -> str:
    if not topic:
        return f"{CONSUMPTION}/{ALL}"
    if partition is None:
        return f"{CONSUMPTION}/{TOPICS}/{check_topic(topic)}"
    return f"{CONSUMPTION}/{PARTITIONS}/{check_topic(topic)}/{partition}"


def _selected(selector: str, pattern: bool, subscribed: bool) -> str:
    how = SUBSCRIBED if subscribed else UNSUBSCRIBED
    if not pattern:
        return f"{TOPICS}/{how}/{NAMES}/{check_topic(selector)}"
    encoded = base64.urlsafe_b64encode(selector.encode()).decode().rstrip("=")
    return f"{TOPICS}/{how}/{PATTERNS}/{encoded}"


def _isolation(consumer: str, key: Key) -> IsolationEntry:
    return IsolationEntry(**_said_in(key), consumer=consumer)


def _pin(rest: str, key: Key) -> Pin:
    topic, partition = _two(rest, "[TOPIC]/[PARTITION]")
    check_topic(topic)
    number = parse_partition(partition)
    value = _value(key, " with 'consumer'")
    consumer = value.get("consumer")
    if not isinstance(consumer, str):
        raise _not_understood(key, " with 'consumer'")
    return Pin(topic, number, check_id(consumer), **said(value))


def _exclusion(rest: str, key: Key) -> Exclusion:
    consumer, topic = _two(rest, "[CONSUMER]/[TOPIC]")
    return Exclusion(check_id(consumer), check_topic(topic), **said(_value(key)))


def _topic_decision(rest: str, key: Key) -> TopicOverride:
    how, _, selected = rest.partition("/")
    by, _, name = selected.partition("/")
    if how not in (SUBSCRIBED, UNSUBSCRIBED) or by not in (NAMES, PATTERNS) or not name or "/" in name:
        raise WireError(
            f"its name ends in {rest!r}, expected is [subscribed|unsubscribed]/[names|patterns]/[NAME]"
        )
    selector = check_topic(name) if by == NAMES else _pattern(key)
    return TopicOverride(
        **_said_in(key), selector=selector, pattern=by == PATTERNS, subscribed=how == SUBSCRIBED
    )


def _consumption_pause(rest: str, key: Key) -> ConsumptionPause:
    scope, _, name = rest.partition("/")
    if rest == ALL:
        return ConsumptionPause(**_said_in(key))
    if scope == TOPICS:
        return ConsumptionPause(**_said_in(key), topic=check_topic(name))
    if scope == PARTITIONS:
        topic, partition = _two(name, f"{PARTITIONS}/[TOPIC]/[PARTITION]")
        return ConsumptionPause(
            **_said_in(key), topic=check_topic(topic), partition=parse_partition(partition)
        )
    raise WireError(
        f"its name ends in {rest[:100]!r}, expected is {ALL}, {TOPICS}/[TOPIC] or {PARTITIONS}/[TOPIC]/[PARTITION]"
    )


def _seek(rest: str, key: Key) -> SeekRequest:
    topic, partition = _two(rest, "[TOPIC]/[PARTITION]")
    wanted = (
        " with 'id' and 'topic.id' (text), 'offset' (null: taken back) and, if need be, 'rebuild' (whole numbers "
        f"from 0), and 'state' ({', '.join(SeekState)})"
    )
    value = _value(key, wanted)
    seek_id, topic_id, offset = value.get("id"), value.get("topic.id"), value.get("offset")
    rebuild = value.get("rebuild", 0)
    known = "offset" in value and (offset is None or (type(offset) is int and offset >= 0))
    if not (isinstance(seek_id, str) and SEEK_ID.fullmatch(seek_id) and known):
        raise _not_understood(key, wanted)
    if not (type(rebuild) is int and 0 <= rebuild <= MAX_EPOCH):
        raise _not_understood(key, wanted)
    if not (isinstance(topic_id, str) and TOPIC_ID.fullmatch(topic_id)):
        raise _not_understood(key, wanted)
    state = value.get("state")
    if state is not None and state not in set(SeekState):
        raise _not_understood(key, wanted)
    return SeekRequest(
        **said(value),
        topic=check_topic(topic),
        partition=parse_partition(partition),
        topic_id=topic_id,
        id=seek_id,
        offset=offset,
        rebuild=rebuild,
        state=None if state is None else SeekState(state),
        modified=key.modified,
    )


def _pattern(key: Key) -> str:
    selector = (read_object(key.value) or {}).get("pattern")
    if not isinstance(selector, str):
        raise _not_understood(key, " with 'pattern'")
    try:
        return check_pattern(selector)
    except ValueError as error:
        raise WireError(f"pattern {error}") from error


def _rebalance(key: Key) -> RebalanceRequest:
    return RebalanceRequest(**said(_value(key)), modified=key.modified)


def _assignor(key: Key) -> AssignorChoice:
    wanted = " with 'name' (text) and 'options' (an object)"
    value = _value(key, wanted)
    name, options = value.get("name"), value.get("options", {})
    if not isinstance(name, str) or not name or not isinstance(options, dict):
        raise _not_understood(key, wanted)
    return AssignorChoice(**said(value), name=name, options=options)


def _epochs(key: Key) -> dict[str, Noted]:
    wanted = f" of topics to whole numbers from 0 to {MAX_EPOCH - 1}"
    value = dict(_value(key, wanted))
    pending = value.pop(PENDING, {})
    if not isinstance(pending, dict) or not all(map(_is_epoch, value.values())):
        raise _not_understood(key, wanted)
    return {check_topic(topic): _noted(epoch, pending.get(topic)) for topic, epoch in value.items()}


def _noted(epoch: int, pending: object) -> Noted:
    """Return what is noted of a topic. What cannot be read of a pending write counts as unknown: all have to
    answer."""
    over, gaining = (
        (pending.get("over"), pending.get("gaining")) if isinstance(pending, dict) else (None, None)
    )
    if not _is_epoch(over) or not isinstance(gaining, list) or not all(isinstance(c, str) for c in gaining):
        return Noted(epoch)
    return Noted(epoch, over, frozenset(gaining))


def _is_epoch(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_EPOCH


def _epochs_text(epochs: Mapping[str, Noted]) -> str:
    """Format the key; without who gains by pending writes if that is too long, so all have to answer."""
    plain = {topic: note.epoch for topic, note in epochs.items()}
    pending = {
        topic: {"over": note.over, "gaining": sorted(note.gaining)}
        for topic, note in epochs.items()
        if note.over is not None
    }
    short, full = (
        json.dumps(value, separators=(",", ":"), sort_keys=True)
        for value in (plain, {**plain, PENDING: pending} if pending else plain)
    )
    return full if len(full) <= PENDING_BYTES else short


def _deployment(key: Key) -> Deployment:
    wanted = " with 'zookeeper', 'path' and 'when' (text)"
    value = _value(key, wanted)
    hosts, path = value.get("zookeeper"), value.get("path")
    if not isinstance(hosts, str) or not isinstance(path, str):
        raise _not_understood(key, wanted)
    return Deployment(hosts, path, seconds(value.get("when")), key.modified)


_EACH: Mapping[str, Callable[[str, Key], object]] = {
    PINNED: _pin,
    EXCLUDED: _exclusion,
    ISOLATED: _isolation,
    DRAINED: lambda rest, key: Drain(**_said_in(key), consumer=check_id(rest)),
    TOPICS: _topic_decision,
    CONSUMPTION: _consumption_pause,
    SEEKS: _seek,
    STANDING: parse_standing,
}
"""How the keys of each kind are read, each with the rest of its name."""
KINDS = tuple(_EACH)
"""What the names of these keys begin with."""
_WHOLE: Mapping[str, Callable[[Key], object]] = {
    PAUSED: lambda key: Pause(**_said_in(key)),
    REBALANCE: _rebalance,
    ASSIGNOR: _assignor,
    EPOCHS: _epochs,
    DEPLOYMENT: _deployment,
}
"""How the keys on the cluster as a whole are read; the last part of a name is the field of `Overrides`."""


def _epochs_in(key: Key | None) -> dict[str, Noted]:
    try:
        return {} if key is None else _epochs(key)
    except WireError:
        return {}


def _is_large(key: Key) -> bool:
    return len(key.value) > LARGEST_VALUE // 2


def _large(key: Key) -> str:
    return (
        f"Consul key {key.name} holds {len(key.value):,} bytes, over half of the {LARGEST_VALUE:,} that Consul takes "
        f"by default; when it reaches them, it is written no more. Before that, {SMALLER}"
    )


def _said_in(key: Key) -> dict[str, Any]:
    """Return who, when and why of an override that counts whatever its key holds."""
    value = read_object(key.value)
    return said({"why": f"key {key.name} holds no JSON object"} if value is None else value)


def _two(rest: str, expected: str) -> tuple[str, str]:
    first, slash, second = rest.partition("/")
    if not slash or "/" in second:
        raise WireError(f"its name ends in {rest[:100]!r}, expected is {expected}")
    return first, second


def _value(key: Key, wanted: str = "") -> Mapping[str, Any]:
    value = read_object(key.value)
    if value is None:
        raise _not_understood(key, wanted)
    return value


def _not_understood(key: Key, wanted: str) -> WireError:
    return WireError(f"holds {key.value[:100]!r}, expected is a JSON object{wanted}")
