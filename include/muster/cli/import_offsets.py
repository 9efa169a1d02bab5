"""`muster import-offsets`: begin where a consumer from before Muster stopped."""

from __future__ import annotations

import getpass
import json
import time
from pathlib import Path

import click

from muster.cli.errors import explained
from muster.cli.tables import console, cut, listed, table
from muster.commands.actions.moving_in import (
    from_checkpoint,
    from_group,
    from_zookeeper,
    import_offsets,
    plan,
)
from muster.commands.audit import record
from muster.commands.command import Actor, CommandError
from muster.commands.target import Target
from muster.core.imported_offsets import Plan
from muster.settings.clusters import load_clusters
from muster.settings.connection_lookup import CONNECTIONS

NAME = "import-offsets"
SHOWN = 30
"""Longer tables are cut, unless everything is asked for."""


@click.command(NAME)
@click.option("--cluster", required=True, help="As in the settings.")
@click.option(
    "--zookeeper-group", help="A consumer of Kafka 0.8, by /consumers/[GROUP]/offsets in ZooKeeper."
)
@click.option(
    "--zookeeper", "conn_id", help="The connection to that ZooKeeper, if it is not the cluster's own."
)
@click.option("--group", help="Another group of the cluster's Kafka.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="The checkpoint folder of a Spark query, as a path here.",
)
@click.option("--preview", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--reason", default="", help="Reason, recorded in the audit history; not needed with --preview."
)
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decided it.")
@click.option("--all", "everything", is_flag=True, help="The table in full.")
@click.option("--json", "as_text", is_flag=True, help="Print JSON, in full.")
def import_offsets_command(
    cluster: str,
    zookeeper_group: str | None,
    conn_id: str | None,
    group: str | None,
    checkpoint: Path | None,
    preview: bool,
    reason: str,
    by: str,
    everything: bool,
    as_text: bool,
) -> None:
    """Commit for the cluster's group the offsets at which a consumer from before Muster stopped.

    Give one of --zookeeper-group, --group and --checkpoint. Refused while consumers of the cluster, or of the group
    that is imported, run.
    """
    with explained():
        settings = load_clusters()[cluster]
        target = Target.of(settings, CONNECTIONS)
        kafka = CONNECTIONS.kafka((settings.consumers and settings.consumers.kafka) or settings.kafka)
        match zookeeper_group, group, checkpoint:
            case str(), None, None:
                source = f"group {zookeeper_group} in ZooKeeper"
                found = from_zookeeper(CONNECTIONS.zookeeper(conn_id or settings.zookeeper), zookeeper_group)
            case None, str(), None:
                source, found = f"group {group}", from_group(kafka, group, target)
            case None, None, Path():
                source, found = f"checkpoint {checkpoint}", from_checkpoint(checkpoint)
            case _:
                raise CommandError("give one of --zookeeper-group, --group and --checkpoint")
        planned = plan(target, kafka, found)
        if preview:
            (_print_json if as_text else _print)(planned, None if everything else SHOWN)
            return
        actor = Actor(by, reason, time.time())
        outcome = import_offsets(target, actor, kafka, planned, source)
        missing = record(target, actor, NAME, outcome.values, "command line")
    if as_text:
        values = {"cluster": target.cluster.name, **outcome.values, **actor.values()}
        click.echo(json.dumps(values, indent=2))
        return
    _print(planned, None if everything else SHOWN)
    click.echo("\n".join(outcome.lines + missing))


def _print(planned: Plan, limit: int | None) -> None:
    out = console()
    shown = table(
        "topic", "#partition", "#now", "#imported", "#read again", "#passed over", "#lost", "#to read"
    )
    for each in planned.imports[:limit]:
        now = "-" if each.now is None else each.now
        numbers = (each.partition, now, each.to, each.again, each.passed_over, each.lost, each.left)
        shown.add_row(each.topic, *map(str, numbers))
    out.print(shown)
    cut(out, len(planned.imports), limit)
    left_out = [f"{topic} {partition}: {why}" for (topic, partition), why in planned.left_out.items()]
    for line in listed("left out: ", left_out, limit):
        out.print(line)
    without = [f"{topic} {partition}" for topic, partition in planned.without]
    for line in listed("stays as it is, nothing was found: ", without, limit):
        out.print(line)


def _print_json(planned: Plan, _limit: int | None) -> None:
    value = {
        "imports": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "now": each.now,
                "imported": each.to,
                "read_again": each.again,
                "passed_over": each.passed_over,
                "lost": each.lost,
                "to_read": each.left,
            }
            for each in planned.imports
        ],
        "left_out": [
            {"topic": topic, "partition": partition, "why": why}
            for (topic, partition), why in planned.left_out.items()
        ],
        "without": [{"topic": topic, "partition": partition} for topic, partition in planned.without],
    }
    click.echo(json.dumps(value, indent=2))
