"""Rounds of the failover benchmark: the same events to Muster's consumers and to the members of Kafka's groups."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.failover_figures import MEMBERS, PATIENCE, Event, Name, flows, measure
from benchmarks.failover_muster import Muster
from benchmarks.failover_peers import Peer
from benchmarks.harness.machine import busy
from benchmarks.harness.report import shown, spread
from devstack.airflow_api import wait_for
from devstack.progress import say
from tests.support.timed_numbers import NumberProducer

QUIET_SECONDS = 5.0
SETTLE = 3.0
"""Seconds that Kafka's groups get after their start; in its first second a member may pause."""
GOLDEN = 0.618
"""Steps of this part of a whole, taken round and round, are spread evenly over it, however many there are."""
_LOOK = 0.05

Contestant = Muster | Peer


@dataclass
class Contest:
    """What is measured on one stack. `events` is what came of it, `loops` the busy loops a core that run now.

    Several contestants go through an event at the same time.
    """

    muster: Muster
    producer: NumberProducer
    events: list[Event] = field(default_factory=list)
    loops: int = 0
    _moment: float = 0.0

    def round(self, number: int, them: Sequence[Contestant]) -> None:
        """Kill, freeze and stop consumer `number` of each of `them`, each time having it back."""
        self._quiet(them)
        killed = self._event(Name.KILL, number, them, [one.kill(number) for one in them])
        joined = self._join(number, them, left=False)
        for one, kill, join in zip(them, killed, joined, strict=True):
            if event := one.replaced(kill, join, number):
                self.events.append(event)
                _tell(event)
        self._quiet(them)
        frozen = self._event(Name.FREEZE, number, them, [one.freeze(number) for one in them])
        for one in them:
            one.resume(number)
        for one, event in zip(them, frozen, strict=True):
            self._all_flow(one)
            one.settle()
            event.heard_until = time.time()
            event.doubled = one.deliveries.refresh().doubled(event.began, event.heard_until)
        self._quiet(them)
        self._event(Name.LEAVE, number, them, [one.leave(number) for one in them])
        self._join(number, them, left=True)

    def roll(self, them: Sequence[Contestant]) -> None:
        events = [self._begin(one, Name.ROLL) for one in them]
        for number in range(1, MEMBERS + 1):
            for wait in [one.restart(number) for one in them]:
                wait()
            for one in them:
                self._all_flow(one)
        for one, event in zip(them, events, strict=True):
            self._end(event, one, None, MEMBERS)
            _tell(event)

    @contextmanager
    def playing(self, peers: Sequence[Peer]) -> Iterator[Sequence[Peer]]:
        """Have the members of these groups run meanwhile."""
        for peer in peers:
            peer.start()
        for peer in peers:
            self._all_flow(peer)
        time.sleep(SETTLE)
        yield peers
        for peer in peers:
            peer.stop()

    def busy_round(self, loops: int, peers: Sequence[Peer]) -> None:
        """Have all go through a round beside `loops` busy loops a core."""
        with busy(loops * (os.cpu_count() or 1)):
            self.loops = loops
            self.round(1, [self.muster])
            with self.playing(peers):
                self.round(1, peers)
        self.loops = 0

    def account(self) -> tuple[int, int]:
        """Count how many records were produced by now, and how many of them Muster lost."""
        produced, deliveries = self.producer.first_since(time.time()), self.muster.deliveries
        wait_for(
            "Muster has read all",
            lambda: all(end >= produced[p] for p, end in deliveries.refresh().reached().items()),
            PATIENCE,
        )
        return sum(produced.values()), deliveries.lost(produced)

    def _event(
        self, name: Name, number: int, them: Sequence[Contestant], acts: Sequence[Callable[[], None]]
    ) -> list[Event]:
        events, pids = [], [one.pid(number) for one in them]
        for one, act in zip(them, acts, strict=True):
            events.append(self._begin(one, name))
            act()
        self._all_end(number, them, events, pids, MEMBERS - 1)
        return events

    def _join(self, number: int, them: Sequence[Contestant], left: bool) -> list[Event]:
        events = []
        for one in them:
            owners = one.deliveries.refresh().owners()
            began = one.join(number, left)
            event = self._begin(one, Name.JOIN)
            event.owners, event.began = owners, began
            events.append(event)
        self._all_end(number, them, events, [None] * len(them), MEMBERS)
        for one in them:
            one.settle()
        return events

    def _all_end(
        self,
        number: int,
        them: Sequence[Contestant],
        events: Sequence[Event],
        without: Sequence[int | None],
        members: int,
    ) -> None:
        """Wait until all flows again with each, and fill in what its event came to as soon as it does."""
        open_ones = list(zip(them, events, without, strict=True))

        def over() -> bool:
            for entry in list(open_ones):
                one, event, pid = entry
                if flows(event, one.deliveries.refresh(), pid, members):
                    self._end(event, one, pid, members)
                    event.parts = one.parts(event, number)
                    _tell(event)
                    open_ones.remove(entry)
            return not open_ones

        def detail() -> str:
            return ", ".join(f"{event.contestant}: {one.deliveries.owners()}" for one, event, _ in open_ones)

        wait_for(f"all flows after {events[0].name}", over, PATIENCE, interval=_LOOK, detail=detail)

    def _quiet(self, them: Sequence[Contestant]) -> None:
        """Watch what flows while nothing happens; then wait until another moment of the coordinator's long poll than
        the times before. Between two of them no process listens to Consul for a second or two, and events must not
        always miss that."""
        for one in them:
            self._all_flow(one)
        events = [self._begin(one, Name.QUIET) for one in them]
        time.sleep(QUIET_SECONDS)
        for one, event in zip(them, events, strict=True):
            self._end(event, one, None, MEMBERS)
        if poll := them[0].long_poll:
            self._moment = (self._moment + GOLDEN * poll) % poll
            time.sleep(self._moment)

    def _begin(self, one: Contestant, name: Name) -> Event:
        now = time.time()
        owners, first = one.deliveries.refresh().owners(), self.producer.first_since(now)
        event = Event(one.name, name, now, owners, first, loops=self.loops)
        self.events.append(event)
        return event

    def _end(self, event: Event, one: Contestant, without: int | None, members: int) -> None:
        self._flow(event, one, without, members)
        event.ended = time.time()
        wait_for(
            f"{event.contestant} flows on after {event.name}",
            lambda: all(of[-1].at > event.ended for of in one.deliveries.refresh().of.values()),
            PATIENCE,
            interval=_LOOK,
        )
        measure(event, one.deliveries)

    def _all_flow(self, one: Contestant) -> None:
        """Wait until what is produced now has reached all members."""
        now = time.time()
        self._flow(Event(one.name, Name.QUIET, now, {}, self.producer.first_since(now)), one, None, MEMBERS)

    def _flow(self, event: Event, one: Contestant, without: int | None, members: int) -> None:
        wait_for(
            f"{event.contestant} flows again after {event.name}",
            lambda: flows(event, one.deliveries.refresh(), without, members),
            PATIENCE,
            interval=_LOOK,
            detail=lambda: f"{one.deliveries.owners()}",
        )


def _tell(event: Event) -> None:
    again = "-" if event.flows is None else f"{event.flows:.2f} s"
    moved, stayed = (spread(pauses.values()) or "none" for pauses in (event.moved, event.stayed))
    say(
        f"{event.contestant}: {event.name}: flows again after {again}; moved {moved}, stayed {stayed}; "
        f"{event.doubled} twice" + (f" ({shown(event.parts)})" if event.parts else "")
    )
