"""`muster plan`: what the next coordinator run would move and why, or would if things were otherwise."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from muster.cli.errors import OutOfReachError, explained
from muster.cli.plan_output import PlanResult, as_json, show
from muster.cli.what_if import JoiningType, PairType
from muster.cluster.sources import Opener, Sources
from muster.coordinator.planning_context import ContextReader
from muster.coordinator.shadow import shadow_report
from muster.core.assignors import Assignor, load_assignor
from muster.core.model import TopicSnapshot
from muster.core.overrides import Overrides
from muster.core.planner import plan as plan_assignment
from muster.core.preview import Joining, preview, suppose, what_if
from muster.core.wire import WireError, readable
from muster.settings.assignor_choice import in_force, load_in_force
from muster.settings.clusters import AssignorSettings, ClusterSettings, load_clusters


@click.command()
@click.option("--cluster", required=True, help="As in clusters.yaml.")
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
    cluster: str,
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
    with explained():
        settings = load_clusters()[cluster]
        with opener(settings) as sources:
            topics, decisions = sources.snapshots(), sources.decisions()
            own = load_in_force(settings, decisions)
            other = _other(in_force(settings, decisions.assignor), assignor, dict(assignor_options))
            result = _planned(settings, sources, topics, decisions, own, other, without, joining, partitions)
    if as_text:
        click.echo(as_json(result))
    else:
        show(result, everything=everything)


def _other(own: AssignorSettings, name: str | None, options: dict[str, Any]) -> Assignor | None:
    """The one that is supposed. `name` is given by who runs this, in whose process it is imported."""
    if name is not None:
        return load_assignor(name, options)
    return load_assignor(own.name, own.options | options) if options else None


def _planned(
    settings: ClusterSettings,
    sources: Sources,
    topics: Mapping[str, TopicSnapshot | WireError],
    decisions: Overrides,
    own: Assignor,
    other: Assignor | None,
    without: Sequence[str],
    joining: Sequence[Joining],
    partitions: Sequence[tuple[str, int]],
) -> PlanResult:
    standing, left_alone = readable(topics)
    reads = settings.topics.read_with(decisions.subscriptions, decisions.topics_in_doubt)
    leaving = reads.leaving(standing)
    snapshots = {topic: snapshot for topic, snapshot in standing.items() if topic not in leaving}
    members = sources.members()
    membership = members.membership
    if membership is None:
        raise OutOfReachError(f"Consul's answer is not to be trusted now: {members.doubt}")
    supposed_if = what_if(without, joining, partitions, other, membership, left_alone)
    assignor = other or own
    reader = ContextReader(sources, sources.poll, time.time, settings.status_timeout)
    context, warnings = reader.read(snapshots, membership.live, assignor, decisions)
    found = preview(snapshots.values(), membership, own, context, supposed_if)
    shadow = None
    if settings.shadow_assignor is not None and not found.held:
        supposed, members_then = suppose(supposed_if, snapshots.values(), membership)
        live = members_then.live
        shadow = shadow_report(
            settings.shadow_assignor,
            supposed.values(),
            live,
            plan_assignment(supposed.values(), live, assignor, context).owners,
            lambda candidate: reader.read(snapshots, membership.live, candidate, decisions)[0],
        )
    return PlanResult(
        settings.name,
        supposed_if,
        found,
        left_alone,
        warnings,
        shadow,
        leaving,
        paused=str(decisions.paused or ""),
        chosen=str(decisions.assignor or ""),
    )
