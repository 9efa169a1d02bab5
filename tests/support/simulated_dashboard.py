"""A dashboard over a simulated cluster: the application with readings that a test controls, and users by a header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import Header, HTTPException
from fastapi.testclient import TestClient

from muster.core.history import HistoryPage
from muster.core.model import Consumer, ConsumerDetails, ConsumerStatus, TopicSnapshot
from muster.core.offsets import TopicOffsets
from muster.core.overrides import IsolationEntry, Overrides
from muster.core.starting import Starting
from muster.core.wire import Racks, WireError
from muster.dashboard.access import IdentifyVisitor, Right, Visitor
from muster.dashboard.answers import Answers
from muster.dashboard.app import create_app
from muster.dashboard.commands import OpenTarget, open_target
from muster.edges.consul import ConsulError, Members, Registration
from muster.edges.kafka import KafkaError
from muster.edges.status import StatusFailure, StatusResult
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import Clusters
from tests.support.runs import cluster
from tests.support.simulated import SimulatedCluster
from tests.support.sources import StandIns


class SimulatedSources(StandIns):
    """The simulated servers; `down` names those that are out of reach, `reads` counts the calls."""

    def __init__(self, world: SimulatedCluster) -> None:
        super().__init__(world.store, world, world.poll)
        self.world = world
        self.down: set[str] = set()
        self.reads: Counter[str] = Counter()
        self.history_page = HistoryPage()
        self.closed = 0
        self.version = "0.1.0"

    def _read(self, what: str, server: str, error: type[Exception]) -> None:
        self.reads[what] += 1
        if server in self.down:
            raise error(f"{server} is out of reach; look whether it runs")

    def snapshots(self) -> Mapping[str, TopicSnapshot | WireError]:
        self.reads["snapshots"] += 1
        return super().snapshots()

    def racks(self, topics: Iterable[str]) -> Mapping[str, Racks | WireError]:
        self.reads["racks"] += 1
        return super().racks(topics)

    def members(self) -> Members:
        self._read("members", "consul", ConsulError)
        found = super().members()
        live = found.membership.live if found.membership is not None else {}
        registered = {
            c: Registration(c, "10.0.0.1", 80, passing=c in live, incarnation="one")
            for c, there in self.world.consumers.items()
            if there.alive
        }
        return replace(found, registered=registered)

    def starting(self) -> dict[str, Starting]:
        return self.world.starting

    def overrides(self) -> Overrides:
        self._read("overrides", "consul", ConsulError)
        isolated = {
            c: IsolationEntry(consumer=c, by="ann", at=5.0, why="it is slow") for c in self.world.isolated
        }
        return replace(super().overrides(), isolated=isolated)

    def poll(
        self,
        consumers: Iterable[Consumer],
        timeout: float,
        *,
        topics: Mapping[str, Collection[str]] | None = None,
    ) -> Mapping[str, StatusResult]:
        self.reads["poll"] += 1
        asked = list(consumers)
        if "consumers" in self.down:
            return {c.id: StatusFailure(c.id, "connection refused") for c in asked}
        details = ConsumerDetails(host="h1", version=self.version, doing="running", started_at=100.0)
        return {
            c: replace(answer, details=details) if isinstance(answer, ConsumerStatus) else answer
            for c, answer in super().poll(asked, timeout).items()
        }

    def offsets(self, reads: Callable[[str], bool], groups: Mapping[str, str]) -> TopicOffsets:
        self._read("offsets", "kafka", KafkaError)
        there = {
            topic: found.partitions
            for topic, found in super().snapshots().items()
            if isinstance(found, TopicSnapshot) and reads(topic)
        }
        return replace(self.offsets_now, partitions=self.offsets_now.partitions or there)

    def history(self, *, limit: int = 100, before: int | None = None, since: float = 0.0) -> HistoryPage:
        self._read("history", "zookeeper", ZooKeeperError)
        return self.history_page

    def addresses(self) -> Mapping[str, str]:
        return {"zookeeper": "zk:2181", "consul": "http://consul:8500", "kafka": "k:9092"}

    def close(self) -> None:
        self.closed += 1


RIGHTS: Mapping[str, tuple[set[str], set[str]]] = {
    "admin": ({"c", "d"}, {"c", "d"}),
    "viewer": ({"c", "d"}, set()),
    "other": ({"d"}, {"d"}),
}
"""The clusters that a user may read, and edit."""


def by_header(rights: Mapping[str, tuple[set[str], set[str]]] = RIGHTS) -> IdentifyVisitor:
    """`X-User` says who it is: `admin` may do everything, `viewer` look, `other` look at cluster d only."""

    def identify(x_user: Annotated[str, Header()] = "") -> Visitor:
        if x_user not in rights:
            raise HTTPException(401, "Not authenticated")
        look, command = rights[x_user]
        return Visitor(x_user, lambda right, cluster: cluster in (look if right is Right.LOOK else command))

    return identify


OURS = {"X-Muster-Request": "1", "Content-Type": "application/json"}
"""The headers of a POST from the page itself."""


class Dashboard:
    """The application over one simulated cluster, `c`."""

    def __init__(
        self,
        world: SimulatedCluster,
        settings: Mapping[str, object] | None = None,
        target: OpenTarget = open_target,
        static: str | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        self.world = world
        self.sources = SimulatedSources(world)
        self.settings = cluster(settings or {})
        self.clusters = Clusters(Path("clusters.yaml"), {"c": self.settings}, dict(errors or {}))
        self.answers = Answers(
            lambda: self.clusters, lambda _: self.sources, target, clock=world.clock, monotonic=world.clock
        )
        self.app = create_app(self.answers, by_header(), static)
        self.http = TestClient(self.app)

    def look_again(self) -> None:
        """Have the next request read everything again, Kafka too."""
        self.world.now += 10
        self.answers.shared.watched(self.settings).expire()

    def get(self, path: str, user: str = "admin", status: int = 200, **params: Any) -> Any:
        answer = self.http.get(f"/api/clusters{path}", params=params, headers={"X-User": user})
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: object, user: str = "admin", status: int = 200) -> Any:
        answer = self.http.post(f"/api/clusters{path}", json=body, headers={"X-User": user, **OURS})
        assert answer.status_code == status, answer.text
        return answer.json()
