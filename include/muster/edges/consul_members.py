"""What Consul says of a cluster's service, read once into the model's types.

Metadata is written by consumers, so it can be wrong. One bad value counts as not given, with a warning; it never
takes the other consumers with it.

Each agent of Consul has registrations of its own, so one id can be registered with several agents. Its processes are
ranked by their generation (metadata `generation`, which only grows): neither a check nor the time of a registration
decides what is newer, because an older process may register again. Of several without a generation one that passes
its check comes first, then the one that Consul's index names the newer, as there is nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from muster.core.model import Consumer, Membership
from muster.core.wire import WireError, check_id, check_topic
from muster.settings.cluster_settings import SET_BY_PROCESS

log = logging.getLogger(__name__)

LEAVING = "leaving"
"""The metadata key by which a consumer says, with any value, that it is about to leave."""
CLUSTER = "cluster"
"""The metadata key of the cluster that a consumer belongs to."""
GENERATION = "generation"
"""The metadata key of the process's place among all that ever had its id: a whole number from 1."""
KNOWN = SET_BY_PROCESS | {"priority", "weight", "zone", "topics"}
"""The metadata keys that mean something to Muster."""
NODE_MAINTENANCE = "_node_maintenance"
SERVICE_MAINTENANCE = "_service_maintenance:"
LONGEST_OUTPUT = 500
REFUSED = "connection refused"
"""What the agent says of a check at an address where nothing listens."""
MOST_GENERATIONS = 10**15
"""No counter of processes gets there."""
LEAST_WEIGHT, GREATEST_WEIGHT = 0.001, 1_000_000.0
"""Beyond these a weight is a slip of the finger, and shares that are counted with it are no numbers any more."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A consumer as it is registered, whether or not it is live.

    `passing`: all checks of the service and its node pass. `maintenance`: a person put the service or the node into
    Consul's maintenance mode. `output` is what the checks that do not pass say. `older` are the other registrations
    of the id, newest first.
    """

    id: str
    address: str = ""
    port: int = 0
    meta: Mapping[str, str] = field(default_factory=dict)
    passing: bool = False
    maintenance: bool = False
    output: str = ""
    incarnation: str | None = None
    modified: int = 0
    """Consul's index of the last change to the registration."""
    generation: int = 0
    older: tuple[Registration, ...] = ()
    node_address: str = ""
    """The address of the agent that it is registered with."""

    @property
    def nothing_listens(self) -> bool:
        """Whether a check was refused a connection: the process has ended."""
        return not self.passing and REFUSED in self.output


@dataclass(frozen=True)
class Members:
    """One reading of the service.

    `membership` is None when the reading is not to be trusted, and `doubt` says why. `registered` is what was read
    nevertheless, with those that are not live. `strangers` are the consumers of other clusters, by id, each with what
    to do about it; they are in neither.
    """

    membership: Membership | None
    registered: Mapping[str, Registration]
    doubt: str = ""
    strangers: Mapping[str, str] = field(default_factory=dict)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Node(_Part):
    address: str = Field("", alias="Address")


class _Service(_Part):
    id: str = Field(alias="ID")
    address: str = Field("", alias="Address")
    port: int = Field(0, alias="Port")
    meta: dict[str, str] | None = Field(None, alias="Meta")
    modified: int = Field(0, alias="ModifyIndex")


class _Check(_Part):
    id: str = Field(alias="CheckID")
    status: str = Field(alias="Status")
    output: str = Field("", alias="Output")
    notes: str = Field("", alias="Notes")  # why a person put it into maintenance


class _Entry(_Part):
    node: _Node = Field(default_factory=_Node, alias="Node")
    service: _Service = Field(alias="Service")
    checks: list[_Check] | None = Field(None, alias="Checks")


_ENTRIES = TypeAdapter(list[_Entry])


def parse_registrations(data: Any) -> dict[str, Registration]:
    """Read an answer of `/v1/health/service`.

    An id that is registered with several agents counts once, by its newest process (see the module), which has the
    others as `older`. Ids that cannot stand in ZooKeeper are left out with a warning. Raises ValueError if the answer
    as a whole is not understood.
    """
    try:
        entries = _ENTRIES.validate_python(data)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False)[0]["msg"]) from error
    found: dict[str, list[Registration]] = {}
    for entry in entries:
        try:
            check_id(entry.service.id)
        except WireError as error:
            _warn(f"a consumer in Consul is left out: {error}; register it under another id")
            continue
        found.setdefault(entry.service.id, []).append(_registration(entry))
    return {consumer: _newest(registrations) for consumer, registrations in found.items()}


def own_and_strangers(
    registered: Mapping[str, Registration], cluster: str, service: str
) -> tuple[dict[str, Registration], dict[str, str]]:
    """Part the registrations of `cluster`, and those that do not say whose they are, from those of other clusters;
    of the latter, by id, say what to do about them."""
    own: dict[str, Registration] = {}
    strangers: dict[str, str] = {}
    for consumer, newest in registered.items():
        mine: list[Registration] = []
        for each in (newest, *newest.older):
            if (name := each.meta.get(CLUSTER, "")) in {"", cluster}:
                mine.append(each)
            else:
                strangers[consumer] = (
                    f"consumer {consumer} is registered for service {service} as one of cluster {name[:100]!r}, not "
                    f"{cluster!r}; it is left out. If {name[:100]!r} was renamed, stop it, so that it starts under "
                    "the new name (docs/operating.md, 'Renaming a cluster'); else give its cluster a "
                    "'consul_service' of its own"
                )
        if mine:
            own[consumer] = replace(mine[0], older=tuple(mine[1:]))
    return own, strangers


def parse_agent_registration(data: Any) -> Registration:
    """Read an answer of `/v1/agent/health/service/id`. Raises ValueError if it is not understood."""
    try:
        entry = _Entry.model_validate(data)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False)[0]["msg"]) from error
    return _registration(entry)


def _newest(registrations: list[Registration]) -> Registration:
    if len(registrations) == 1:
        return registrations[0]
    newest, *older = sorted(registrations, key=lambda r: (r.generation, r.passing, r.modified), reverse=True)
    return replace(newest, older=tuple(older))


def _registration(entry: _Entry) -> Registration:
    checks = entry.checks or []
    failing = [check for check in checks if check.status != "passing"]
    meta = entry.service.meta or {}
    return Registration(
        id=entry.service.id,
        address=entry.service.address or entry.node.address,
        port=entry.service.port,
        meta=meta,
        passing=not failing,
        maintenance=any(
            check.id == NODE_MAINTENANCE or check.id.startswith(SERVICE_MAINTENANCE) for check in checks
        ),
        output="; ".join(check.output.strip() or check.notes or check.id for check in failing)[
            :LONGEST_OUTPUT
        ],
        incarnation=meta.get("incarnation") or None,
        modified=entry.service.modified,
        generation=_generation(entry.service.id, meta.get(GENERATION, "")),
        node_address=entry.node.address,
    )


def to_membership(registered: Iterable[Registration], isolated: Mapping[str, str]) -> Membership:
    """Return who is live: passing, and neither isolated by a key (`isolated`: with who did it, and why) nor in
    maintenance."""
    registrations = list(registered)
    consumers = {r.id: to_consumer(r) for r in registrations}
    out = frozenset(isolated) | {r.id for r in registrations if r.maintenance}
    passing = {r.id for r in registrations if r.passing}
    return Membership(
        live={c: consumer for c, consumer in consumers.items() if c in passing and c not in out},
        isolated=out,
        isolated_by=dict(isolated),
        failing={c: consumer for c, consumer in consumers.items() if c not in passing and c not in out},
        outside={c: consumer for c, consumer in consumers.items() if c in out},
        older={r.id: tuple(map(to_consumer, r.older)) for r in registrations if r.older},
    )


def to_consumer(registration: Registration) -> Consumer:
    """Return the consumer as the planner sees it, with defaults for metadata that is missing or wrong."""
    meta = registration.meta
    return Consumer(
        id=registration.id,
        address=registration.address,
        port=registration.port,
        priority=_priority(registration.id, meta.get("priority", "")),
        weight=_weight(registration.id, meta.get("weight", "")),
        zone=meta.get("zone") or None,
        topics=_topics(registration.id, meta.get("topics", "")),
        incarnation=registration.incarnation,
        leaving=bool(meta.get(LEAVING)),
        generation=registration.generation,
        metadata={key: value for key, value in meta.items() if key not in KNOWN},
    )


def _generation(consumer: str, text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) >= len(str(MOST_GENERATIONS)):
        _warn_metadata(consumer, GENERATION, text, "a whole number from 1", "0, the oldest of its id")
        return 0
    return int(text)


def _priority(consumer: str, text: str) -> int:
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        _warn_metadata(consumer, "priority", text, "a whole number", "0")
        return 0


def _weight(consumer: str, text: str) -> float:
    if not text:
        return 1.0
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not LEAST_WEIGHT <= weight <= GREATEST_WEIGHT:  # nor is a NaN
        _warn_metadata(consumer, "weight", text, f"a number from {LEAST_WEIGHT} to {GREATEST_WEIGHT:g}", "1")
        return 1.0
    return weight


def _topics(consumer: str, text: str) -> frozenset[str] | None:
    names = {name.strip() for name in text.split(",")} - {""}
    good = set()
    for name in names:
        try:
            good.add(check_topic(name))
        except WireError:
            _warn_metadata(consumer, "topics", name, "names of topics, separated by commas", "without it")
    return frozenset(good) or None


_warned: set[str] = set()


def _warn_metadata(consumer: str, key: str, value: str, expected: str, instead: str) -> None:
    _warn(
        f"consumer {consumer}: its Consul metadata has {key}={value[:100]!r}, expected is {expected}; taken as "
        f"{instead}. Correct it where the consumer registers"
    )


def _warn(message: str) -> None:
    """Warn once a process: the list is read every second."""
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def fingerprint(registered: Mapping[str, Registration]) -> str:
    """Return a text that changes when a consumer joins, leaves or changes address, health, metadata or maintenance.

    A check's output is not in it; it changes all the time and nothing follows from it.
    """
    seen = [
        [r.id, r.address, r.port, sorted(r.meta.items()), r.passing, r.maintenance]
        for newest in sorted(registered.values(), key=lambda r: r.id)
        for r in (newest, *newest.older)
    ]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()
