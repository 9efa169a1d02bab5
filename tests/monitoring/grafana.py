"""The dashboard's queries, with Grafana's variables put in."""

from __future__ import annotations

from typing import Any

from muster.monitoring import FILES

DASHBOARD = FILES / "grafana" / "muster.json"


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that ask something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any], cluster: str = ".+", interval: str = "30s") -> list[tuple[str, str]]:
    """Each query that a panel makes, with the panel's title."""
    return [
        (
            panel["title"],
            target["expr"].replace("$cluster", cluster).replace("$__rate_interval", interval),
        )
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]
