"""What the routes answer: settings, shared readings and commands put together. Knows nothing of HTTP or Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from muster.cluster.cache import StateCache, Watched
from muster.cluster.planning import NothingReadError
from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.commands.audit import carry_out, foreseen
from muster.commands.command import Actor, CommandOutcome
from muster.commands.table import COMMANDS
from muster.dashboard.access import Right, Visitor
from muster.dashboard.cluster_view import cluster_answer, summary, unread
from muster.dashboard.commands import VIA, OpenTarget, open_target
from muster.dashboard.models import (
    ApplyBody,
    ClusterAnswer,
    ClustersAnswer,
    ClusterSummary,
    CommandBody,
    Freshness,
    SourceHealth,
    TimelineAnswer,
    WhatIfAnswer,
    WhatIfRequest,
)
from muster.dashboard.timeline import Timeline, timeline
from muster.dashboard.what_if import apply_plan, plan_what_if
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import Clusters, SettingsError, load_clusters
from muster.settings.connection_parsing import ConnectionSettingsError


class UnknownError(LookupError):
    """There is no such cluster, topic or consumer; the message says what is missing."""


@dataclass
class Answers:
    """Everything the API tells and does. `settings` gives the clusters, `open_sources` and `open_target` the servers
    of one, `clock` seconds since the epoch, `monotonic` seconds by a clock that never
    jumps."""

    settings: Callable[[], Clusters] = load_clusters
    open_sources: Callable[[ClusterSettings], Sources] = Sources
    open_target: OpenTarget = open_target
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.shared = StateCache(self.open_sources, self.clock, self.monotonic)

    def clusters(self, visitor: Visitor) -> ClustersAnswer:
        """Show all that the visitor may read."""
        try:
            found = self.settings()
        except SettingsError as error:
            return ClustersAnswer(user=visitor.name, clusters=[], error=str(error))
        known = found.clusters.keys() | found.errors.keys()
        names = sorted(name for name in known if visitor.may(Right.LOOK, name))
        for name in names:
            if name in found.clusters:
                self.shared.watched(found.clusters[name]).begin()  # all at once: their waits are not added up
        return ClustersAnswer(
            user=visitor.name,
            clusters=[self._summary(found, name, visitor) for name in names],
            # Of files, which may be of other teams; where there is no cluster at all, everybody sees why.
            error="\n".join(found.general.values()) if names or not known else "",
        )

    def _summary(self, found: Clusters, name: str, visitor: Visitor) -> ClusterSummary:
        may_edit = visitor.may(Right.COMMAND, name)
        error = found.errors.get(name, "")
        if name not in found.clusters:
            return unread(name, may_edit=may_edit, ttl=60.0, error=error)
        watched = self.shared.watched(found.clusters[name])
        state = watched.state()
        if state is None:
            return unread(name, may_edit=may_edit, ttl=watched.ttl)
        return summary(state, may_edit=may_edit, ttl=watched.ttl, mistake=error)

    def cluster(self, name: str, visitor: Visitor) -> ClusterAnswer:
        """Show one cluster. Raises `UnknownError`, and `NothingReadError` if there is no reading yet."""
        watched, state = self.state(name)
        mistake = self.settings().errors.get(name, "")
        return cluster_answer(
            state, may_edit=visitor.may(Right.COMMAND, name), ttl=watched.ttl, mistake=mistake
        )

    def state(self, name: str) -> tuple[Watched, ClusterState]:
        """Return the newest state of a cluster. Raises as `cluster`."""
        watched = self.shared.watched(self._cluster(name))
        state = watched.state()
        if state is None:
            raise NothingReadError(
                f"cluster {name!r} is still being read for the first time; ask again in a moment"
            )
        return watched, state

    def timeline(
        self, name: str, *, limit: int, before: int | None, topic: str | None, consumer: str | None
    ) -> TimelineAnswer:
        """Return what happened. With ZooKeeper out of reach, nothing and why. Raises `UnknownError`."""
        watched = self.shared.watched(self._cluster(name))
        found, health = Timeline([], None), SourceHealth(source="history", reachable=True)
        now = self.clock()
        try:
            found = timeline(
                lambda most, older: watched.sources.history(limit=most, before=older),
                limit=limit,
                before=before,
                topic=topic,
                consumer=consumer,
            )
        except (ZooKeeperError, ConnectionSettingsError) as error:
            health = SourceHealth(source="history", reachable=False, error=str(error))
        fresh = Freshness(read_at=now, ttl=watched.ttl, sources=[health])
        return TimelineAnswer(entries=found.entries, next_before=found.next_before, freshness=fresh)

    def what_if(self, name: str, request: WhatIfRequest) -> WhatIfAnswer:
        """Preview a plan. Raises `UnknownError`, and what `plan_what_if` raises."""
        watched, state = self.state(name)
        return plan_what_if(state, watched.sources, request).answer

    def foreseen(self, name: str, command: str, body: CommandBody, visitor: Visitor) -> tuple[str, ...]:
        """Say what a command would do. Raises as `command`."""
        actor = Actor(visitor.name, body.reason, self.clock())
        return foreseen(
            COMMANDS[command], self.open_target(self._cluster(name)), actor, body.model_dump()
        ).lines()

    def command(self, name: str, command: str, body: CommandBody, visitor: Visitor) -> CommandOutcome:
        """Carry a command out. Raises `UnknownError`, `CommandError`, and the errors of the servers."""
        cluster = self._cluster(name)
        actor = Actor(visitor.name, body.reason, self.clock())
        target = self.open_target(cluster)
        watched = self.shared.watched(cluster)
        try:
            if not isinstance(body, ApplyBody):
                return carry_out(COMMANDS[command], target, actor, body.model_dump(), VIA)
            # What is applied is planned with what there is now, not with a reading that is some seconds old.
            watched.expire()
            state = watched.state()
            if state is None:
                raise NothingReadError(f"cluster {name!r} cannot be read now; try again")
            return apply_plan(target, body, plan_what_if(state, watched.sources, body.what_if), actor)
        finally:
            watched.expire()

    def _cluster(self, name: str) -> ClusterSettings:
        try:
            found = self.settings()
        except SettingsError as error:
            raise UnknownError(str(error)) from error
        try:
            return found[name]
        except SettingsError as error:
            raise UnknownError(str(error)) from error
