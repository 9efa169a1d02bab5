"""One cluster in Consul: its consumers, what people decided about it, and what its processes leave for each other.

An empty list of consumers is never a fact from one read: Consul can answer 200 with an empty list for a service that
is not empty (hashicorp/consul#20790). `ConsulCatalog.members` reads again, from the catalog and from the health
endpoint, both with Consul's `consistent` mode and some time apart, and believes it only when all agree.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Collection, Mapping
from urllib.parse import quote

from muster.core.overrides import IsolationEntry
from muster.core.wire import check_id
from muster.edges.consul_answers import AnswerBox
from muster.edges.consul_api import (
    ConsulAnswer,
    ConsulApi,
    ConsulError,
    ConsulTooLargeError,
    not_understood,
)
from muster.edges.consul_jobs import GENERATIONS, STOP, JobMailbox, StopRequest, UnreadableKeyError
from muster.edges.consul_keys import PREFIX, Keys, of_consumer
from muster.edges.consul_members import (
    CLUSTER,
    GENERATION,
    LEAVING,
    Members,
    Registration,
    own_and_strangers,
    parse_registrations,
    to_membership,
)
from muster.edges.consul_overrides import ISOLATED, OverrideStore
from muster.edges.consul_wait import (
    Own,
    Track,
    WaitIndex,
    first_change,
    health_digest,
    keys_digest,
    read_key,
    read_registration,
    wait_for_own,
)
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connections import ConsulSettings

__all__ = [
    "ConsulCatalog",
    "ConsulCluster",
    "ConsulError",
    "ConsulTooLargeError",
    "IsolationEntry",
    "JobMailbox",
    "Members",
    "OverrideStore",
    "Own",
    "Registration",
    "StopRequest",
    "UnreadableKeyError",
    "WaitIndex",
]

SECOND_LOOK = 0.3
"""Seconds between the reads that confirm an empty list; up to half as much again, at random, is added."""
SHORTEST_CHECK_TIMEOUT = 2.0
"""Seconds: a status page that starves for a second on a busy machine must not set off a rebalance. A process that
died is nevertheless noticed at once, because nothing listens any more."""
SHORTEST_REAPING = 60.0
"""Seconds: Consul takes a shorter `deregister_after` for this."""


class ConsulCluster:
    """A cluster in Consul, over one connection. Its parts are thread-safe.

    Every call ends within the connection's `timeout` (a wait: plus its own) or raises `ConsulError`.
    """

    def __init__(
        self,
        settings: ConsulSettings,
        cluster: str,
        service: str,
        pause: Callable[[float], None] = time.sleep,
        prefix: str = PREFIX,
    ) -> None:
        self.keys = Keys(ConsulApi(settings), cluster, prefix)
        self.overrides = OverrideStore(self.keys)
        self.jobs = JobMailbox(self.keys)
        self.answers = AnswerBox(self.keys)
        self.catalog = ConsulCatalog(self.keys, self.overrides, service, pause)

    @classmethod
    def of(cls, settings: ConsulSettings, cluster: ClusterSettings) -> ConsulCluster:
        return cls(settings, cluster.name, cluster.consul_service, prefix=cluster.consul_prefix)


class ConsulCatalog:
    """The consumers of a cluster, registered as `service`: which there are, how they fare, and what changes."""

    def __init__(
        self,
        keys: Keys,
        overrides: OverrideStore,
        service: str,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.service = check_id(service, "Consul service")
        self._api = keys.api
        self._keys = keys
        self._overrides = overrides
        self._pause = pause

    def members(self) -> Members:
        """Return who is registered, live and isolated, or why that is unknown. See the module on empty lists."""
        isolated = {consumer: entry.said() for consumer, entry in self._overrides.isolated().items()}
        answer, registered = self._health()
        if not registered and not answer.doubt:
            return self._confirm_empty(isolated)
        return self._members(registered, isolated, answer.doubt)

    def wait(self, index: WaitIndex, timeout: float) -> WaitIndex:
        """Return at the first change of the service's health or the cluster's keys since `index`, or after
        `timeout` seconds.

        To miss nothing, take an index with `timeout` 0, read, and wait from that index. Not to be called from
        within a running event loop.
        """
        health = Track(f"/v1/health/service/{self.service}", health_digest, index.health, index.seen_health)
        keys = Track(
            f"/v1/kv/{self._keys.prefix}", keys_digest, index.keys, index.seen_keys, [("recurse", "1")]
        )
        asyncio.run(first_change(self._api, [health, keys], timeout))
        return WaitIndex(health.index, keys.index, health.seen, keys.seen)

    def register(
        self,
        consumer: str,
        address: str,
        port: int,
        meta: Mapping[str, str],
        check_url: str,
        check_interval: float,
        deregister_after: float,
        passing: bool = False,
    ) -> None:
        """Register a consumer with the local agent, which asks `check_url` every `check_interval` seconds, with the
        `incarnation` of `meta` as a parameter: another process at that address has to answer that it is not well.

        A registration under the same id is replaced. Until the first check has passed the consumer is not live,
        unless it is `passing` from the start: for one that replaces a live one, so that the id does not seem gone.
        Consul deregisters it when the check has failed for `deregister_after` seconds, of which 60 is the least. The
        agent does not verify the certificate of an https page: it sends no secret, and has no CA of its own for it.
        """
        if incarnation := meta.get("incarnation"):
            check_url += f"{'&' if '?' in check_url else '?'}incarnation={quote(incarnation)}"
        self._api.register(
            {
                "ID": check_id(consumer),
                "Name": self.service,
                "Address": address,
                "Port": port,
                "Meta": dict(meta),
                "Check": {
                    "Name": f"status page of {consumer}",
                    "Status": "passing" if passing else "critical",
                    "HTTP": check_url,
                    "TLSSkipVerify": True,
                    "Interval": _duration(check_interval),
                    # Ten seconds by default; a frozen consumer should be seen sooner.
                    "Timeout": _duration(max(SHORTEST_CHECK_TIMEOUT, check_interval)),
                    "DeregisterCriticalServiceAfter": _duration(max(SHORTEST_REAPING, deregister_after)),
                },
            },
        )

    def deregister(self, consumer: str, incarnation: str | None = None) -> bool:
        """Take a consumer out of the local agent; False if it was not there.

        With `incarnation` only if the registration is that incarnation's, so that one that leaves does not take
        its successor with it.
        """
        if incarnation is not None:
            own = self.own_registration(consumer)
            if own is None or own.incarnation != incarnation:
                return False
        return self._api.deregister(check_id(consumer))

    def own_registration(self, consumer: str) -> Registration | None:
        """Return the registration that the local agent holds under this id, None if it holds none."""
        return read_registration(self._api, check_id(consumer))

    def registered_as(self, consumer: str) -> Registration | None:
        """Return what Consul's servers know under this id, None if nothing: its newest process, the rest as `older`.

        Raises `ConsulError` also if the answer is not to be trusted.
        """
        answer, registered = self._health(_only(consumer))
        if not registered and not answer.doubt:
            catalog, answer, registered = self._look_again(consumer)
            if not registered and catalog.data:
                raise self._keys.error(
                    f"its catalog knows {consumer}, and its health endpoint does not; ask again"
                )
        answer.trusted()
        return registered.get(consumer)

    def knows(self, consumer: str, incarnation: str) -> bool:
        """Tell whether Consul's servers have heard of this process's registration; False if that is unknown."""
        answer, registered = self._health(_only(consumer))
        found = registered.get(consumer)
        if found is None or answer.doubt:
            return False
        return incarnation in {each.incarnation for each in (found, *found.older)}

    def others_stay(self, consumer: str) -> bool:
        """Tell whether another consumer is live, and neither drained nor about to leave; False if that is unknown."""
        only = f"Service.ID != {json.dumps(check_id(consumer))} and {LEAVING} not in Service.Meta"
        answer, registered = self._health(only)
        if answer.doubt:
            return False
        decided = self._overrides.read()
        own, _ = own_and_strangers(registered, self._keys.cluster, self.service)
        live = to_membership(own.values(), dict.fromkeys({*decided.isolated, *decided.drained}, "")).live
        return any(other.id != consumer and not other.leaving for other in live.values())

    def of_other_clusters(self, known: Collection[str]) -> dict[str, str]:
        """Return the consumers, with their cluster, that are registered for any service and whose cluster is not in
        `known`; those that the token may not read are left out. Raises `ConsulError`."""
        mark = [f"{key} in ServiceMeta" for key in (CLUSTER, GENERATION, "incarnation")]
        others = [f"ServiceMeta.{CLUSTER} != {json.dumps(name)}" for name in sorted(known)]
        only = " and ".join(mark + others)
        found: dict[str, str] = {}
        for service in sorted(self._api.read_services(only).data or {}):
            for entry in self._api.read_catalog(service, only).data or []:
                found[str(entry["ServiceID"])] = str(entry["ServiceMeta"][CLUSTER])
        return found

    def own(self, consumer: str) -> Own:
        """Read what concerns this consumer alone: its registration with the local agent, and its keys."""
        return Own(
            consumer,
            self.own_registration(consumer),
            *(read_key(self._keys, of_consumer(kind, consumer)) for kind in (STOP, ISOLATED, GENERATIONS)),
        )

    def wait_own(self, own: Own, timeout: float, poll: float, interrupted: Callable[[], bool]) -> Own:
        """Return at the first change of `own`, after `timeout` seconds, or when `interrupted` says so.

        Keys are heard of at once, the rest within `poll` seconds. Not to be called from within a running event loop.
        """
        return wait_for_own(self._api, own, timeout, poll, interrupted)

    def _health(
        self, only: str = "", consistent: bool = False
    ) -> tuple[ConsulAnswer, dict[str, Registration]]:
        answer = self._api.read_health(self.service, only, consistent)
        try:
            return answer, parse_registrations(answer.data)
        except ValueError as error:
            what = f"GET /v1/health/service/{self.service}"
            raise not_understood(self._api.settings, what, f"{error}: {answer.data}") from error

    def _confirm_empty(self, isolated: Mapping[str, str]) -> Members:
        doubt = f"Consul at first named no consumer of service {self.service}, and "
        try:
            catalog, answer, registered = self._look_again()
            hides = self._api.hides()
        except ConsulError as error:
            return Members(None, {}, f"{doubt}could not be asked again: {error}")
        reason = catalog.doubt or answer.doubt
        if not registered and not reason:
            if catalog.data != []:
                reason = f"{doubt}its catalog does not agree; ask again in a moment"
            elif hides:
                step = "set its password to one"
                reason = f"{doubt}may hide them: it has ACLs, and the connection has no token; {step}"
        return self._members(registered, isolated, reason)

    def _members(
        self, registered: Mapping[str, Registration], isolated: Mapping[str, str], doubt: str
    ) -> Members:
        own, strangers = own_and_strangers(registered, self._keys.cluster, self.service)
        return Members(None if doubt else to_membership(own.values(), isolated), own, doubt, strangers)

    def _look_again(self, consumer: str = "") -> tuple[ConsulAnswer, ConsulAnswer, dict[str, Registration]]:
        """Read the catalog and then the health endpoint, of all consumers or of one, some time apart."""
        self._pause(SECOND_LOOK * random.uniform(1.0, 1.5))  # noqa: S311  to spread load, not to keep a secret
        catalog = self._api.read_catalog(self.service, _only(consumer, "ServiceID") if consumer else "")
        self._pause(SECOND_LOOK * random.uniform(1.0, 1.5))  # noqa: S311  the same
        return catalog, *self._health(_only(consumer) if consumer else "", consistent=True)


def _only(consumer: str, field: str = "Service.ID") -> str:
    return f"{field} == {json.dumps(check_id(consumer))}"


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
