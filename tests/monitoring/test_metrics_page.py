"""docs/metrics.md says of every metric what is really exported: name, type and labels, and no more than that."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.core import Metric

from muster.cluster.reading import Reading, SourceReading
from muster.cluster.state import ClusterState
from muster.consumer.metrics import ConsumerMetrics
from muster.core.copies import ShardCopy
from muster.core.model import Restore, ShardState, State, TopicAssignment
from muster.core.offsets import FirstRecord, Retention
from muster.core.positions import Jump, Why
from muster.core.progress import Look, Mark
from muster.core.wire import WireError
from muster.monitoring.exposition import Runs, Scraped, exposition
from tests.monitoring.metrics_page import Described, described
from tests.support.claiming import ClaimingAgent
from tests.support.scraped import CLUSTER, OFFSETS, live, topic
from tests.support.told_states import ToldStates


def exported(families: list[Metric]) -> dict[str, Described]:
    found = {}
    for family in families:
        assert family.samples, f"{family.name}: this test has to bring it about"
        labels = frozenset.union(*(frozenset(sample.labels) for sample in family.samples)) - {"le"}
        name = {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(
            family.type, family.name
        )
        kind = {"info": "gauge"}.get(family.type, family.type)
        found[name] = Described(kind, labels)
    return found


def test_the_metrics_of_clusters() -> None:
    topics = {**topic({0: "c-1"}, State.CLOSING), "u": WireError("rubbish")}
    marks = {("t", p): Mark(5, 999_000, points=((0, 10),)) for p in range(3)}
    standing = Look(1_000_000.0, marks, points=(999_900,))
    first = {("t", p): FirstRecord(30, 999_999.0) for p in range(3)}
    offsets = replace(OFFSETS, first=first, retention={"t": Retention(60.0)}, at=1_000_000.0)
    reading = Reading(
        SourceReading(topics, 1.0),
        SourceReading(live("c-1"), 1.0),
        kafka=SourceReading(offsets, 1.0),
        progress=SourceReading(standing, 1.0),
    )
    settings = CLUSTER.model_copy(update={"max_lag": {"t": 5.0}})
    state = ClusterState(settings, reading, 1_000_000.0)
    families = list(exposition({"c": Scraped(state, SourceReading(Runs(False, 1.0), 1.0))}, 0))
    assert exported(families) == described("Clusters")


def test_the_metrics_of_a_consumer() -> None:
    now = [1000.0]
    shards = {("t", 0): ShardState(1, 1, 1, 1), ("t", 1): ShardState(restore=Restore(1, 2, 1.0, 0.0))}
    copies = {("t", 1): ShardCopy(1, 3)}
    agent = ClaimingAgent("me", clock=lambda: now[0], states=ToldStates(shards=shards, told=copies))
    agent.assigned("t", TopicAssignment("k:9092", "g", {0: "me", 1: "me"}, epoch=4), zxid=1)
    agent.blocks.block("isolated")
    agent.blocks.unblock("isolated")
    token = agent.query_started()
    agent.measures.all["t", 0].seen(0, now[0] - 20)
    jumps = {("t", 0): Jump(0, 5, Why.RETENTION)}
    agent.planned(token, agent.offer(token).asked, {}, {"t": {0: (5, 9)}}, {("t", 0): 10}, [], jumps)
    agent.batch_done(agent.batch_started(), None)
    (due,) = (agent.due(place) for place in agent.wait_for_place([], 0))
    agent.committed(due)
    now[0] += 60.0
    of_running = {family.name: family for family in ConsumerMetrics(agent, "c", "incarnation").collect()}
    agent.blocks.block("isolated")
    of_held = (
        "muster_consumer_stalled_seconds",
        "muster_consumer_restore_",
    )  # nothing is while it is closing
    families = [
        of_running[family.name] if family.name.startswith(of_held) else family
        for family in ConsumerMetrics(agent, "c", "incarnation").collect()
    ]
    assert exported(families) == described("Consumers")
