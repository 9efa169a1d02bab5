"""What the reader finds of a cluster: whether overrides keep anything from going its usual way, or cannot be read.

And whether the live consumers answer, say what Consul says of them, and run the version that runs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

import muster
from muster.cluster.state import ClusterState
from muster.core.assignors import AssignorError
from muster.core.deployment import Deployment
from muster.core.wire import PROTOCOL
from muster.doctor.findings import Check, Part, named
from muster.edges.consul_members import Registration
from muster.settings.assignor_choice import load_chosen


def check_deployment(part: Part, state: ClusterState, this: Deployment | None) -> Check:
    """Check whether another deployment coordinates the cluster with the same keys in Consul."""
    noted = state.overrides.deployment
    if state.consul is None or this is None:
        return part.skipped("deployment", "Consul cannot say it, or there is no connection to ZooKeeper")
    if clash := this.clash(noted, state.at):
        found, _, step = clash.partition(". ")
        return part.failed("deployment", found, step)
    if noted is None:
        return part.ok("deployment", "no coordinator has run yet")
    return part.ok("deployment", f"no other one uses the cluster's keys; it is at {noted}")


def check_decisions(part: Part, state: ClusterState) -> Iterator[Check]:
    """Check whether coordination is paused, whether a chosen assignor can be loaded here, and whether all that was
    decided can be read."""
    if state.consul is None:  # the checks of Consul say what is wrong
        yield from (
            part.skipped(name, "Consul cannot say what was decided")
            for name in ("coordination", "assignor", "keys")
        )
        return
    found, cluster = state.overrides, state.settings
    if found.paused is not None:
        yield part.warning(
            "coordination",
            f"{found.paused}; nothing is planned or written",
            f"when the reason is gone: muster resume --cluster {cluster.name} --reason ...",
        )
    else:
        asked = f"goes on; {found.rebalance}, not carried out yet" if found.rebalance else "goes on"
        yield part.ok("coordination", asked)
    clear = f"take the choice back: muster assignor --clear --cluster {cluster.name} --reason ..."
    if found.assignor_error:
        yield part.failed("assignor", found.assignor_error, clear)
    elif found.assignor is None:
        yield part.ok("assignor", f"{cluster.assignor.name}, as in the settings")
    else:
        try:
            load_chosen(cluster, found.assignor.name, found.assignor.options)
        except AssignorError as error:
            yield part.failed("assignor", f"{found.assignor}: {error}", clear)
        else:
            yield part.ok("assignor", f"{found.assignor}, instead of {cluster.assignor.name} in the settings")
    if found.errors:
        yield part.warning("keys", named(found.errors), "correct or delete these keys", found.errors)
    elif found.large:
        yield part.warning("keys", named(found.large), "make them smaller, as they say", found.large)
    else:
        count = len(found.pins) + len(found.exclusions) + len(found.subscriptions)
        yield part.ok("keys", f"{count} pins, exclusions and decisions on topics can be read")


def check_consumers(part: Part, state: ClusterState) -> Iterator[Check]:
    """Check whether every live consumer answers, and with what."""
    names = ("addresses", "status pages", "incarnations", "versions")
    if state.membership is None:  # the checks of Consul say what is wrong
        yield from (part.skipped(name, "Consul cannot say who is there") for name in ("live", *names))
        return
    live, registered = state.live, state.registered
    if not live:
        missing = len(registered)
        yield part.warning(
            "live",
            f"no consumer is live, {missing} registered",
            "start consumers (the DAG muster_consumers__... of the cluster), or look why their checks fail",
        )
        yield from (part.skipped(name, "no consumer is live") for name in names)
        return
    yield part.ok("live", f"{len(live)} live of {len(registered)} registered")
    yield check_addresses(part, [registered[consumer] for consumer in sorted(live)])
    silent = [f"{c}: {why}" for c, why in sorted(state.failures.items())]
    if silent:
        yield part.failed(
            "status pages",
            f"{len(silent)} of {len(live)} do not answer: {named(silent)}",
            "check that their status pages can be reached from here, and the cluster's 'status' connection",
            silent,
        )
    else:
        yield part.ok("status pages", f"all {len(live)} answer")
    others = [
        f"{consumer}: Consul has {known}, its page says {status.incarnation}"
        for consumer, status in sorted(state.statuses.items())
        if (known := registered[consumer].incarnation) and known != status.incarnation
    ]
    if others:
        yield part.failed(
            "incarnations",
            named(others),
            "a consumer was replaced and both run, or it is just being replaced: ask again, then end the older one",
            others,
        )
    elif len(silent) == len(live):
        yield part.skipped("incarnations", "no status page answers")
    else:
        yield part.ok("incarnations", f"{len(live) - len(silent)} say what Consul says")
    here = _versions({"version": muster.__version__, "protocol": str(PROTOCOL)})
    versions = {c: _versions(registered[c].meta) for c in sorted(live)}
    different = [f"{c} runs {found}" for c, found in versions.items() if found != here]
    if different:
        yield part.warning(
            "versions",
            f"here is {here}; {named(different)}",
            "restart the consumers with this version, or leave it if they are not Muster's own",
            different,
        )
    else:
        yield part.ok("versions", f"all run {here}, as this machine")


def _versions(meta: Mapping[str, str]) -> str:
    """Say what runs there, by a registration. Version 1 of the protocol was the one that did not name itself."""
    if not (version := meta.get("version")):
        return "a version that it does not name"
    return f"muster {version} with version {meta.get('protocol', '1')} of the protocol"


def check_addresses(part: Part, registered: Sequence[Registration]) -> Check:
    """Check whether other machines can reach the status pages, as far as addresses tell."""
    local = [
        f"{each.id}: {each.address}, with an agent at {each.node_address}"
        for each in registered
        if _only_here(each.address) and not _only_here(each.node_address)
    ]
    if local:
        return part.failed(
            "addresses",
            f"only programs on the same machine reach {len(local)} of {len(registered)}: {named(local)}",
            "set 'advertise' under 'consumers' or in 'each' to an address of that machine, and restart them",
            local,
        )
    return part.ok("addresses", f"none of {len(registered)} has an address that other machines do not reach")


def _only_here(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return address == "localhost"
    return found.is_loopback or found.is_unspecified
