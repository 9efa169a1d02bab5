"""The only ZooKeeper client of the consumer: tells the agent what stands under `assignments/`.

Watches make it quick, reading again every `reread_interval` makes it sure, because watches can get lost. While
ZooKeeper is out of reach nothing changes: the consumer goes on with what it has. A topic with an invalid node
stays as it is, and the status says so.

A server may lag behind. That is no harm to a consumer that is counted on, because nothing is taken from it before it
says so. One that was not (it has just started, or was isolated) reads everything again after a `sync` before it takes
anything up: see `Agent`.

ZooKeeper that was restored from a backup goes back: its transactions have lower numbers than those that are known.
Its servers do not even let a session in that has seen more than they have, so a client that is not connected for
`NEW_SESSION_AFTER` seconds is replaced by one that has seen nothing. What it reads that is older than what is known
is read once more after a `sync`, which tells a restored ZooKeeper from a server that lags; the agent decides what
then counts.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent

from muster.consumer.agent import Agent
from muster.core.wire import WireError, assignment_path, assignments_path, check_topic, parse_assignment
from muster.edges.zookeeper import make_client, stop_client
from muster.edges.zookeeper_session import DENIALS, gave_up, refused
from muster.settings.connections import ZooKeeperSettings

if TYPE_CHECKING:
    from muster.consumer.lifecycle import Beat  # which imports Spark

log = logging.getLogger(__name__)

PROBLEM = "zookeeper"
NEW_SESSION_AFTER = 15.0
"""Seconds without a connection after which a client is replaced. Its session is over by then, or as good as."""
TOPICS_PER_SECOND = 10
"""Reading everything again is spread so that many topics times many consumers do not weigh on ZooKeeper: a thousand
consumers of a thousand topics ask for 10,000 nodes a second."""


class AwayError(Exception):
    """ZooKeeper does not answer now; the message says what was tried."""


class AssignmentWatch:
    """Reads the assignments of `cluster` into `agent`. `run` is the loop, until `stop`."""

    def __init__(
        self, settings: ZooKeeperSettings, cluster: str, agent: Agent, reread_interval: float
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._agent = agent
        self._interval = reread_interval
        self._root = assignments_path(cluster)
        self._lock = threading.Lock()
        self._dirty: set[str] = set()
        self._wake = agent.blocks.wake_reader
        self._stopped = threading.Event()
        self._topics: list[str] = []

    def stop(self) -> None:
        """End the loop."""
        self._stopped.set()
        self._wake.set()

    def run(self, beat: Beat) -> None:
        """Keep the agent informed."""
        client = self._connect()
        try:
            due = 0.0
            connected = time.monotonic()
            while not self._stopped.is_set():
                beat()
                if client.connected:
                    connected = time.monotonic()
                if gave_up(client) is not None or time.monotonic() - connected > NEW_SESSION_AFTER:
                    stop_client(client, 1.0)
                    client = self._connect()
                    connected = time.monotonic()
                full = time.monotonic() >= due
                try:
                    self.look(client, full)
                except AwayError as away:
                    self._agent.problems.note(
                        PROBLEM, f"{away}; consuming goes on with the last assignment known"
                    )
                    due = 0.0
                    self._wake.wait(1.0)
                else:
                    self._agent.problems.note(PROBLEM, None)
                    if full:
                        due = time.monotonic() + max(self._interval, len(self._topics) / TOPICS_PER_SECOND)
                    self._wake.wait(max(0.05, min(due - time.monotonic(), 1.0)))
        finally:
            stop_client(client, 1.0)

    def _connect(self) -> KazooClient:
        client = make_client(self._settings)
        client.add_listener(self._on_state)
        client.start_async().wait(1.0)
        return client

    def look(self, client: KazooClient, full: bool) -> None:
        """Make one round of the loop: read what watches say has changed, or everything. Raises `AwayError`.

        Where the agent needs something read as it stands now, not as this server knows it, everything is.
        """
        self._wake.clear()
        wanted = self._agent.blocks.reading_wanted()
        full = full or wanted is not None
        if not client.connected:
            where = f"ZooKeeper at {self._settings.hosts}"
            if isinstance(gave_up(client), DENIALS):
                raise AwayError(f"{where}: {refused(self._settings)}")
            raise AwayError(f"{where} is not connected")
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        try:
            if wanted is not None:
                client.sync_async(self._root).get(timeout=self._settings.operation_timeout)
            if full or self._root in dirty:
                before = set(self._topics)
                self._read_list(client, synced=wanted is not None)
                dirty |= {assignment_path(self._cluster, topic) for topic in set(self._topics) - before}
            paths = {assignment_path(self._cluster, topic): topic for topic in self._topics}
            to_read = {p: topic for p, topic in paths.items() if full or p in dirty}
            read = self._read_topics(client, to_read, synced=wanted is not None)
            if wanted is not None:
                self._agent.blocks.has_read(wanted, unread=set(self._topics) - read)
        except (AwayError, KazooException, KazooTimeoutError) as error:
            with self._lock:
                self._dirty |= dirty
            if isinstance(error, AwayError):
                raise
            reason = str(error) or type(error).__name__
            if isinstance(error, DENIALS) or isinstance(gave_up(client), DENIALS):
                # The connection is there before ZooKeeper has looked at the credentials.
                reason = refused(self._settings)
            if isinstance(error, NoAuthError):
                reason = f"refused {self._settings.who}: its ACL does not allow it; give this user read (r)"
            raise AwayError(f"ZooKeeper at {self._settings.hosts}: reading {self._root}: {reason}") from error

    def _read_list(self, client: KazooClient, synced: bool) -> None:
        limit = self._settings.operation_timeout
        try:
            children, stat = client.get_children_async(
                self._root, watch=self._on_event, include_data=True
            ).get(timeout=limit)
            zxid = stat.pzxid
        except NoNodeError:
            # A server that lags behind may not know the node yet; after a sync its answer counts.
            client.sync_async("/").get(timeout=limit)
            if client.exists_async(self._root, watch=self._on_event).get(timeout=limit) is not None:
                self._mark(self._root)
                return
            children, zxid = [], client.last_zxid
        topics = []
        for name in sorted(children):
            try:
                topics.append(check_topic(name))
            except WireError as error:
                log.warning("ZooKeeper node %s/%s is left alone: %s", self._root, name, error)
        self._topics = topics
        self._agent.listed(topics, zxid, synced)

    def _read_topics(self, client: KazooClient, paths: dict[str, str], synced: bool) -> set[str]:
        """Read these nodes; returns the topics whose assignment the agent has."""
        taken = set()
        deadline = time.monotonic() + self._settings.operation_timeout
        reads = [(path, topic, client.get_async(path, watch=self._on_event)) for path, topic in paths.items()]
        for path, topic, read in reads:
            try:
                data, stat = read.get(timeout=max(0.0, deadline - time.monotonic()))
            except NoNodeError:
                self._mark(self._root)  # it went between the list and now
                continue
            if self._take(path, topic, data, stat, synced):
                taken.add(topic)
        return taken

    def _take(self, path: str, topic: str, data: bytes, stat: Any, synced: bool) -> bool:
        try:
            assignment = parse_assignment(data, path)
        except WireError as error:
            self._agent.problems.note(
                f"topic {topic}", f"{error}; until then this consumer keeps what it has of the topic"
            )
            return False
        self._agent.problems.note(f"topic {topic}", None)
        return assignment is None or self._agent.assigned(topic, assignment, stat.mzxid, synced)

    def _on_event(self, event: WatchedEvent) -> None:
        """Mark what a watch fired for (in kazoo's thread, so nothing may block here)."""
        self._mark(event.path or self._root)

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            # Watches of a session that ended are gone, and one that was only suspended may have missed nothing;
            # reading everything is right in both cases.
            self._mark(self._root, *(assignment_path(self._cluster, topic) for topic in self._topics))

    def _mark(self, *paths: str) -> None:
        with self._lock:
            self._dirty.update(paths)
        self._wake.set()
