"""A consumer without Spark, whose process stands still at a step: its real agent, planner and committer, and a sink.

    python -m tests.support.sinking_consumer CONFIG

CONFIG is JSON with `name`, `servers`, `group`, `topic` (with one partition), `topic_id`, `epoch`, and `delta` or
`conninfo` of the sink. Each line of the standard input is `{"seek": [ID, OFFSET, REBUILD]}`, or `{"stop": STEP}`: the
process says so, and stops itself, once, when it comes to that step. It prints what it is refused, and ends with its
input.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import deltalake

from muster.consumer import committer
from muster.consumer.agent import Agent
from muster.consumer.committer import Committer
from muster.consumer.query import failure_of
from muster.consumer.source.batch_size import Bounds
from muster.consumer.source.planner import Planner
from muster.core.model import Seek, TopicAssignment, TopicPartition
from muster.core.positions import parse_stamp
from muster.edges.commit_outcome import CommitOutcome
from muster.edges.kafka_fencing import FencedCommits
from muster.settings.connections import KafkaSettings
from muster.sinks import Batch, DatabaseSink, DeltaSink, SinkError
from tests.support.database_writer import rows_of

PLANNED = "a batch is planned"
BEFORE_SINK, AFTER_SINK = "before the sink's commit", "after the sink's commit"
BEFORE, AFTER = "before a commit", "after a commit"
BEFORE_REBUILD, AFTER_REBUILD = "before the commit of a rebuild", "after the commit of a rebuild"


class Steps:
    """Stops the process at the step that is wanted."""

    def __init__(self) -> None:
        self.wanted = ""

    def at(self, step: str) -> None:
        if step == self.wanted:
            self.wanted = ""
            os.kill(os.getpid(), signal.SIGSTOP)


STEPS = Steps()


class SteppingCommits(FencedCommits):
    """The consumer's commits, each between two steps."""

    def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str], *rest: Any
    ) -> CommitOutcome:
        stamps = [parse_stamp(each) for each in metadata.values()]
        rebuild = any(stamp is not None and stamp.note.rebuild for stamp in stamps)
        STEPS.at(BEFORE_REBUILD if rebuild else BEFORE)
        outcome = super().commit(offsets, metadata, *rest)
        STEPS.at(AFTER_REBUILD if rebuild else AFTER)
        return outcome


def between_steps(write: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*args: Any, **options: Any) -> Any:
        STEPS.at(BEFORE_SINK)
        done = write(*args, **options)
        STEPS.at(AFTER_SINK)
        return done

    return stepping


def sink_of(config: Mapping[str, Any]) -> DeltaSink | DatabaseSink:
    if "delta" in config:
        patched: Any = deltalake.DeltaTable
        patched.create_write_transaction = between_steps(deltalake.DeltaTable.create_write_transaction)
        return DeltaSink(config["delta"], upkeep=False)
    sink = DatabaseSink("psycopg", {"conninfo": config["conninfo"]}, "numbers")
    store: Any = sink
    store.store = between_steps(sink.store)
    return sink


def main() -> None:
    config = json.loads(sys.argv[1])
    servers, group, topic = config["servers"], config["group"], config["topic"]
    settings = KafkaSettings(config={"bootstrap.servers": servers})
    patched: Any = committer
    patched.FencedCommits = SteppingCommits
    agent, sink = Agent(config["name"], fencing=True), sink_of(config)
    threading.Thread(
        target=Committer(agent, settings, "c", True).run, args=(lambda: None,), daemon=True
    ).start()
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(heard,), daemon=True).start()
    planner = Planner(agent, agent.query_started(), settings, Bounds(), interval=0.1)
    zxid, seeks, refused = 0, {}, 0
    stands: dict[str, Any] | None = None
    while True:
        while not heard.empty():
            if not (line := heard.get()):
                return
            seeks = {0: Seek(*json.loads(line)["seek"])}
        zxid += 1
        owners, epoch = {0: config["name"]}, config["epoch"]
        node = TopicAssignment(servers, group, owners, epoch, topic_id=config["topic_id"], seeks=seeks)
        agent.assigned(topic, node, zxid)
        before, stands = stands, planner.next(stands or {}, 1).offset
        if stands != before:
            work(agent, sink)
        if (now := agent.view().counters.refused_commits) > refused:
            refused = now
            print("refused", flush=True)


def listen(heard: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        if step := json.loads(line).get("stop"):
            STEPS.wanted = step
            print(f"stops {step}", flush=True)
        else:
            heard.put(line)
    heard.put("")


def work(agent: Agent, sink: DeltaSink | DatabaseSink) -> None:
    plan = agent.batch_started()
    batch = Batch(plan.filled, plan.topic_ids, rebuilds=plan.rebuilds)
    if plan.empty:
        agent.batch_done(plan, None)
        return
    STEPS.at(PLANNED)
    try:
        sink.store(rows_of(batch), batch)
    except SinkError as error:
        print(f"SinkError: {error}", flush=True)
        agent.batch_done(plan, failure_of(error), sinks=batch.report)
    else:
        agent.batch_done(plan, None, sinks=batch.report)


if __name__ == "__main__":
    main()
