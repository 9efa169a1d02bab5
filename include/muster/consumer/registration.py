"""The consumer's place in Consul: registers it, keeps it registered, and hears what Consul says to it.

- *isolated* (a key, or maintenance mode): everything is closed; it stays registered and takes up again when restored;
- *stop request* for this incarnation: the end in order;
- *replaced*: a newer process has its id, so this one closes and ends.

A process is its generation: a number that only grows, taken by compare-and-set before it first registers, and part of
its registration. Of several processes with one id the one with the highest generation is the consumer. A process that
was replaced announces nothing: it does not register again, does not say that it leaves, and at its end takes only its
own registration away, from its own agent.

A consumer that is to stop says so first (metadata `leaving`), and reads on while the others take over. One that is to
stop before it has registered does not register. One that is still waiting for an older process with its id waits on
before it deregisters: it may have taken the older one's registration, by which the coordinator asks whether that has
closed.

Nothing is taken up before this incarnation is live in Consul, and after isolation, only once ZooKeeper was read
again: until then its partitions may be on their way to another consumer. Live means that its agent has it passing and
that Consul's servers know of it: a process that takes the id afterwards, with any agent, finds it there and waits for
it. One that took the id before has the higher generation, which is read after the servers knew. A process that takes
over an id that is live registers as live itself, so that the id is not taken for gone in between. What it then finds
in ZooKeeper below the epochs that Consul has noted is of a backup, and is not obeyed.

What it asks of Consul while nothing happens does not depend on how many consumers there are
(`muster.edges.consul_wait`). While Consul is out of reach the consumer goes on as it is.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import muster
from muster.consumer import predecessor
from muster.consumer.agent import Agent
from muster.consumer.blocks import TAKING_OVER
from muster.consumer.lifecycle import Beat, Ending
from muster.core.starting import Stage
from muster.core.wire import PROTOCOL
from muster.edges.consul import ConsulCluster, ConsulError, Own, Registration, StopRequest, UnreadableKeyError
from muster.edges.consul_jobs import BY_POISON, read_generation
from muster.edges.consul_members import CLUSTER, GENERATION, LEAVING
from muster.settings.consumer import ConsumerSettings

log = logging.getLogger(__name__)

PROBLEM = "consul"
ISOLATED, JOINING = "isolated", "not live yet"
PREDECESSOR = "predecessor"
STOP_REQUEST = "stop request"
LONGEST_WAIT = 60.0
"""Seconds that one wait for a change takes at most."""
AGENT_LOOK = 5.0
"""Seconds between two questions to the local agent while this consumer is live: within them it notices that its
registration was forgotten, or put into maintenance mode."""
JOINING_LOOK = 0.25
"""The same while it is not live yet, at least; an eighth of the check's interval if that is more."""
RETRY, LONGEST_RETRY = 1.0, 5.0
"""Seconds until Consul is asked again after an error, at first and at most; half of it is left to chance, so that a
thousand consumers do not come back at once."""
OTHERS_LOOK = 2.0
"""Seconds between two looks at all the others, while this consumer leaves."""


class Registrar:
    """Registers the consumer once `open` is called. `run` is the loop, until `leave`.

    `port` is that of the status page. `reached` is called when it has registered, and when it is live, at least once
    each. `ask` asks an older incarnation how it stands, `clock` is in seconds.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        consul: ConsulCluster,
        agent: Agent,
        ending: Ending,
        port: int,
        reached: Callable[[Stage], None] = lambda _: None,
        ask: predecessor.Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._consul = consul
        self._agent = agent
        self._ending = ending
        self._port = port
        self._reached = reached
        self._ask = ask or partial(predecessor.ask, pages=settings.status_pages)
        self._clock = clock
        self._opened = threading.Event()
        self._stopped = threading.Event()
        self._generation = 0
        self._registered = False
        self._known = False
        self._passed = False
        self._live = False
        self._expects = False
        self._anyone_asked = False
        self._others: tuple[float, bool] | None = None
        self._waiting: predecessor.Waiting | None = None
        self._takeover: threading.Thread | None = None
        self._leaving = False
        self._lock = threading.Lock()
        agent.blocks.block(JOINING)

    @property
    def generation(self) -> int:
        """The number of this process among all that had its id, 0 before it first registers."""
        return self._generation

    @property
    def live(self) -> bool:
        """Whether this process was live when it last looked."""
        return self._live

    def open(self) -> None:
        """Let the consumer take partitions from now on."""
        self._opened.set()

    def run(self, beat: Beat) -> None:
        """Register and listen."""
        own: Own | None = None
        pause = RETRY
        joining = max(JOINING_LOOK, self._settings.check_interval / 8)

        def interrupted() -> bool:
            beat()
            to_register = self._may_register() and not self._registered
            return self._stopped.is_set() or to_register or self._asks_elsewhere()

        while not self._stopped.is_set():
            beat()
            try:
                if own is not None:
                    poll = joining if self._registered and not self._live else AGENT_LOOK
                    own = self._consul.catalog.wait_own(own, LONGEST_WAIT, poll, interrupted)
                own = self.look() if own is None or self._asks_elsewhere() else self._heed(own)
                if own is None:
                    self._stopped.wait(joining)
            except ConsulError as error:
                own = None
                self._agent.problems.note(PROBLEM, f"{error}; consuming goes on")
                self._stopped.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  to spread load
                pause = min(LONGEST_RETRY, 2 * pause)
            else:
                self._agent.problems.note(PROBLEM, None)
                pause = RETRY
            if self._waiting is not None and self._takeover is None:
                self._takeover = threading.Thread(
                    target=self._look_until_asked_to_end, name="muster-takeover", daemon=True
                )
                self._takeover.start()

    def announce_leaving(self) -> bool:
        """Say that this consumer is about to leave; returns whether another one is there to take over from it.

        A process that was replaced says nothing. Raises `ConsulError`.
        """
        with self._lock:
            own = self._consul.catalog.own(self._settings.consumer)
            self._heed_newer(own)
            mine = self._mine(own)
            if mine is None or not mine.passing or not self._may_register():
                return False
            self._others = None
            self._leaving = self.others_stay()
            if self._leaving:
                self._register(mine)
            return self._leaving

    def others_stay(self) -> bool:
        """Tell whether another consumer is live that is not about to leave as well, as seen at most `OTHERS_LOOK`
        seconds ago. Raises `ConsulError`."""
        now = self._clock()
        if self._others is None or now - self._others[0] >= OTHERS_LOOK:
            self._others = now, self._consul.catalog.others_stay(self._settings.consumer)
        return self._others[1]

    def leave(self, poison: str = "") -> None:
        """Deregister, unless the registration is another incarnation's. Nothing is registered any more afterwards.

        A request to stop stays: it tells whatever watches this consumer that its end was wanted. One that is meant
        for any incarnation is from now on meant for this one, unless a newer one has to hear it. With `poison`, the
        record that this process ends for, it leaves such a request itself. Raises `ConsulError`.
        """
        with self._lock:
            self._stopped.set()
            consumer, incarnation = self._settings.consumer, self._settings.incarnation
            if self._anyone_asked and not self._ending.replaced:
                request = self._stop_request(self._consul.catalog.own(consumer))
                if request is not None:
                    self._consul.jobs.request_stop(consumer, incarnation, request.by, request.why, request.at)
            if poison and not self._ending.replaced:
                self._consul.jobs.request_stop(consumer, incarnation, BY_POISON, poison)
            self._consul.catalog.deregister(consumer, incarnation)

    def look(self) -> Own | None:
        """Read what concerns this consumer and do what follows from it: hear, register if need be.

        Returns what was read, None if it has to be read again. Raises `ConsulError`.
        """
        own = self._heed(self._consul.catalog.own(self._settings.consumer))
        if self._asks_elsewhere():
            self._look_elsewhere()
        return own

    def _heed(self, own: Own) -> Own | None:
        """Do what follows from what was read; returns it, or None if there is more to read: this has registered, or
        Consul's servers do not know of it yet."""
        request = self._stop_request(own)
        if request is not None and request.incarnation in {"", self._settings.incarnation}:
            self._anyone_asked = self._anyone_asked or not request.incarnation
            self._ending.ask(f"{request.by} asked for it: {request.why}")
        with self._lock:
            if not self._known and self._passes(own):
                self._known = self._consul.catalog.knows(self._settings.consumer, self._settings.incarnation)
                own = self._consul.catalog.own(self._settings.consumer)  # the generation as it is since then
            self._isolate(own.isolated)
            self._heed_newer(own)
            if not self._may_register():
                return own
            self._keep_generation(own)
            mine, passes = self._mine(own), self._passes(own)
            self._live = passes and self._known
            if mine is not None:
                self._passed = passes
            if not self._live and self._agent.wait_closed(0.0):
                # Restored, or done with waiting, it may not take up anything before it is live again. What it
                # holds it goes on with.
                self._agent.blocks.block(JOINING)
                self._expects = False
            if mine is None:
                self._register(own.registration)
                self._known = False
                return None
            self._registered = True
            if self._live and not self._expects:
                self._reached(Stage.LIVE)
                epochs = self._consul.overrides.epochs()
                with self._agent.shared.change() as ownership:
                    ownership.expect(epochs)
                self._expects = True
            if self._live:
                self._agent.blocks.unblock_once_read(JOINING)
            if self._waiting is None and predecessor.KEY in mine.meta:
                self._register(mine)
                return None
            return None if passes and not self._known else own

    def _mine(self, own: Own) -> Registration | None:
        """Return this process's registration with the local agent, None without one."""
        there = own.registration
        return there if there is not None and there.incarnation == self._settings.incarnation else None

    def _passes(self, own: Own) -> bool:
        """Tell whether the local agent has this process, and its check passes."""
        return (mine := self._mine(own)) is not None and mine.passing

    def _heed_newer(self, own: Own) -> None:
        """See whether a newer process has this id: by its number, or by its registration with the same agent."""
        if not self._generation:
            return
        newest = read_generation(own.generation.key)
        there = own.registration
        if there is not None and there.generation > self._generation:
            self._replaced_by(there)
        elif newest.number > self._generation:
            self._replaced(f"incarnation {newest.incarnation} (generation {newest.number})")

    def _keep_generation(self, own: Own) -> None:
        """Write this process's number again if its key was deleted or set back: the next one must get a higher."""
        key = own.generation.key
        if self._generation > read_generation(key).number:
            settings = self._settings
            self._consul.jobs.keep_generation(settings.consumer, settings.incarnation, self._generation, key)

    def _asks_elsewhere(self) -> bool:
        return self._live and not self._ending.replaced and self._agent.blocks.asks_discovery

    def _may_register(self) -> bool:
        wanted = not self._ending.replaced and (self._registered or not self._ending.asked)
        return wanted and self._opened.is_set() and not self._stopped.is_set()

    def _stop_request(self, own: Own) -> StopRequest | None:
        """Read what this consumer was asked. A malformed key must not keep it from registering, or from isolation."""
        try:
            request = self._consul.jobs.read_stop(self._settings.consumer, own.stop.key)
        except UnreadableKeyError as error:
            self._agent.problems.note(STOP_REQUEST, str(error))
            return None
        self._agent.problems.note(STOP_REQUEST, None)
        return request

    def look_at_predecessors(self) -> bool:
        """Ask those that had this id before; returns whether none has to be waited for now. Once this process is live
        as well, that is so for good."""
        waiting = self._waiting
        if waiting is None:
            return True
        older = waiting.look(self._ask, self._clock())
        names = ", ".join(each.incarnation for each in older)
        self._agent.problems.note(PREDECESSOR, f"waiting for incarnation {names} to close" if names else None)
        if not older and self._live:
            self._waiting = None
            self._agent.blocks.unblock_once_read(TAKING_OVER)
        return not older

    def wait_for_predecessors(self, timeout: float) -> bool:
        """Wait until none of them has to be waited for; returns whether that was so within `timeout` seconds."""
        deadline = self._clock() + timeout
        with self._lock:
            pass  # what is being registered now has to be waited for as well
        while not (over := self.look_at_predecessors()) and self._clock() < deadline:
            time.sleep(predecessor.POLL)
        return over

    def _look_until_asked_to_end(self) -> None:
        while not self._ending.asked and self._waiting is not None:
            self.look_at_predecessors()
            time.sleep(predecessor.POLL)

    def _isolate(self, isolated: bool) -> None:
        if isolated:
            self._agent.blocks.block(ISOLATED)
        else:
            self._agent.blocks.unblock_once_read(ISOLATED)

    def _register(self, there: Registration | None) -> None:
        """Register; `there` is what the local agent has under this id now."""
        settings = self._settings
        # A consumer that was live, and that its agent has forgotten, is not to seem gone until the next check; but
        # one that Consul has reaped, because its check failed for so long, is not to seem live.
        passing = there.passing if there is not None else self._passed
        if not self._registered:
            passing = self._take_over(there)
        elif there is None:
            log.warning("Consul has forgotten this consumer; registering again")
        host = f"[{settings.advertise}]" if ":" in settings.advertise else settings.advertise
        self._consul.catalog.register(
            settings.consumer,
            settings.advertise,
            self._port,
            {
                **settings.metadata,
                **predecessor.to_meta(self._waiting.older if self._waiting is not None else ()),
                **({LEAVING: "true"} if self._leaving else {}),
                CLUSTER: settings.cluster,
                "incarnation": settings.incarnation,
                GENERATION: str(self._generation),
                "pid": str(os.getpid()),
                "host": socket.gethostname(),
                "version": muster.__version__,
                "protocol": str(PROTOCOL),
            },
            f"{settings.status_pages.scheme}://{host}:{self._port}/health",
            settings.check_interval,
            settings.deregister_after,
            passing=passing,
        )
        if not self._registered:
            log.info(
                "registered as %s of service %s, generation %d",
                settings.consumer,
                settings.consul_service,
                self._generation,
            )
            self._reached(Stage.REGISTERED)
        self._registered = True

    def _take_over(self, there: Registration | None) -> bool:
        """Take a generation, and wait for every other process that is registered under this id, with any agent.

        Returns whether the id is live now.
        """
        consumer, incarnation = self._settings.consumer, self._settings.incarnation
        self._generation = self._generation or self._consul.jobs.take_generation(consumer, incarnation)
        found = self._consul.catalog.registered_as(consumer)  # after the number: see the module
        known = [] if found is None else [found, *found.older]
        if there is not None and there.incarnation not in {other.incarnation for other in known}:
            known.insert(0, there)  # the servers have not heard of it yet
        others = [other for other in known if other.incarnation != incarnation]
        highest = max((other.generation for other in others), default=0)
        if self._generation <= highest:
            self._generation = self._consul.jobs.take_generation(consumer, incarnation, highest)
        if others:
            self._wait_for(others)
        return max(known, key=lambda other: other.generation).passing if known else False

    def _wait_for(self, others: Sequence[Registration]) -> None:
        self._agent.blocks.block(TAKING_OVER)
        incarnation = self._settings.incarnation
        older: dict[str, predecessor.Predecessor] = {}
        for other in others:
            log.info("incarnation %s is registered as %s; replacing it", other.incarnation, other.id)
            older |= {str(found): found for found in predecessor.predecessors(other, incarnation)}
        self._waiting = predecessor.Waiting(tuple(older.values()), self._clock())

    def _look_elsewhere(self) -> None:
        """See whether Consul's servers have this process as the newest of its id."""
        asked = self._agent.clock()
        known = self._consul.catalog.registered_as(self._settings.consumer)
        if known is not None and known.generation > self._generation:
            self._replaced_by(known)
        else:
            self._agent.blocks.is_registered(asked)

    def _replaced_by(self, newer: Registration) -> None:
        where = newer.meta.get("host") or newer.address
        self._replaced(f"incarnation {newer.incarnation} (generation {newer.generation}) on {where}")

    def _replaced(self, newer: str) -> None:
        self._ending.ask(f"{newer} has replaced it", replaced=True)
