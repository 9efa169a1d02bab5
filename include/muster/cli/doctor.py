"""`muster doctor`: whether a cluster has what it needs, and what to do where it has not. Changes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from muster.cli.errors import end
from muster.cli.tables import console, table
from muster.doctor.airflow import check_room
from muster.doctor.examination import check_pruning, examine
from muster.doctor.findings import Check, CheckOutcome, Part, counts, explained, failed
from muster.doctor.packages import check_packages
from muster.settings.clusters import Clusters, SettingsError, clusters_path, load_clusters
from muster.settings.connection_lookup import CONNECTIONS

FAILED = 5
"""Exit code where a check failed; the same as that of `status --check`."""


@click.command()
@click.option("--cluster", help="As in the settings; without it every cluster.")
@click.option(
    "--all-clusters", is_flag=True, help="Every cluster in the settings, which is what happens anyway."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds that a call to a server may take; a shorter time-out of its connection stays.",
)
@click.option("--json", "as_text", is_flag=True, help="Print JSON, always in full.")
def doctor(cluster: str | None, all_clusters: bool, timeout: float, as_text: bool) -> None:
    """Check every connection, right and version that a cluster needs, and say what to do. Changes nothing.

    Rights to write are asked for with writes that cannot succeed. Kafka commits are not tried.

    Exit codes: 0 all is well or only warnings, 2 unknown cluster, 5 something failed.
    """
    if cluster is not None and all_clusters:
        end("--cluster and --all-clusters exclude each other; give one of them", 2)
    general = list(check_packages(Part("packages")))
    found: dict[str, list[Check]] = {}
    settings = Part("settings")
    try:
        clusters = load_clusters()
    except SettingsError as error:
        problem, step = explained(error)
        general.append(settings.failed("files", problem, step))
    else:
        known = clusters.clusters.keys() | clusters.errors.keys()
        right = len(known) - len(clusters.errors)
        general.append(
            settings.ok("files", f"{clusters.path}: {right} of {len(known)} clusters have no mistake")
        )
        for what, wrong in clusters.general.items():
            general.append(settings.failed(what, wrong, "correct the file"))
        general += check_room(Part("airflow"), clusters)
        if clusters.retention is not None:
            general += check_pruning(clusters.retention, CONNECTIONS)
        found = {name: _of(clusters, name, timeout) for name in _asked(clusters, cluster)}
    everything = [*general, *(check for checks in found.values() for check in checks)]
    if as_text:
        report = {
            "well": not failed(everything),
            "counts": counts(everything),
            "general": [asdict(check) for check in general],
            "clusters": {name: [asdict(check) for check in checks] for name, checks in found.items()},
        }
        click.echo(json.dumps(report, indent=2))
    else:
        _show("this machine", general)
        for name, checks in found.items():
            _show(f"cluster {name}", checks)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts(everything).items())
        console().print(f"doctor: {summary}")
    if failed(everything):
        sys.exit(FAILED)


def _asked(clusters: Clusters, cluster: str | None) -> list[str]:
    known = sorted({*clusters.clusters, *clusters.errors})
    if cluster is None:
        return known
    if cluster not in known:
        if clusters.general:  # it may stand in the file that cannot be read, which is a finding
            return []
        end(f"{clusters_path()}: no cluster {cluster!r}; there are: {', '.join(known) or 'none'}", 2)
    return [cluster]


def _of(clusters: Clusters, name: str, timeout: float) -> list[Check]:
    wrong = []
    if name in clusters.errors:
        wrong.append(Part("settings").failed("cluster", clusters.errors[name], "correct the entry"))
    return wrong + (examine(clusters[name], CONNECTIONS, timeout) if name in clusters.clusters else [])


def _show(title: str, checks: Sequence[Check]) -> None:
    out = console()
    rows = table(title, "check", "outcome", "found")
    for check in checks:
        rows.add_row(check.part, check.name, check.outcome, check.found)
    out.print(rows)
    for check in checks:
        if check.outcome in (CheckOutcome.FAILED, CheckOutcome.WARNING):
            out.print(f"{check.outcome}: {check.part}, {check.name}: {check.step}", soft_wrap=True)
    out.print()
