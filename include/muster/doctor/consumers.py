"""The live consumers: their status pages answer, say what Consul says of them, and run the version that runs here."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import SecretStr

import muster
from muster.core.model import ConsumerStatus
from muster.doctor.findings import Check, Part, named
from muster.edges.consul import ConsulError, Discovery, Members
from muster.edges.status import poll_statuses
from muster.settings.clusters import ClusterSettings
from muster.settings.connections import ConsulSettings


def check_consumers(
    part: Part, consul: ConsulSettings, token: SecretStr | None, cluster: ClusterSettings
) -> Iterator[Check]:
    """Ask every live consumer. Takes at most the time Consul takes and `status_timeout` seconds."""
    names = ("status pages", "incarnations", "versions")
    try:
        members = Discovery.of(consul, cluster).members()
    except ConsulError:  # the checks of Consul say what is wrong
        members = Members(None, {}, 0)
    if members.membership is None:
        yield from (part.skipped(name, "Consul cannot say who is there") for name in ("live", *names))
        return
    live = members.membership.live
    if not live:
        missing = len(members.registered)
        yield part.warning(
            "live",
            f"no consumer is live, {missing} registered",
            "start consumers (the DAG muster_consumers__... of the cluster), or look why their checks fail",
        )
        yield from (part.skipped(name, "no consumer is live") for name in names)
        return
    yield part.ok("live", f"{len(live)} live of {len(members.registered)} registered")
    answers = poll_statuses([live[consumer] for consumer in sorted(live)], cluster.status_timeout, token)
    silent = [f"{c}: {a.reason}" for c, a in sorted(answers.items()) if not isinstance(a, ConsumerStatus)]
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
        f"{consumer}: Consul has {registered}, its page says {answer.incarnation}"
        for consumer, answer in sorted(answers.items())
        if isinstance(answer, ConsumerStatus)
        and (registered := members.registered[consumer].incarnation)
        and registered != answer.incarnation
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
    versions = {c: members.registered[c].meta.get("version", "") for c in sorted(live)}
    different = [
        f"{c} runs {version or 'one it does not tell'}"
        for c, version in versions.items()
        if version != muster.__version__
    ]
    if different:
        yield part.warning(
            "versions",
            f"here is muster {muster.__version__}; {named(different)}",
            "restart the consumers with this version, or leave it if they are not Muster's own",
            different,
        )
    else:
        yield part.ok("versions", f"all run muster {muster.__version__}, as this machine")
