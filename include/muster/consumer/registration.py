"""The consumer's place in Consul: registers it, keeps it registered, and hears what Consul says to it.

- *isolated* (a key, or maintenance mode): everything is closed; it stays registered and takes up again when restored;
- *stop request* for this incarnation: the end in order;
- *another incarnation* under its id: the newer registration wins, so this process closes and leaves, without
  deregistering the newer one.

While Consul is out of reach the consumer goes on as it is.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

import muster
from muster.consumer import predecessor
from muster.consumer.agent import Agent
from muster.consumer.lifecycle import Ending
from muster.consumer.loop import Beat
from muster.core.refusals import Fact
from muster.edges.consul import ConsulError, Discovery, Registration, WaitIndex
from muster.settings.consumer import ConsumerSettings

log = logging.getLogger(__name__)

PROBLEM = "consul"
ISOLATED, TAKING_OVER = "isolated", "taking over"
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

    `port` is that of the status page.
    """

    def __init__(
        self, settings: ConsumerSettings, discovery: Discovery, agent: Agent, ending: Ending, port: int
    ) -> None:
        self._settings = settings
        self._discovery = discovery
        self._agent = agent
        self._ending = ending
        self._port = port
        self._opened = threading.Event()
        self._stopped = threading.Event()
        self._registered = False
        self._anyone_asked = False
        self._elsewhere_since: float | None = None
        self._lock = threading.Lock()

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
                self._look()
            except ConsulError as error:
                self._agent.problem(PROBLEM, f"{error}; consuming goes on")
                self._stopped.wait(RETRY)
            else:
                self._agent.problem(PROBLEM, None)

    def leave(self) -> None:
        """Deregister, unless the registration is another incarnation's, and clear the request to stop.

        Nothing is registered any more afterwards. Raises `ConsulError`.
        """
        with self._lock:
            self._stopped.set()
            consumer, incarnation = self._settings.consumer, self._settings.incarnation
            self._discovery.deregister(consumer, incarnation)
            self._discovery.clear_stop(consumer, incarnation)
            if self._anyone_asked:
                self._discovery.clear_stop(consumer, "")

    def _look(self) -> None:
        consumer, incarnation = self._settings.consumer, self._settings.incarnation
        request = self._discovery.stop_request(consumer)
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
            if own is None or own.incarnation != incarnation:
                if self._registered and own is not None:
                    self._replaced_by(own)
                    return
                self._register(own)
            elif own.passing:
                self._look_elsewhere()

    def _isolate(self, isolated: bool) -> None:
        if isolated:
            self._agent.bar(ISOLATED)
        else:
            self._agent.lift(ISOLATED)

    def _register(self, older: Registration | None) -> None:
        if not self._registered:
            older = older or self._discovery.members().registered.get(self._settings.consumer)
            if older is not None and older.incarnation != self._settings.incarnation:
                self._take_over(older)
        else:
            log.warning("Consul has forgotten this consumer; registering again")
        settings = self._settings
        host = f"[{settings.advertise}]" if ":" in settings.advertise else settings.advertise
        self._discovery.register(
            settings.consumer,
            settings.advertise,
            self._port,
            {
                **settings.metadata,
                "incarnation": settings.incarnation,
                "pid": str(os.getpid()),
                "host": socket.gethostname(),
                "version": muster.__version__,
            },
            f"http://{host}:{self._port}/health",
            settings.check_interval,
            DEREGISTER_AFTER,
        )
        if not self._registered:
            log.info("registered as %s of service %s", settings.consumer, settings.consul_service)
        self._registered = True

    def _take_over(self, older: Registration) -> None:
        self._agent.bar(TAKING_OVER)
        log.info("incarnation %s is registered as %s; replacing it", older.incarnation, older.id)

        def wait() -> None:
            why = predecessor.wait_for(
                older,
                self._settings.graceful_timeout,
                lambda: self._ending.asked,
                self._settings.status_token,
            )
            log.info("incarnation %s: %s", older.incarnation, why)
            self._agent.lift(TAKING_OVER)

        threading.Thread(target=wait, name="muster-takeover", daemon=True).start()

    def _look_elsewhere(self) -> None:
        """See whether Consul's servers know a newer incarnation, registered with another agent."""
        asked = time.monotonic()
        known = self._discovery.members().registered.get(self._settings.consumer)
        if known is None or known.incarnation in {None, self._settings.incarnation}:
            self._elsewhere_since = None
            self._agent.confirm(Fact.REGISTERED, asked)
            return
        now = time.monotonic()
        self._elsewhere_since = self._elsewhere_since or now
        if now - self._elsewhere_since > ELSEWHERE:
            self._replaced_by(known)

    def _replaced_by(self, newer: Registration) -> None:
        where = newer.meta.get("host") or newer.address
        self._ending.ask(f"incarnation {newer.incarnation} on {where} has replaced it", replaced=True)
