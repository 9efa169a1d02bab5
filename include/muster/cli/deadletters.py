"""`muster deadletters`: what lies in a cluster's dead-letter topic; `muster deadletters replay` writes it back."""

from __future__ import annotations

import getpass
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

import click

from muster.cli.errors import explained
from muster.cli.history import seconds
from muster.cli.tables import console, table
from muster.commands.audit import record
from muster.commands.command import Actor
from muster.commands.target import Target
from muster.edges.dead_letters import Letter, Replay, read_letters
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters
from muster.settings.connection_lookup import CONNECTIONS
from muster.settings.connections import KafkaSettings

AT_ONCE = 200
"""Letters that are written back in one transaction."""
SHOWN_VALUE = 60
"""Characters of a value in the table."""
VIA = "command line"

Function = TypeVar("Function", bound=Callable[..., Any])

_FILTERS = (
    click.option("--cluster", help="As in the settings; the only one, unless there are several."),
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


@dataclass(frozen=True)
class _Filter:
    """Which letters are meant."""

    topic: str | None
    partition: int | None
    error: str | None
    since: float | None

    def takes(self, letter: Letter, now: float) -> bool:
        said = letter.record.said
        return (
            self.topic in {None, said("topic")}
            and (self.partition is None or str(self.partition) == said("partition"))
            and (self.error is None or self.error in said("error"))
            and (self.since is None or letter.at >= now - self.since)
        )


class _ListOrReplay(click.Group):
    """Lists without a further command, so that the options of the list are the command's own."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["list", *args]
        return super().parse_args(context, args)


@click.group(cls=_ListOrReplay)
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
    now, wanted = time.time(), _Filter(**filters)
    with explained():
        settings, kafka = _opened(cluster)
        found = deque(_letters(settings, kafka, wanted, now), maxlen=limit)
    if as_text:
        topic = settings.dead_letter_topic
        click.echo(
            json.dumps(
                {"cluster": cluster, "topic": topic, "letters": [_plain(one) for one in found]}, indent=2
            )
        )
        return
    out = console()
    if found:
        rows = table("letter", "written", "record", "#attempts", "replayed", "error", "value")
        for one in found:
            said = one.record.said
            record_ = f"{said('topic')}/{said('partition')}/{said('offset')}"
            place = f"{one.record.partition}/{one.record.offset}"
            rows.add_row(
                *(place, _when(one.at), record_, said("attempts"), "yes" if one.replayed else "no"),
                *(said("error"), _text(one.record.value)[:SHOWN_VALUE]),
            )
        out.print(rows)
        out.print()
    out.print(f"deadletters: cluster {cluster}, topic {settings.dead_letter_topic}, {len(found)} letter(s)")


@deadletters.command()
@_filtered
@click.option(
    "--letter", "places", multiple=True, help="Only this one, PARTITION/OFFSET as listed. Repeatable."
)
@click.option("--to", help="Write to this topic instead, by the records' keys.")
@click.option("--again", is_flag=True, help="Also those that were written back before.")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many, the oldest."
)
@click.option("--reason", required=True, help="Reason, recorded in the audit history.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decided it.")
def replay(
    cluster: str,
    places: tuple[str, ...],
    to: str | None,
    again: bool,
    limit: int,
    reason: str,
    by: str,
    as_text: bool,
    **filters: Any,
) -> None:
    """Write dead letters back, oldest first: each to the topic and partition that it came from.

    A record that is written back has the header muster.replay. With it the letter is marked in the same transaction,
    so none is written back twice, unless --again says so. A replay that begins later ends this one.

    Exit codes: 0 written (also if there is none), 2 unknown cluster or unusable settings, 3 Kafka out of reach.
    """
    now, wanted = time.time(), _Filter(**filters)
    with explained():
        actor = Actor(by, reason, now)
        settings, kafka = _opened(cluster)
        target = Target.of(settings, CONNECTIONS)
        writer = Replay(kafka, cluster)
        meant = (
            one
            for one in _letters(settings, kafka, wanted, now)
            if (again or not one.replayed)
            and (not places or f"{one.record.partition}/{one.record.offset}" in places)
        )
        written: dict[str, int] = {}
        missing: tuple[str, ...] = ()
        try:
            for some in _batched(islice(meant, limit)):
                writer.write(some, to)
                for one in some:
                    topic = to or one.record.said("topic")
                    written[topic] = written.get(topic, 0) + 1
        finally:
            if written:
                values = {"topic": ", ".join(sorted(written)), "letters": sum(written.values())}
                missing = record(target, actor, "replay-deadletters", values, VIA)
    count = sum(written.values())
    if as_text:
        click.echo(json.dumps({"cluster": cluster, "replayed": count, "topics": written}, indent=2))
        return
    for topic, number in sorted(written.items()):
        click.echo(f"{number} record(s) written to topic {topic}")
    click.echo("\n".join([f"deadletters: cluster {cluster}, {count} letter(s) written back", *missing]))


def _opened(cluster: str) -> tuple[ClusterSettings, KafkaSettings]:
    settings = load_clusters().chosen(cluster)
    return settings, CONNECTIONS.kafka(settings.kafka)


def _letters(
    settings: ClusterSettings, kafka: KafkaSettings, wanted: _Filter, now: float
) -> Iterator[Letter]:
    found = read_letters(kafka, settings.dead_letter_topic, settings.group_id)
    return (one for one in found if wanted.takes(one, now))


def _batched(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    rest = iter(letters)
    while some := list(islice(rest, AT_ONCE)):
        yield some


def _plain(letter: Letter) -> dict[str, Any]:
    found = letter.record
    return {
        "letter": f"{found.partition}/{found.offset}",
        "written": _when(letter.at),
        "topic": found.said("topic"),
        "partition": int(found.said("partition") or -1),
        "offset": int(found.said("offset") or -1),
        "timestamp": int(found.said("timestamp") or 0) or None,
        "error": found.said("error"),
        "attempts": int(found.said("attempts") or 0),
        "consumer": found.said("consumer"),
        "by": found.said("by"),
        "replayed": letter.replayed,
        "key": None if found.key is None else _text(found.key),
        "value": None if found.value is None else _text(found.value),
    }


def _text(value: bytes | None) -> str:
    return "-" if value is None else value.decode("utf-8", "backslashreplace")


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
