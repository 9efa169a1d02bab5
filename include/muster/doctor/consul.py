"""Consul: reachable, its version, the token, what may be read and written, and how far the clocks are apart.

A right to write a key is asked for with a check-and-set on a version that the key cannot have: Consul checks the
token, and then does nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from muster.doctor.findings import Check, Part, named
from muster.doctor.versions import check_version
from muster.edges.consul import ConsulCatalog, ConsulCluster
from muster.edges.consul_answers import ANSWERS
from muster.edges.consul_api import (
    ConsulApi,
    ConsulDeniedError,
    ConsulError,
    address,
    check_status,
    not_understood,
)
from muster.edges.consul_keys import key_prefix
from muster.edges.consul_overrides import KINDS
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import SettingsError, load_clusters
from muster.settings.connections import ConsulSettings

SKEW = 5.0
"""Seconds that the clocks may be apart without a warning; the Date header has whole seconds."""
_NO_VERSION = 1
"""A ModifyIndex that a key which is not there does not have."""

NEEDED = ("stop", "submitted", "coordination/rebalance", "coordination/epochs", "coordination/deployment")
"""Keys that Muster's own DAGs write."""
OVERRIDES = (*KINDS, ANSWERS, "coordination")
"""Keys that only people write, through commands."""


def check_consul(
    part: Part,
    settings: ConsulSettings,
    cluster: ClusterSettings,
    needed: tuple[str, ...],
    overrides: tuple[str, ...],
) -> Iterator[Check]:
    """Make every check of Consul. Each call takes at most the connection's `timeout` seconds.

    `needed` are the kinds of key that must be writable, `overrides` those whose refusal is but a warning.
    """
    api = ConsulApi(settings)
    try:
        leader, clock = _leader(part, api)
    except ConsulError as error:
        yield part.refused("reachable", error)
        names = ("version", "token", "services", "clusters", "read keys", "write keys", "clock")
        yield from (part.skipped(name, "Consul is out of reach") for name in names)
        return
    yield leader
    yield check_version(part, "Consul", _version(api))
    yield _or_refused(part, "token", lambda: _token(part, api))
    yield _or_refused(part, "services", lambda: _services(part, ConsulCluster.of(settings, cluster).catalog))
    yield _or_refused(
        part, "clusters", lambda: _clusters(part, ConsulCluster.of(settings, cluster).catalog, cluster)
    )
    prefix = key_prefix(cluster.name, cluster.consul_prefix)
    yield _or_refused(part, "read keys", lambda: _readable(part, api, prefix))
    yield _or_refused(part, "write keys", lambda: _writable(part, api, prefix, needed, overrides))
    yield clock


def consul_answers(part: Part, settings: ConsulSettings) -> list[Check]:
    """Check whether the agent answers and its servers have a leader; if so, whether the token is valid."""
    api = ConsulApi(settings)
    try:
        leader, _ = _leader(part, api)
    except ConsulError as error:
        return [part.refused("reachable", error)]
    return [leader, _or_refused(part, "token", lambda: _token(part, api))]


def _leader(part: Part, api: ConsulApi) -> tuple[Check, Check]:
    """Check whether the servers have a leader, and how far the clocks are apart. Raises `ConsulError`."""
    settings, what = api.settings, "GET /v1/status/leader"
    began = time.time()
    response = api.status.leader()
    ended = time.time()
    check_status(settings, what, response.status_code, response.text)
    if not response.text.startswith('"'):
        raise not_understood(settings, what, response.text)
    clock = _clock(part, response.headers.get("Date", ""), began, ended)
    if response.text.strip().strip('"'):
        return part.ok("reachable", address(settings)), clock
    found = f"{address(settings)}: its servers have no leader"
    step = "wait, or look at the servers: consul operator raft list-peers"
    return part.failed("reachable", found, step), clock


def _or_refused(part: Part, name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except ConsulError as error:
        return part.refused(name, error)


def _version(api: ConsulApi) -> str:
    """Read the agent's version: `/v1/agent/self` needs agent:read, which Muster otherwise does not."""
    try:
        return str(api.agent.self().json()["Config"]["Version"])
    except (ConsulError, ValueError, KeyError, TypeError):
        return "unknown (the token may not read the agent, nor need it)"


def _token(part: Part, api: ConsulApi) -> Check:
    response = api.send("GET", "/v1/acl/token/self")
    if response.status_code == HTTPStatus.UNAUTHORIZED and "ACL support disabled" in response.text:
        return part.ok("token", "this Consul has no ACLs; everybody may do everything")
    if api.settings.token is None:
        return part.warning(
            "token",
            "this Consul has ACLs, and the connection has no token",
            "set the connection's password to a token that may read the service, its nodes and the keys",
        )
    check_status(api.settings, "GET /v1/acl/token/self", response.status_code, response.text)
    try:
        policies = [str(policy["Name"]) for policy in response.json().get("Policies") or []]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise not_understood(api.settings, "GET /v1/acl/token/self", "no token") from error
    return part.ok("token", f"valid, with the policies {', '.join(policies) or '(none)'}")


def _services(part: Part, catalog: ConsulCatalog) -> Check:
    members = catalog.members()
    if members.doubt:
        found, _, step = members.doubt.partition("; ")
        return part.failed("services", found, step)
    if members.strangers:
        strangers = list(members.strangers.values())
        step = "stop them, so that they start under the cluster's name, or give each cluster a service of its own"
        return part.failed("services", named(strangers), step, strangers)
    return part.ok("services", f"service {catalog.service}: {len(members.registered)} registered")


def _clusters(part: Part, catalog: ConsulCatalog, cluster: ClusterSettings) -> Check:
    """Check whether consumers run whose cluster is no longer in the settings."""
    try:
        settings = load_clusters()
    except SettingsError:
        return part.skipped(
            "clusters", "the settings cannot be read, so it is unknown which clusters there are"
        )
    known = {cluster.name, *settings.clusters, *settings.errors}
    found = [f"{consumer} of {name}" for consumer, name in sorted(catalog.of_other_clusters(known).items())]
    if found:
        return part.warning(
            "clusters",
            f"{len(found)} consumers are of clusters that are not in the settings: {named(found)}",
            "if their cluster was renamed or taken out, stop them; if another Airflow coordinates it, leave them",
            found,
        )
    return part.ok("clusters", "no consumer of a cluster that is not in the settings is registered")


def _readable(part: Part, api: ConsulApi, prefix: str) -> Check:
    answer = api.read_keys(prefix, keys=True)
    if not answer.data:
        api.require_key_read(prefix)
    return part.ok("read keys", f"{prefix} has {len(answer.trusted() or [])} keys")


def _writable(
    part: Part, api: ConsulApi, prefix: str, needed: tuple[str, ...], overrides: tuple[str, ...]
) -> Check:
    own = f"doctor-{uuid.uuid4()}"
    refused: dict[str, str] = {}
    for kind in (*needed, *overrides):
        try:
            api.put_key(f"{prefix}{kind}/{own}", "", cas=_NO_VERSION)
        except ConsulDeniedError:
            refused[kind] = f"{prefix}{kind}/"
    step = 'give the token\'s policy key_prefix "..." { policy = "write" } for each'
    if any(kind in refused for kind in needed):
        return part.failed(
            "write keys", f"may not write {', '.join(refused.values())}", step, refused.values()
        )
    if refused:
        return part.warning(
            "write keys",
            f"may not write {', '.join(refused.values())}; the commands that need it are refused",
            f"if they are to work with this connection, {step}",
            refused.values(),
        )
    kinds = ", ".join(f"{kind}/" for kind in (*needed, *overrides))
    return part.ok("write keys", f"may write below {prefix}: {kinds}")


def _clock(part: Part, date: str, began: float, ended: float) -> Check:
    try:
        server = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return part.skipped("clock", "Consul's answer has no Date")
    skew = apart(server, began, ended)
    if abs(skew) > SKEW:
        direction = "ahead of" if skew > 0 else "behind"
        return part.warning(
            "clock",
            f"Consul's clock is {abs(skew):.0f} s {direction} this machine's",
            "synchronise both with NTP; else times of decisions and durations in states are wrong",
        )
    return part.ok("clock", f"less than {SKEW:g} s apart")


def apart(server: float, began: float, ended: float) -> float:
    """Return the seconds that a server's clock is ahead at least, negative if it is behind, 0 if it may agree.

    `server` is its time cut to whole seconds, read at some moment between `began` and `ended` of our own.
    """
    if server > ended:
        return server - ended
    return min(0.0, server + 1.0 - began)
