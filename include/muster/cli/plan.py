"""`muster plan`: what the next coordinator run would move and why, or would if things were otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from muster.cli.options import CLUSTER
from muster.cli.plan_output import as_json, show
from muster.cli.status import read_cluster
from muster.cli.what_if import JoiningType, PairType
from muster.cluster.planning import Planning, Previewed
from muster.cluster.reading import SourceName
from muster.cluster.sources import Opener
from muster.coordinator.shadow import ShadowReport, shadow_report
from muster.core.assignors import Assignor, load_assignor
from muster.core.planner import plan as plan_assignment
from muster.core.preview import Joining, suppose
from muster.settings.assignor_choice import in_force
from muster.settings.cluster_settings import AssignorSettings


@click.command()
@CLUSTER
@click.option("--assignor", help="Plan with this one, by name or dotted path, instead of the cluster's own.")
@click.option(
    "--assignor-option",
    "assignor_options",
    multiple=True,
    type=PairType("key", "value"),
    help="An option of the assignor. Without --assignor it is added to those of the cluster's own. Repeatable.",
)
@click.option("--without", multiple=True, metavar="CONSUMER", help="As if it had left. Repeatable.")
@click.option(
    "--with",
    "joining",
    multiple=True,
    type=JoiningType(),
    metavar="CONSUMER[:ATTRIBUTES]",
    help="As if it were live; if it is, with these attributes: weight=2,zone=b,priority=1,topics=a|b. Repeatable.",
)
@click.option(
    "--partitions",
    multiple=True,
    type=PairType("topic", "N", number=True),
    help="As if the topic had N partitions. Repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Show lists in full.")
@click.option("--json", "as_text", is_flag=True, help="Print JSON, always in full.")
@click.pass_obj
def plan(
    opener: Opener,
    cluster: str | None,
    assignor: str | None,
    assignor_options: Sequence[tuple[str, Any]],
    without: Sequence[str],
    joining: Sequence[Joining],
    partitions: Sequence[tuple[str, int]],
    everything: bool,
    as_text: bool,
) -> None:
    """Show what would move and why each partition moves. Reads the live state and changes nothing.

    Without further options: what the next coordinator run would begin. Exit codes: 0 shown, 2 unknown cluster,
    consumer, topic or option, or unusable settings, 3 ZooKeeper or Consul out of reach, 4 the assignor failed.
    """
    with read_cluster(opener, cluster, (SourceName.ZOOKEEPER, SourceName.CONSUL)) as (sources, state):
        planning = Planning(state, sources, sources.poll)
        other = _other(in_force(state.settings, state.overrides.assignor), assignor, dict(assignor_options))
        previewed = planning.preview(planning.suppose(without, joining, partitions, other))
        shadow = _shadow(planning, previewed)
    if as_text:
        click.echo(as_json(state, previewed, shadow))
    else:
        show(state, previewed, shadow, everything=everything)


def _other(own: AssignorSettings, name: str | None, options: dict[str, Any]) -> Assignor | None:
    """Load the one that is supposed. `name` is given by who runs this, in whose process it is imported."""
    if name is not None:
        return load_assignor(name, options)
    return load_assignor(own.name, own.options | options) if options else None


def _shadow(planning: Planning, previewed: Previewed) -> ShadowReport | None:
    """Plan what the shadow assignor would do under the same suppositions."""
    settings = planning.state.settings.shadow_assignor
    if settings is None or previewed.preview.held:
        return None
    supposed, membership = suppose(previewed.what_if, planning.snapshots.values(), planning.membership)
    snapshots, live = supposed.values(), membership.live
    assignor = previewed.what_if.assignor or planning.own
    planned = plan_assignment(snapshots, live, assignor, previewed.context).owners
    return shadow_report(settings, snapshots, live, planned, lambda other: planning.context(other)[0])
