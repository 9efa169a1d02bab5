"""How the incident ends: the timeline, the verdict, and the last line for scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from devstack.incident.account import Account
from devstack.progress import Step, say, step


@dataclass
class Timeline:
    """What happened, and when (seconds since the epoch)."""

    events: list[tuple[float, str]] = field(default_factory=list)

    def add(self, what: str) -> None:
        """Note that something happened just now."""
        self.events.append((time.time(), what))

    def say(self, what: str) -> None:
        """Note it, and print it."""
        say(what)
        self.add(what)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Show that something is under way, and note its result; what fails is not noted."""
        with step(name) as progress:
            yield progress
        self.add(f"{name}: {progress.result}")

    def table(self) -> Table:
        """Format all of it, oldest first, in local time."""
        table = Table(title="What happened", title_justify="left")
        table.add_column("at")
        table.add_column("what", overflow="fold")
        for moment, what in self.events:
            table.add_row(f"{datetime.fromtimestamp(moment).astimezone():%H:%M:%S}", escape(what))
        return table


@dataclass(frozen=True)
class Verdict:
    """What came of the incident.

    `poison` is how many records were produced that the handler could not take, `letters` how many went to the
    dead-letter topic, `replayed` how many of those were written back. `others_paused` is in seconds: the longest gap
    between two batches of the partitions beside the poison record's, beyond the longest one before it. `good_judged`
    counts the letters of records that the handler can take, `state_counts_wrong` the keys whose count in the state is
    not that of their records.
    """

    account: Account
    poison: int
    letters: int
    replayed: int
    others_paused: float
    timeline: Timeline
    good_judged: int = 0
    state_counts_wrong: int = 0

    @property
    def good(self) -> bool:
        """Nothing missing, nothing twice, and the poison records, and no other ones, dead-lettered and replayed."""
        return (
            self.account.missing == 0
            and self.account.duplicates == 0
            and self.poison == self.letters == self.replayed
            and self.good_judged == 0
            and self.state_counts_wrong == 0
        )

    def show(self, console: Console) -> None:
        """Print the timeline."""
        console.print()
        console.print(self.timeline.table())

    @property
    def last_line(self) -> str:
        """The line that scripts read."""
        return (
            f"incident: produced={self.account.produced} arrived={self.account.arrived} "
            f"dead_lettered={self.letters} replayed={self.replayed} missing={self.account.missing} "
            f"duplicates={self.account.duplicates} others_paused_ms={self.others_paused * 1000:.0f} "
            f"good_judged={self.good_judged} state_counts_wrong={self.state_counts_wrong}"
        )
