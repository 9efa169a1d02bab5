"""The consumer's place in Consul: registers it, keeps it registered, and hears what Consul says to it.

- *isolated* (a key, or maintenance mode): everything is closed; it stays registered and takes up again when restored;
- *stop request* for this incarnation: the end in order;
- *another incarnation* under its id: the newer registration wins, so this process closes and leaves, without
  deregistering the newer one.

A consumer that is to stop says so first (metadata `leaving`), and reads on while the others take over.

Nothing is taken up before this incarnation is live in Consul, and after isolation, only once ZooKeeper was read anew:
until then its partitions may be on their way to somebody else. Whoever takes over an id that is live registers as
live itself, so that the id is not taken for gone in between.

While Consul is out of reach the consumer goes on as it is.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import muster
from muster.consumer import predecessor
from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Ending
from muster.consumer.loop import Beat
from muster.edges.consul import ConsulError, Discovery, Registration, StopRequest, WaitIndex
from muster.edges.consul_keys import UnreadableKeyError
from muster.edges.consul_members import LEAVING
from muster.settings.consumer import ConsumerSettings

log = logging.getLogger(__name__)

PROBLEM = "consul"
ISOLATED, TAKING_OVER, JOINING = "isolated", "taking over", "not live yet"
PREDECESSOR = "predecessor"
STOP_REQUEST = "stop request"
LONGEST_WAIT = 5.0
"""Seconds after which Consul is asked again though nothing seems to have changed."""
RETRY = 1.0
ELSEWHERE = 10.0
"""Seconds for which Consul's servers must name another incarnation, registered with another agent, until it is
believed to be the newer one: our own registration takes a moment to get there."""
DEREGISTER_AFTER = 3600.0
"""Seconds for which the check must fail until Consul forgets a consumer that died without a word."""


class Registrar:
    """Registers the consumer once `open` is called. `run` is the loop, until `leave`.

    `port` is that of the status page, `ask` asks an older incarnation how it stands, `clock` is in seconds.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        discovery: Discovery,
        agent: Agent,
        ending: Ending,
        port: int,
        ask: predecessor.Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._discovery = discovery
        self._agent = agent
        self._ending = ending
        self._port = port
        self._ask = ask or partial(predecessor.ask, token=settings.status_token)
        self._clock = clock
        self._opened = threading.Event()
        self._stopped = threading.Event()
        self._registered = False
        self._anyone_asked = False
        self._elsewhere_since: float | None = None
        self._waiting: predecessor.Waiting | None = None
        self._takeover: threading.Thread | None = None
        self._leaving = False
        self._lock = threading.Lock()
        agent.bar(JOINING)

    def open(self) -> None:
        """From now on the consumer can take partitions."""
        self._opened.set()

    def run(self, beat: Beat) -> None:
        """Register and listen."""
        index = WaitIndex()
        while not self._stopped.is_set():
            beat()
            try:
                index = self._discovery.wait(index, LONGEST_WAIT if self._registered else RETRY / 2)
                self.look()
            except ConsulError as error:
                self._agent.problem(PROBLEM, f"{error}; consuming goes on")
                self._stopped.wait(RETRY)
            else:
                self._agent.problem(PROBLEM, None)
            if self._waiting is not None and self._takeover is None:
                self._takeover = threading.Thread(
                    target=self._wait_for_predecessors, name="muster-takeover", daemon=True
                )
                self._takeover.start()

    def announce_leaving(self) -> bool:
        """Say that this consumer is about to leave; returns whether somebody is there to take over from it.

        Raises `ConsulError`.
        """
        consumer, incarnation = self._settings.consumer, self._settings.incarnation
        with self._lock:
            own = self._discovery.own_registration(consumer) if self._registered else None
            if self._stopped.is_set() or own is None or own.incarnation != incarnation or not own.passing:
                return False
            if not self.others_stay():
                return False
            self._leaving = True
            self._register(own)
            return True

    def others_stay(self) -> bool:
        """Whether another consumer is live that is not about to leave as well. Raises `ConsulError`."""
        membership = self._discovery.members().membership
        there = () if membership is None else membership.live.values()
        return any(other.id != self._settings.consumer and not other.leaving for other in there)

    def leave(self) -> None:
        """Deregister, unless the registration is another incarnation's. Nothing is registered any more afterwards.

        A request to stop stays: it is what tells whoever watches this consumer that somebody wanted it to end. One
        that is meant for any incarnation is from now on meant for this one. Raises `ConsulError`.
        """
        with self._lock:
            self._stopped.set()
            consumer, incarnation = self._settings.consumer, self._settings.incarnation
            if self._anyone_asked and (request := self._stop_request()) is not None:
                self._discovery.request_stop(consumer, incarnation, request.by, request.why, request.at)
            self._discovery.deregister(consumer, incarnation)

    def look(self) -> None:
        """One round of the loop: hear what Consul says, register if need be. Raises `ConsulError`."""
        consumer, incarnation = self._settings.consumer, self._settings.incarnation
        request = self._stop_request()
        if request is not None and request.incarnation in {"", incarnation}:
            self._anyone_asked = self._anyone_asked or not request.incarnation
            self._ending.ask(f"{request.by} asked for it: {request.why}")
        isolated = consumer in self._discovery.isolated()
        with self._lock:
            if self._stopped.is_set() or not self._opened.is_set():
                self._isolate(isolated)
                return
            own = self._discovery.own_registration(consumer)
            self._isolate(isolated or (own is not None and own.maintenance))
            mine = own if own is not None and own.incarnation == incarnation else None
            if (mine is None or not mine.passing) and self._agent.wait_closed(0.0):
                # Restored, or done with waiting, it may not take up anything before it is live again. Who holds
                # something goes on with it.
                self._agent.bar(JOINING)
            if mine is not None:
                self._registered = True
                if mine.passing:
                    self._agent.lift_once_read(JOINING)
                    self._look_elsewhere()
                if self._waiting is None and predecessor.KEY in mine.meta:
                    self._register(mine)
            elif own is not None and self._registered:
                self._replaced_by(own)
            else:
                self._register(own)

    def _stop_request(self) -> StopRequest | None:
        """What this consumer was asked. Rubbish in its key must not keep it from registering, or from isolation."""
        try:
            request = self._discovery.stop_request(self._settings.consumer)
        except UnreadableKeyError as error:
            self._agent.problem(STOP_REQUEST, str(error))
            return None
        self._agent.problem(STOP_REQUEST, None)
        return request

    def look_at_predecessors(self) -> bool:
        """Ask those that had this id before; returns whether nobody has to be waited for (any more)."""
        waiting = self._waiting
        if waiting is None:
            return True
        over = waiting.look(self._ask, self._clock())
        names = ", ".join(older.incarnation for older in waiting.older)
        self._agent.problem(PREDECESSOR, f"waiting for incarnation {names} to close" if names else None)
        if over:
            self._waiting = None
            self._agent.lift_once_read(TAKING_OVER)
        return over

    def _wait_for_predecessors(self) -> None:
        while not self._ending.asked and not self.look_at_predecessors():
            time.sleep(predecessor.POLL)

    def _isolate(self, isolated: bool) -> None:
        if isolated:
            self._agent.bar(ISOLATED)
        else:
            self._agent.lift_once_read(ISOLATED)

    def _register(self, known: Registration | None) -> None:
        settings = self._settings
        if not self._registered:
            known = known or self._discovery.members().registered.get(settings.consumer)
            if known is not None and known.incarnation != settings.incarnation:
                self._take_over(known)
        elif known is None:
            log.warning("Consul has forgotten this consumer; registering again")
        host = f"[{settings.advertise}]" if ":" in settings.advertise else settings.advertise
        self._discovery.register(
            settings.consumer,
            settings.advertise,
            self._port,
            {
                **settings.metadata,
                **predecessor.to_meta(self._waiting.older if self._waiting is not None else ()),
                **({LEAVING: "true"} if self._leaving else {}),
                "incarnation": settings.incarnation,
                "pid": str(os.getpid()),
                "host": socket.gethostname(),
                "version": muster.__version__,
            },
            f"http://{host}:{self._port}/health",
            settings.check_interval,
            DEREGISTER_AFTER,
            passing=known is not None and known.passing,
        )
        if not self._registered:
            log.info("registered as %s of service %s", settings.consumer, settings.consul_service)
        self._registered = True

    def _take_over(self, known: Registration) -> None:
        self._agent.bar(TAKING_OVER, mute=True)
        log.info("incarnation %s is registered as %s; replacing it", known.incarnation, known.id)
        older = predecessor.olders(known, self._settings.incarnation)
        self._waiting = predecessor.Waiting(older, self._clock())

    def _look_elsewhere(self) -> None:
        """See whether Consul's servers know a newer incarnation, registered with another agent."""
        asked = self._agent.clock()
        known = self._discovery.members().registered.get(self._settings.consumer)
        if known is None or known.incarnation in {None, self._settings.incarnation}:
            self._elsewhere_since = None
            self._agent.is_registered(asked)
            return
        now = self._clock()
        self._elsewhere_since = self._elsewhere_since or now
        if now - self._elsewhere_since > ELSEWHERE:
            self._replaced_by(known)

    def _replaced_by(self, newer: Registration) -> None:
        where = newer.meta.get("host") or newer.address
        self._ending.ask(f"incarnation {newer.incarnation} on {where} has replaced it", replaced=True)
