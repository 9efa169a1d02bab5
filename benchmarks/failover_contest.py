"""Rounds of the failover benchmark: the same events to Muster's consumers and to the members of Kafka's groups."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.busy_loops import busy
from benchmarks.failover_breakdown import breakdown, replacement
from benchmarks.failover_deliveries import Deliveries
from benchmarks.failover_figures import FREEZE, JOIN, KILL, LEAVE, QUIET, REPLACE, ROLL, Event, flows, measure
from benchmarks.failover_muster import CONSUMERS, NAME, Muster
from benchmarks.failover_peers import MEMBERS, Peer
from devstack.airflow_api import wait_for
from devstack.progress import say
from tests.support.timed_numbers import NumberProducer

QUIET_SECONDS = 5.0
SETTLE = 3.0
"""Seconds that Kafka's groups get after their start; in its first second a member may pause."""
GOLDEN = 0.618
"""Steps of this part of a whole, taken round and round, are spread evenly over it, however many there are."""
_LOOK = 0.05
_PATIENCE = 420.0


@dataclass
class Contest:
    """What is measured on one stack. `events` is what came of it, `loops` the busy loops a core that run now."""

    muster: Muster
    producer: NumberProducer
    events: list[Event] = field(default_factory=list)
    loops: int = 0
    _moment: float = 0.0

    # -- Muster

    def muster_round(self, number: int) -> None:
        """Kill, freeze and stop consumer `number`, each time having it back."""
        muster = self.muster
        self._muster_quiet()

        kill = muster.kill(number)
        killed = self._muster_event(KILL, number, kill, CONSUMERS - 1)
        self._muster_replaced(number, killed, self._muster_join(number))

        self._muster_quiet()
        freeze, resume = muster.freeze(number)
        event = self._muster_event(FREEZE, number, freeze, CONSUMERS - 1)
        resume()
        self._all_flow(muster.deliveries, CONSUMERS)
        muster.wait("all is even", muster.even)
        event.heard_until = time.time()
        event.doubled = muster.deliveries.refresh().doubled(event.began, event.heard_until)

        self._muster_quiet()
        self._muster_event(LEAVE, number, lambda: muster.leave(number), CONSUMERS - 1)
        muster.wait("the consumer is gone", lambda: not muster.registered(number))
        muster.restart(number)
        self._muster_join(number)

    def muster_roll(self) -> None:
        """Restart all consumers, one after the other."""
        muster = self.muster
        event = self._begin(NAME, ROLL, muster.deliveries)
        for number in range(1, CONSUMERS + 1):
            pid = muster.pid(number)
            muster.restart(number)
            muster.wait("it is back", partial(muster.back, number, pid))
            self._all_flow(muster.deliveries, CONSUMERS)
        self._end(event, muster.deliveries, None, CONSUMERS)
        self._tell(event)

    def _muster_event(self, name: str, number: int, act: Callable[[], Any], members: int) -> Event:
        muster, pid = self.muster, self.muster.pid(number)
        event = self._begin(NAME, name, muster.deliveries)
        act()
        self._end(event, muster.deliveries, pid, members)
        event.parts = breakdown(muster, event, muster.consumer(number))
        self._tell(event)
        return event

    def _muster_quiet(self) -> None:
        """Wait as `_quiet`; then until another moment of the coordinator's long poll than the times before. Between
        two of them no process listens to Consul for a second or two, and events must not always miss that."""
        self._quiet([(NAME, self.muster.deliveries)])
        poll = self.muster.cluster.long_poll_timeout
        self._moment = (self._moment + GOLDEN * poll) % poll
        time.sleep(self._moment)

    def _muster_replaced(self, number: int, killed: Event, joined: Event) -> None:
        event = Event(NAME, REPLACE, killed.began, {}, {}, loops=self.loops)
        event.flows = None if joined.flows is None else joined.began + joined.flows - killed.began
        event.parts = replacement(self.muster, killed, joined, number)
        self.events.append(event)
        self._tell(event)

    def _muster_join(self, number: int) -> Event:
        muster, since = self.muster, time.time()
        owners = muster.deliveries.refresh().owners()
        muster.wait("the consumer is live", lambda: muster.sightings.there(muster.consumer(number), since))
        event = self._begin(NAME, JOIN, muster.deliveries)
        event.owners = owners
        event.began = muster.sightings.there(muster.consumer(number), since) or event.began
        self._end(event, muster.deliveries, None, CONSUMERS)
        event.parts = breakdown(muster, event, muster.consumer(number))
        self._tell(event)
        muster.wait("all is even", muster.even)
        return event

    # -- Kafka's groups, all at the same time

    def peer_round(self, number: int, peers: Sequence[Peer]) -> None:
        """Do the same to member `number` of each group in `peers`."""
        self._start_peers(peers)
        self._quiet([(str(peer.kind), peer.deliveries) for peer in peers])
        self._peer_event(KILL, number, peers, Peer.kill)
        self._peer_join(number, peers)
        frozen = self._peer_event(FREEZE, number, peers, Peer.freeze)
        for peer in peers:
            peer.resume(number)
        for peer, event in zip(peers, frozen, strict=True):
            self._all_flow(peer.deliveries, MEMBERS)
            event.heard_until = time.time()
            event.doubled = peer.deliveries.doubled(event.began, event.heard_until)
        self._peer_event(LEAVE, number, peers, Peer.leave)
        self._peer_join(number, peers)
        for peer in peers:
            peer.stop()

    def peer_roll(self, peers: Sequence[Peer]) -> None:
        """Restart all members of each group, one after the other."""
        self._start_peers(peers)
        events = [self._begin(str(peer.kind), ROLL, peer.deliveries) for peer in peers]
        for number in range(1, MEMBERS + 1):
            for peer in peers:
                peer.leave(number)
            for peer in peers:
                wait_for(f"member {number} ends", partial(peer.ended, number), _PATIENCE)
                peer.start(number)
            for peer in peers:
                self._all_flow(peer.deliveries, MEMBERS)
        for peer, event in zip(peers, events, strict=True):
            self._end(event, peer.deliveries, None, MEMBERS)
            self._tell(event)
            peer.stop()

    def _start_peers(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            for number in range(1, MEMBERS + 1):
                peer.start(number)
        for peer in peers:
            self._all_flow(peer.deliveries, MEMBERS)
        time.sleep(SETTLE)

    def _peer_event(
        self, name: str, number: int, peers: Sequence[Peer], act: Callable[[Peer, int], None]
    ) -> list[Event]:
        without: list[int | None] = [peer.pid(number) for peer in peers]
        return self._peers_go(name, number, peers, act, without, MEMBERS - 1)

    def _peer_join(self, number: int, peers: Sequence[Peer]) -> None:
        self._peers_go(JOIN, number, peers, Peer.start, [None] * len(peers), MEMBERS)

    def _peers_go(
        self,
        name: str,
        number: int,
        peers: Sequence[Peer],
        act: Callable[[Peer, int], None],
        without: Sequence[int | None],
        members: int,
    ) -> list[Event]:
        events = []
        for peer in peers:
            events.append(self._begin(str(peer.kind), name, peer.deliveries))
            act(peer, number)
        open_ones = list(zip(peers, events, without, strict=True))
        deadline = time.monotonic() + _PATIENCE
        while open_ones:
            for entry in list(open_ones):
                peer, event, pid = entry
                if flows(event, peer.deliveries.refresh(), pid, members):
                    self._end(event, peer.deliveries, pid, members)
                    self._tell(event)
                    open_ones.remove(entry)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{open_ones[0][1].contestant}: does not flow again after {name}")
            time.sleep(_LOOK)
        return events

    # -- all

    def busy_round(self, loops: int, number: int, peers: Sequence[Peer]) -> None:
        """Have all go through a round beside `loops` busy loops a core."""
        with busy(loops * (os.cpu_count() or 1)):
            self.loops = loops
            self.muster_round(number)
            self.peer_round(number, peers)
        self.loops = 0

    def account(self) -> tuple[int, int]:
        """Count how many records were produced by now, and how many of them Muster lost."""
        produced, deliveries = self.producer.first_since(time.time()), self.muster.deliveries
        wait_for(
            "Muster has read all",
            lambda: all(end >= produced[p] for p, end in deliveries.refresh().reached().items()),
            _PATIENCE,
        )
        return sum(produced.values()), deliveries.lost(produced)

    def _quiet(self, contestants: Collection[tuple[str, Deliveries]]) -> None:
        """Watch what flows while nothing happens."""
        for _, deliveries in contestants:
            self._all_flow(deliveries, CONSUMERS)
        events = [self._begin(name, QUIET, deliveries) for name, deliveries in contestants]
        time.sleep(QUIET_SECONDS)
        for event, (_, deliveries) in zip(events, contestants, strict=True):
            self._end(event, deliveries, None, CONSUMERS)

    def _begin(self, contestant: str, name: str, deliveries: Deliveries) -> Event:
        now = time.time()
        event = Event(
            contestant,
            name,
            now,
            deliveries.refresh().owners(),
            self.producer.first_since(now),
            loops=self.loops,
        )
        self.events.append(event)
        return event

    def _end(self, event: Event, deliveries: Deliveries, without: int | None, members: int) -> None:
        """Wait until all flows again, and fill in what the event came to."""
        wait_for(
            f"{event.contestant} flows again after {event.name}",
            lambda: flows(event, deliveries.refresh(), without, members),
            _PATIENCE,
            interval=_LOOK,
            detail=lambda: f"{deliveries.owners()}",
        )
        event.ended = time.time()
        after = self.producer.first_since(event.ended)
        wait_for(
            f"{event.contestant} flows on after {event.name}",
            lambda: all(of[-1].at > event.ended for of in deliveries.refresh().of.values()),
            _PATIENCE,
            interval=_LOOK,
            detail=lambda: f"{after}",
        )
        measure(event, deliveries)

    def _all_flow(self, deliveries: Deliveries, members: int) -> None:
        """Wait until what is produced now has reached `members`."""
        now = time.time()
        probe = Event("", "", now, {}, self.producer.first_since(now))
        wait_for(
            "all flows",
            lambda: flows(probe, deliveries.refresh(), None, members),
            _PATIENCE,
            interval=_LOOK,
            detail=lambda: f"{deliveries.owners()}",
        )

    @staticmethod
    def _tell(event: Event) -> None:
        again = "-" if event.flows is None else f"{event.flows:.2f} s"
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in event.parts.items())
        say(
            f"{event.contestant}: {event.name}: flows again after {again}; moved "
            f"{_span(event.moved.values())}, stayed {_span(event.stayed.values())}; {event.doubled} twice"
            + (f" ({parts})" if parts else "")
        )


def _span(seconds: Collection[float]) -> str:
    return f"{min(seconds):.2f} to {max(seconds):.2f} s" if seconds else "none"
