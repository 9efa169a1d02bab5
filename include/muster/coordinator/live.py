"""The part of a coordinator run that needs Consul alone: which consumers are live, and which are isolated."""

from __future__ import annotations

from muster.coordinator.ports import Catalog
from muster.coordinator.reports import ConsumersReport


def live_consumers(catalog: Catalog) -> ConsumersReport:
    """Report the live and the isolated consumers. Raises `ConsulError` when Consul does not answer."""
    members = catalog.members()
    if members.membership is None:
        return ConsumersReport(trusted=False, doubt=members.doubt)
    return ConsumersReport(live=len(members.membership.live), isolated=sorted(members.membership.isolated))
