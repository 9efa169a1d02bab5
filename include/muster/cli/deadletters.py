"""`muster deadletters`: what lies in a cluster's dead-letter topic; `muster deadletters replay` writes it back."""

from __future__ import annotations

import getpass
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import click

from muster.cli.errors import explained, read_clusters
from muster.cli.history import seconds
from muster.cli.options import CLUSTER, ListsByDefault
from muster.cli.tables import console, table
from muster.commands.actions.dead_letters import MOST, NoLettersError, Wanted, foresee, place_of
from muster.commands.actions.dead_letters import replay as write_back
from muster.commands.audit import carry_out
from muster.commands.command import Actor, CommandOutcome
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.edges.dead_letters import Letter, read_letters
from muster.settings.connection_lookup import CONNECTIONS

SHOWN_VALUE = 60
"""Characters of a value in the table."""
VIA = "command line"

Function = TypeVar("Function", bound=Callable[..., Any])

_FILTERS = (
    CLUSTER,
    click.option("--topic", help="Only records of this topic."),
    click.option("--partition", type=click.IntRange(0), help="Only records of this partition."),
    click.option("--error", help="Only those whose error holds this text."),
    click.option("--since", callback=seconds, help="Only letters of the last 30m, 2h, ..."),
    click.option("--json", "as_text", is_flag=True, help="Print JSON."),
)


def _filtered(function: Function) -> Function:
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@click.group(cls=ListsByDefault)
def deadletters() -> None:
    """List dead letters (the default), or write them back to where they came from."""


@deadletters.command("list")
@_filtered
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many, the newest."
)
def list_(cluster: str, limit: int, as_text: bool, **filters: Any) -> None:
    """List dead letters, the newest last. Changes nothing.

    Exit codes: 0 listed (also if there is none), 2 unknown cluster or unusable settings, 3 Kafka out of reach.
    """
    wanted = _wanted(time.time(), **filters)
    with explained():
        settings = read_clusters().chosen(cluster)
        name, topic = settings.name, settings.dead_letter_topic
        letters = read_letters(CONNECTIONS.kafka(settings.kafka), topic, settings.group_id)
        found = deque(filter(wanted.takes, letters), maxlen=limit)
    if as_text:
        shown = {"cluster": name, "topic": topic, "letters": [_plain(one) for one in found]}
        click.echo(json.dumps(shown, indent=2))
        return
    out = console()
    if found:
        rows = table("letter", "written", "record", "#attempts", "replayed", "error", "value")
        for one in found:
            said = one.record.said
            record_ = (
                "/".join(map(said, ("topic", "partition", "offset"))) if one.origin else "no dead letter"
            )
            if said("cluster") not in {"", name}:
                record_ += f" of cluster {said('cluster')}"
            rows.add_row(
                *(place_of(one), _when(one.at), record_, said("attempts"), "yes" if one.replayed else "no"),
                *(said("error"), _text(one.record.value)[:SHOWN_VALUE]),
            )
        out.print(rows)
        out.print()
    out.print(f"deadletters: cluster {name}, topic {topic}, {len(found)} letter(s)")


@deadletters.command()
@_filtered
@click.option(
    "--letter", "places", multiple=True, help="Only this one, PARTITION/OFFSET as listed. Repeatable."
)
@click.option("--to", help="Write to this topic instead, by the records' keys.")
@click.option("--again", is_flag=True, help="Also those that were written back before.")
@click.option(
    "--limit", type=click.IntRange(1), default=MOST, show_default=True, help="At most so many, the oldest."
)
@click.option("--preview", is_flag=True, help="Say what it would do; change nothing.")
@click.option("--reason", help="Reason, recorded in the audit history; not needed with --preview.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decided it.")
def replay(
    cluster: str,
    places: tuple[str, ...],
    to: str | None,
    again: bool,
    limit: int,
    preview: bool,
    reason: str | None,
    by: str,
    as_text: bool,
    **filters: Any,
) -> None:
    """Write dead letters back, oldest first: each to the topic and partition that it came from.

    The command replay-deadletters, for single letters, another topic, or once more. A record that is written back has
    the header muster.replay. With it the letter is marked in the same transaction, so none is written back twice,
    unless --again says so. A replay that begins later ends this one.

    Exit codes: 0 written (also if there is none), 2 unknown cluster or unusable settings, 3 Kafka out of reach.
    """
    now = time.time()
    wanted = _wanted(now, **filters)
    if not (reason or preview):
        raise click.UsageError("Missing option '--reason'.")
    how: dict[str, Any] = {"places": places, "again": again, "to": to, "most": limit}
    with explained():
        actor = Actor(by, reason or "preview", now)
        target = Target.of(read_clusters().chosen(cluster), CONNECTIONS, own_rights=True)
        if preview:
            seen = foresee(wanted, target, **how)
            values = {"preview": seen.lines(None), **seen.values}
            click.echo(json.dumps(values, indent=2) if as_text else "\n".join(seen.lines()))
            return
        run = partial(write_back, wanted, **how)
        command = replace(COMMANDS["replay-deadletters"], run=run, fields=())
        try:
            outcome = carry_out(command, target, actor, {}, VIA)
        except NoLettersError as error:
            found = {"letters": 0, "topics": {}, "left_out": error.left_out}
            outcome = CommandOutcome(("no letter is written back", *error.left_out), found)
    if as_text:
        found = {"topics": outcome.values["topics"], "left_out": outcome.values.get("left_out", ())}
        shown = {"cluster": target.cluster.name, "replayed": outcome.values["letters"], **found}
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo("\n".join(outcome.lines))


def _wanted(
    now: float, topic: str | None, partition: int | None, error: str | None, since: float | None
) -> Wanted:
    partitions = frozenset() if partition is None else frozenset({partition})
    return Wanted(topic, partitions, error or "", 0.0 if since is None else now - since)


def _plain(letter: Letter) -> dict[str, Any]:
    found = letter.record
    return {
        "letter": place_of(letter),
        "written": _when(letter.at),
        "topic": found.said("topic"),
        "partition": _number(found.said("partition"), -1),
        "offset": _number(found.said("offset"), -1),
        "timestamp": _number(found.said("timestamp")) or None,
        "error": found.said("error"),
        "attempts": _number(found.said("attempts")),
        "cluster": found.said("cluster"),
        "consumer": found.said("consumer"),
        "by": found.said("by"),
        "replayed": letter.replayed,
        "key": None if found.key is None else _text(found.key),
        "value": None if found.value is None else _text(found.value),
    }


def _number(text: str, otherwise: int = 0) -> int:
    return int(text) if text.isdecimal() else otherwise


def _text(value: bytes | None) -> str:
    return "-" if value is None else value.decode("utf-8", "backslashreplace")


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
