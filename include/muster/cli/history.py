"""`muster history`: the rebalances and commands of a cluster, newest first, from its history in ZooKeeper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from muster.cli.errors import explained, read_clusters
from muster.cli.options import CLUSTER
from muster.cli.tables import console
from muster.cluster.sources import Opener, Sources
from muster.core.history import CommandEntry, Record, Unreadable
from muster.core.model import Move
from muster.core.moments import to_iso
from muster.core.partition_list import format_partitions
from muster.core.rebalances import Event, Quiet, Rebalance, events
from muster.settings.cluster_settings import Duration

PAGE = 200
"""Entries that are read at once."""
BEFORE = 3600.0
"""Seconds before `--since` from which entries are read, for rebalances that began before it and ended after it."""

_DURATION: TypeAdapter[float] = TypeAdapter(Duration)


def seconds(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Read an option's duration in seconds."""
    if text is None:
        return None
    try:
        return _DURATION.validate_python(text)
    except ValidationError as error:
        raise click.BadParameter(f"{text!r} is not a duration such as 30m, 2h or 7200 (seconds)") from error


@click.command()
@CLUSTER
@click.option("--since", callback=seconds, help="Only what happened in the last 30m, 2h, ...")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many events."
)
@click.option("--topic", help="Only this topic (commands that name no topic are shown, too).")
@click.option("--json", "as_text", is_flag=True, help="Print JSON.")
@click.pass_obj
def history(
    opener: Opener, cluster: str | None, since: float | None, limit: int, topic: str | None, as_text: bool
) -> None:
    """Show what was rebalanced, when, how long each phase took, what moved and why; and who gave which command.

    Exit codes: 0 shown (also if there is nothing), 2 unknown cluster or unusable settings, 3 ZooKeeper out of reach.
    """
    now = time.time()
    start = 0.0 if since is None else now - since
    with explained():
        settings = read_clusters().chosen(cluster)
        with opener(settings) as sources:
            found = _read(sources, now, start, limit, topic)
    if as_text:
        click.echo(
            json.dumps({"cluster": settings.name, "events": [_plain(event) for event in found]}, indent=2)
        )
        return
    out = console()
    for event in found:
        for line in _lines(event):
            out.print(line, soft_wrap=True)
    out.print(
        f"history: cluster {settings.name}, {len(found)} event(s)"
        + ("" if found else "; nothing is recorded")
    )


def _read(sources: Sources, now: float, since: float, limit: int, topic: str | None) -> list[Event]:
    """Read pages until there are `limit` events whose beginning is known, or no more."""
    records: list[Record] = []
    before: int | None = None
    while True:
        page = sources.history(limit=PAGE, before=before, since=since - BEFORE if since else 0.0)
        records += page.records
        found = [event for event in events(records, now) if _concerns(event, topic) and _recent(event, since)]
        whole = [event for event in found if not isinstance(event, Rebalance) or event.whole]
        if page.before is None or len(whole) >= limit:
            return (found if page.before is None else whole)[:limit]
        before = page.before


def _concerns(event: Event, topic: str | None) -> bool:
    if topic is None or isinstance(event, Unreadable):
        return True
    if isinstance(event, CommandEntry):
        return bool(event.details.get("topic", topic) == topic)
    return event.topic == topic


def _recent(event: Event, since: float) -> bool:
    if isinstance(event, Rebalance):
        return event.ended is None or event.ended >= since
    return event.at >= since


def _lines(event: Event) -> Iterator[str]:
    if isinstance(event, CommandEntry):
        details = ", ".join(f"{key} {value}" for key, value in sorted(event.details.items()))
        via = f" (via {event.via})" if event.via else ""
        yield f"{_when(event.at)}  command {event.what}  {details}"
        yield f"    by {event.who}: {event.why}{via}"
    elif isinstance(event, Unreadable):
        yield f"{_when(event.at)}  unreadable  {event.problem}"
    elif isinstance(event, Quiet):
        yield f"{_when(event.at)}  topic {event.topic}  stays Stable: {event.reason}"
    else:
        yield from _rebalance(event)


def _rebalance(event: Rebalance) -> Iterator[str]:
    phases = ", ".join(f"{phase.state} {phase.seconds:.1f} s" for phase in event.phases)
    end = f"ended {_when(event.ended)}" if event.ended is not None else "goes on"
    yield (
        f"{_when(event.began)}  topic {event.topic}  {event.moved} partition(s) to move, {end}, "
        f"{event.seconds:.1f} s" + (f" ({phases})" if phases else "")
    )
    for (source, target, why), partitions in _grouped(event.moves).items():
        yield f"    {source or '-'} -> {target or '-'}: {format_partitions(partitions)} ({why})"
    if event.moved > len(event.moves):
        yield f"    ... and {event.moved - len(event.moves)} more, which the history does not list"
    if event.reasons and not event.moves:
        yield f"    {'; '.join(event.reasons)}"
    if event.by:
        yield f"    by {', '.join(event.by)}"


def _grouped(moves: tuple[Move, ...]) -> dict[tuple[str | None, str | None, str], list[int]]:
    groups: dict[tuple[str | None, str | None, str], list[int]] = {}
    for move in moves:
        groups.setdefault((move.source, move.target, move.reason), []).append(move.partition)
    return groups


def _plain(event: Event) -> Mapping[str, Any]:
    if isinstance(event, Rebalance):
        return {
            "kind": "rebalance",
            "topic": event.topic,
            "began": to_iso(event.began),
            "ended": None if event.ended is None else to_iso(event.ended),
            "seconds": round(event.seconds, 3),
            "phases": [{"state": str(phase.state), "seconds": phase.seconds} for phase in event.phases],
            "moved": event.moved,
            "moves": [
                {"partition": m.partition, "from": m.source, "to": m.target, "why": m.reason}
                for m in event.moves
            ],
            "reasons": event.reasons,
            "by": event.by,
            "whole": event.whole,
        }
    if isinstance(event, Quiet):
        return {"kind": "quiet", **asdict(event), "at": to_iso(event.at)}
    plain = asdict(event)
    return {"kind": plain.pop("kind"), **plain, "at": to_iso(event.at)}


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
