"""Servers that cannot be reached: said, with since when and how old what is shown is, and never an error."""

from __future__ import annotations

import threading

import pytest

from muster.cluster.cache import StateCache
from muster.cluster.state import ClusterState
from muster.core.offsets import TopicOffsets
from muster.dashboard.access import Visitor
from tests.support.runs import Topics, cluster, settle
from tests.support.simulated import SimulatedCluster
from tests.support.simulated_dashboard import Dashboard, SimulatedSources


@pytest.fixture
def dashboard() -> Dashboard:
    world = SimulatedCluster()
    world.join("a", "b")
    settle(world, Topics(t=4), "sticky")
    return Dashboard(world, {"topics": ["t"], "consumers": {"handler": "a.b", "count": 0}})


def sources(dashboard: Dashboard) -> dict[str, dict[str, object]]:
    (seen,) = dashboard.get("")["clusters"]
    return {source["source"]: source for source in seen["freshness"]["sources"]}


def test_zookeeper_goes_and_comes_back(dashboard: Dashboard) -> None:
    assert all(source["reachable"] for source in sources(dashboard).values())
    good = dashboard.world.now
    dashboard.world.store.unreachable = True
    dashboard.look_again()
    lost = dashboard.world.now
    for _ in range(2):
        found = sources(dashboard)["zookeeper"]
        assert not found["reachable"]
        assert (found["unreachable_since"], found["last_read_at"]) == (lost, good)
        assert (found["address"], found["error"]) == ("zk:2181", "ZooKeeper is out of reach")
        dashboard.look_again()  # it lasts, and so does since when
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["health"], seen["partition_states"]) == ("critical", {"R": 4})
    assert seen["problems"][0]["what"] == "ZooKeeper cannot be reached: ZooKeeper is out of reach"
    dashboard.world.store.unreachable = False
    dashboard.look_again()
    assert sources(dashboard)["zookeeper"]["unreachable_since"] is None
    assert dashboard.get("")["clusters"][0]["health"] == "ok"


def test_page_says_so_where_no_server_was_ever_reachable(dashboard: Dashboard) -> None:
    dashboard.world.store.unreachable = True
    dashboard.sources.down |= {"consul", "kafka", "consumers"}
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["health"], seen["state"], seen["lag"], seen["since"]) == ("critical", "Unknown", None, None)
    assert {w["what"].split()[0] for w in seen["problems"]} == {"ZooKeeper", "Consul", "Kafka"}
    for path in ("/c", "/c/topics", "/c/consumers", "/c/timeline"):
        dashboard.get(path)
    refused = dashboard.post("/c/what-if", {}, status=503)
    assert "ZooKeeper is out of reach" in refused["detail"]


def test_consul_in_doubt_leaves_consumers_unknown_and_asks_those_last_known(dashboard: Dashboard) -> None:
    dashboard.get("")
    dashboard.world.doubt = "it names nobody"
    dashboard.look_again()
    found = dashboard.get("/c")
    assert found["problems"][0]["what"] == "Consul's answer is not to be trusted: it names nobody"
    # They still answer, so it is known what runs.
    assert found["summary"]["partition_states"] == {"R": 4}
    assert {row["state"] for row in dashboard.get("/c/consumers")["consumers"]} == {"unknown"}
    assert "not to be trusted" in dashboard.post("/c/what-if", {}, status=503)["detail"]


def test_lag_is_taken_from_the_consumers_without_kafka(dashboard: Dashboard) -> None:
    dashboard.sources.offsets_now = TopicOffsets(ends={("t", 0): 10}, committed={("t", 0): 0})
    assert dashboard.get("")["clusters"][0]["lag"] == 10
    for consumer in dashboard.world.consumers.values():
        consumer.rates = {("t", p): 1.5 for p in range(4)}
    dashboard.sources.down.add("kafka")
    dashboard.look_again()
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["health"], seen["rate"], seen["lag"]) == ("warning", 6.0, 10)
    assert sources(dashboard)["kafka"]["error"] == "kafka is out of reach; look whether it runs"


def test_no_consumer_answers(dashboard: Dashboard) -> None:
    dashboard.get("")
    dashboard.sources.down.add("consumers")
    dashboard.look_again()
    found = sources(dashboard)["consumers"]
    assert "none of 2 consumer(s) answers; a: connection refused" in str(found["error"])
    # An older status is not shown as if it were the present one.
    assert dashboard.get("")["clusters"][0]["partition_states"] == {"?": 4}


def test_viewers_share_one_reading_and_kafka_is_read_less_often(dashboard: Dashboard) -> None:
    for path in ("", "/c", "/c/topics", "/c/topics/t", "/c/consumers", "/c/consumers/a"):
        dashboard.get(path, user="viewer")
    once = dict.fromkeys(("snapshots", "members", "overrides", "poll", "offsets", "history"), 1)
    assert dashboard.sources.reads == once
    dashboard.world.now += 3
    dashboard.get("")
    assert dashboard.sources.reads == {**dict.fromkeys(once, 2), "offsets": 1, "history": 1}


class Held(SimulatedSources):
    """Sources whose Consul does not answer before it is let."""

    def __init__(self, world: SimulatedCluster) -> None:
        super().__init__(world)
        self.let = threading.Event()
        self.begun = threading.Event()

    def members(self):  # type: ignore[no-untyped-def]
        self.begun.set()
        assert self.let.wait(60)
        return super().members()


def test_silent_server_delays_no_viewer_once_there_is_a_reading(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.cluster.cache.PATIENCE", 0.01)
    held = Held(dashboard.world)
    held.let.set()
    cache = StateCache(lambda _: held, dashboard.world.clock, dashboard.world.clock)
    watched = cache.watched(cluster({}))
    first = watched.state()
    assert isinstance(first, ClusterState)
    held.let.clear()
    held.begun.clear()
    dashboard.world.now += 10
    found: list[ClusterState | None] = []
    viewers = [threading.Thread(target=lambda: found.append(watched.state())) for _ in range(8)]
    for viewer in viewers:
        viewer.start()
    for viewer in viewers:
        viewer.join(60)
    assert found == [first] * 8
    assert held.begun.is_set()
    held.let.set()
    cache.close()
    assert held.reads["members"] <= 2, "one reading at a time, however many ask"


def test_first_reading_is_waited_for_within_a_limit(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.cluster.cache.FIRST_PATIENCE", 0.01)
    held = Held(dashboard.world)
    dashboard.answers.open_sources = lambda _: held
    dashboard.answers.__post_init__()
    (seen,) = dashboard.get("")["clusters"]
    assert (seen["health"], seen["freshness"]["read_at"]) == ("unknown", None)
    assert "still being read" in dashboard.get("/c", status=503)["detail"]
    held.let.set()


def test_many_clusters_that_do_not_answer_are_waited_for_together(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    held = Held(dashboard.world)

    def waited(_: object, __: float | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            held.let.wait(60)  # a source that waits for another
            return
        watched = dashboard.answers.shared._watched.values()
        begun.append(sum(one._state._future is not None for one in watched))

    monkeypatch.setattr("muster.cluster.latest.wait", waited)
    dashboard.answers.open_sources = lambda _: held
    dashboard.answers.__post_init__()
    dashboard.clusters.clusters.update({name: cluster({"name": name}) for name in ("c", "d", "e")})
    found = dashboard.answers.clusters(Visitor("ann", lambda *_: True))
    held.let.set()
    assert [each.health for each in found.clusters] == ["unknown"] * 3
    assert begun == [3, 3, 3], "all were begun before the first was waited for"


def test_changed_settings_begin_again_and_close_open_sources(dashboard: Dashboard, eventually) -> None:  # type: ignore[no-untyped-def]
    dashboard.get("")
    dashboard.clusters.clusters["c"] = cluster({"stuck_after": 1})
    dashboard.get("")
    eventually(lambda: dashboard.sources.closed == 1)


def test_sources_of_a_cluster_without_viewers_are_closed(dashboard: Dashboard, eventually) -> None:  # type: ignore[no-untyped-def]
    dashboard.get("")
    dashboard.world.now += 301
    dashboard.clusters.clusters["d"] = cluster({"name": "d"})
    dashboard.get("/d")
    eventually(lambda: dashboard.sources.closed == 1)
