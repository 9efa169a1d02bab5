"""The consumer job: puts agent, Spark query, ZooKeeper, Consul and Kafka together, and takes them apart in order.

The process deregisters when it can no longer touch a record, never before: when everything is closed, else when query
and Spark have ended, and not at all if its handler does not end.

Exit codes: 0 when it ended in order (a signal, a request, replaced by a newer incarnation), 1 when it did not get
to close everything, one of its threads died or its ports are taken, 2 for settings that cannot be used (it is not
started again before they are corrected), 3 when it stopped for a poison record (the same), 70 when its JVM was gone.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import muster
from muster.consumer.address import placed
from muster.consumer.agent import Agent
from muster.consumer.assignment_watch import AssignmentWatch
from muster.consumer.blocks import STOPPING
from muster.consumer.committer import Committer
from muster.consumer.connector import runs_with_driver
from muster.consumer.handler import HandlerError, Handlers, asks_to_know, load_handlers
from muster.consumer.http_server import HttpServer
from muster.consumer.lifecycle import (
    Beat,
    Ending,
    Loop,
    end_on_jvm_signals,
    end_on_signals,
    exit_after,
    exit_with_jvm,
)
from muster.consumer.local_api import make_local_api
from muster.consumer.output import keep_small, quiet
from muster.consumer.poison_answers import PoisonAnswers
from muster.consumer.query import QuerySupervisor
from muster.consumer.registration import Registrar
from muster.consumer.serial_handler import SerialHandler
from muster.consumer.source.batch_size import Bounds
from muster.consumer.stages import Stages
from muster.consumer.stateless import Stateless
from muster.consumer.status_page import make_status_page
from muster.core.starting import Stage
from muster.core.state_topics import StateTopics
from muster.edges.consul import ConsulCluster, ConsulError
from muster.settings.consumer import VARIABLE, ConsumerSettings
from muster.settings.source_options import fail_on_data_loss

if TYPE_CHECKING:
    from muster.consumer.state.follower import Follower
    from muster.consumer.state.keeper import Keeper
    from muster.consumer.state.shards import States

log = logging.getLogger(__name__)

LEAST_SPARK = (4, 0)
"""The version of Spark that brought `StatefulProcessor` to Python."""
STUCK_AFTER = 30.0
"""Seconds without a sign of life, besides the longest call that it may make, after which a loop is stuck."""
HAND_OVER_LOOK = 0.25
"""Seconds between two looks at whether the others take over."""
QUERY_START = 60.0
"""Seconds that a consumer gives its query to come up before it takes partitions nevertheless."""
SPARK_STOP = 15.0
"""Seconds for the query and Spark to stop, after which the process is ended. If everything is closed, nothing depends
on it any more; if not, a handler that is still at work may come to its end within them."""
POISONED = 3
"""Exit code after a poison record that the consumer is to stop for."""
QUERY_END = 1.0
"""Seconds for the query's loop to end once Spark has stopped."""


def _states(settings: ConsumerSettings) -> States | None:
    """Return the shards of a consumer whose cluster has state, None without. Raises ValueError if it cannot."""
    if not settings.state:
        return None
    if not settings.fencing:
        raise ValueError(
            "'state' needs 'fencing: true', whose transactions write it; set that for the cluster"
        )
    version = tuple(map(int, pyspark.__version__.split(".")[:2]))
    if version < LEAST_SPARK:
        raise ValueError(
            f"'state' needs PySpark 4.0 or newer, for rows 4.1, and this is {pyspark.__version__}; update it, or "
            "take 'state' out"
        )
    try:
        from muster.consumer.state.shards import States  # noqa: PLC0415  needs the extra `state`
    except ImportError as error:
        raise ValueError(f"'state' needs the extra 'state' of muster-kafka: {error}; install that") from error
    return States(
        settings.cluster,
        settings.consumer,
        settings.kafka,
        StateTopics(settings.state),
        Path(settings.state_folder) if settings.state_folder else None,
    )


def main() -> None:
    """Run the consumer that the environment variable `MUSTER_CONSUMER` describes, then end the process."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for noisy in ("py4j", "kazoo", "httpx", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        settings = ConsumerSettings.from_environment()
        os.environ.pop(VARIABLE)  # it holds secrets, which what the handler starts need not inherit
        job = Job(placed(settings), load_handlers(settings))
    except (ValueError, HandlerError) as error:
        log.error("%s", error)  # noqa: TRY400  the message says it all
        sys.exit(2)
    except OSError as error:
        log.error("%s", error)  # noqa: TRY400
        sys.exit(1)
    sys.exit(job.run())


class Job:
    """One consumer, from start to end. Raises OSError if its ports are unavailable."""

    def __init__(self, settings: ConsumerSettings, handlers: Handlers) -> None:
        self._settings = settings
        self._ending = Ending()
        self._states = _states(settings)
        self._agent = Agent(
            settings.consumer,
            fencing=settings.fencing,
            announces=any(asks_to_know(handler) for handler in handlers.all),
            handler_of=handlers.number_of,
            states=self._states or Stateless(),
            on_poison=settings.on_poison,
            fail_on_data_loss=fail_on_data_loss(settings.source_options),
            max_batch_time=settings.max_batch_time,
            longest_renewal=settings.longest_renewal,
            holder=hashlib.sha256(settings.incarnation.encode()).hexdigest()[:12],
        )
        self._agent.failing.on_stop = self._stop_for
        self._handler = SerialHandler(handlers.all, self._agent)
        self._loops: list[Loop] = []
        self._page = HttpServer(
            "status-page",
            make_status_page(self._agent, settings, self._trouble, lambda: self._registrar.generation),
            settings.bind,
            settings.port,
            settings.status_tls,
        )
        self._local_api = HttpServer(
            "local-api",
            make_local_api(
                self._agent,
                settings.kafka_in_zone,
                Bounds(
                    settings.max_records_per_batch,
                    settings.target_batch_time,
                    settings.max_bytes_per_batch,
                    settings.max_rate,
                ),
                settings.trigger_interval,
                settings.source_options,
            ),
            "127.0.0.1",
            0,
        )
        consul = ConsulCluster(
            settings.consul, settings.cluster, settings.consul_service, prefix=settings.consul_prefix
        )
        self._stages = Stages(consul.jobs, settings.consumer, settings.incarnation)
        self._registrar = Registrar(
            settings, consul, self._agent, self._ending, self._page.port, self._stages.reach
        )
        self._watch = AssignmentWatch(
            settings.zookeeper, settings.cluster, self._agent, settings.reread_interval
        )
        self._committer = Committer(
            self._agent,
            settings.kafka_in_zone,
            settings.cluster,
            settings.fencing,
            settings.dead_letters_to,
            self._states,
        )
        self._answers = PoisonAnswers(self._agent, consul.answers)
        self._supervisor: QuerySupervisor | None = None
        self._query: Loop | None = None
        self._keeper: Keeper | None = None
        self._follower: Follower | None = None
        self._poison = ""

    def run(self) -> int:
        """Run until the end is asked for; returns the exit code."""
        settings = self._settings
        log.info(
            "muster %s: consumer %s of cluster %s, incarnation %s, pid %d, status page on port %d",
            muster.__version__,
            settings.consumer,
            settings.cluster,
            settings.incarnation,
            os.getpid(),
            self._page.port,
        )
        self._stages.reach(Stage.JVM)
        keep_small(settings.log_file)
        end_on_signals(self._ending)
        stop_guard = exit_with_jvm()
        self._page.start()
        self._local_api.start()
        calls = settings.zookeeper.operation_timeout
        self._loop("zookeeper", self._watch.run, 2 * calls + STUCK_AFTER)
        self._loop("consul", self._registrar.run, 12 * settings.consul.timeout + STUCK_AFTER)
        self._loop("commit", self._committer.run, STUCK_AFTER)
        if self._states is not None:
            from muster.consumer.state.follower import Follower  # noqa: PLC0415  needs the extra `state`
            from muster.consumer.state.keeper import Keeper  # noqa: PLC0415

            self._keeper = Keeper(self._agent, self._states)
            self._loop("state", self._keeper.run, STUCK_AFTER)
            self._follower = Follower(self._agent, self._states)
            self._loop("standby", self._follower.run, 4 * settings.kafka.operation_timeout + STUCK_AFTER)
        self._loop("answers", self._answers.run, 4 * settings.consul.timeout + STUCK_AFTER)
        if self._agent.announces:
            self._loop(
                "handler", self._handler.run, math.inf
            )  # it waits for batches, and for the user's code
        spark = self._start_spark()
        self._stages.reach(Stage.SESSION)
        if not self._ending.asked:
            self._supervisor = QuerySupervisor(
                spark,
                self._agent,
                self._handler,
                self._local_api.url,
                f"muster {settings.consumer}",
                settings.max_read_ahead,
                self._states,
                self._answers.before_rejects,
            )
            self._query = self._loop("query", self._supervisor.run, STUCK_AFTER)
            self._await_query()
            self._registrar.open()
        self._ending.wait()
        return self._end(spark, stop_guard)

    def _await_query(self) -> None:
        """Let the query come up first: partitions that are taken up before that wait for it without a reader.

        One that fails, or is not up in time, does not keep the consumer from being seen.
        """
        began = time.monotonic()
        while not self._ending.asked and time.monotonic() - began < QUERY_START:
            if self._agent.wait_tried(0.5):
                log.info("the query is up after %.1f s", time.monotonic() - began)
                self._stages.reach(Stage.BATCH)
                return

    def _start_spark(self) -> SparkSession:
        began = time.monotonic()
        spark = SparkSession.builder.appName(f"muster {self._settings.consumer}").getOrCreate()
        log.info("Spark is up after %.1f s", time.monotonic() - began)
        if self._states is not None and not runs_with_driver(spark.sparkContext.master):
            log.warning(
                "the executors of %s keep copies of the state, and restore each from its changelog where they have "
                "none; standbys and warm-ups keep theirs with the drivers only",
                spark.sparkContext.master,
            )
        quiet(spark)
        end_on_signals(self._ending)  # Spark has put its own handler in the place of ours
        end_on_jvm_signals(spark, self._ending)
        return spark

    def _loop(self, name: str, body: Callable[[Beat], None], limit: float) -> Loop:
        loop = Loop(name, body, limit, self._ending)
        self._loops.append(loop)
        loop.start()
        return loop

    def _stop_for(self, record: str) -> None:
        """End because of a poison record, and have it seen that this end is wanted."""
        log.error("on_poison is stop: %s", record)
        self._poison = record
        self._ending.ask(f"on_poison is stop: {record}", POISONED)

    def _trouble(self) -> list[str]:
        if self._ending.asked:
            return []  # loops end one after the other, which is no trouble
        return [trouble for loop in self._loops if (trouble := loop.trouble())]

    def _end(self, spark: SparkSession, stop_guard: Callable[[], None]) -> int:
        began = time.monotonic()
        log.info("ending: %s", self._ending.reason)
        self._hand_over()
        self._agent.blocks.block(STOPPING)
        deadline = began + self._settings.graceful_timeout
        closed = self._agent.wait_closed(deadline - time.monotonic())
        exit_code = self._ending.exit_code
        if not closed:
            held = {topic: sorted(status.held) for topic, status in self._agent.view().topics.items()}
            log.error(
                "not closed within %g s: %s; their next owner begins at the last committed offset",
                self._settings.graceful_timeout,
                {topic: partitions for topic, partitions in held.items() if partitions},
            )
            exit_code = exit_code or 1
        elif not self._registrar.wait_for_predecessors(deadline - time.monotonic()):
            log.warning("an older process with this id is not known to have closed; deregistering without it")
        exit_after(SPARK_STOP, exit_code)
        stop_guard()
        deregistered = closed and self._agent.idle
        if deregistered:
            self._leave()
            log.info("closed and deregistered after %.1f s", time.monotonic() - began)
        if self._supervisor is not None:
            self._supervisor.stop()
        self._join_query(SPARK_STOP / 2)
        self._watch.stop()
        self._answers.stop()
        self._committer.stop()
        if self._keeper is not None:
            self._keeper.stop()
        if self._follower is not None:
            self._follower.stop()
        try:
            spark.stop()
        except Py4JError as error:
            log.warning("Spark did not stop in order: %s", error)
        if not deregistered and self._join_query(QUERY_END):
            self._leave()
        elif not deregistered:
            # It may write until the end. Then nothing listens at its address, which Consul and the coordinator take
            # for gone.
            log.error("the handler is still at work; ending the process without deregistering")
        self._page.stop()
        log.info("ended after %.1f s, exit code %d", time.monotonic() - began, exit_code)
        return exit_code

    def _hand_over(self) -> None:
        """Read on while the partitions are given to others one by one, so that none of them waits without a reader.

        As long as that goes on, at most half of the time that there is; not if this process is not to be counted on.
        """
        if not self._settings.hand_over or self._ending.exit_code:
            return
        began = time.monotonic()
        try:
            if self._registrar.announce_leaving():
                self._await_others(began)
        except ConsulError as error:
            log.warning("it is unknown whether another consumer takes over from this one: %s", error)

    def _await_others(self, began: float) -> None:
        least, since = self._held(), began
        while not self._ending.replaced and not self._agent.wait_closed(HAND_OVER_LOOK):
            if not self._registrar.others_stay():
                return
            now = time.monotonic()
            if (held := self._held()) < least:
                least, since = held, now
            if now - since > self._settings.hand_over or now - began > self._settings.graceful_timeout / 2:
                log.warning("%d partitions were not taken over; closing them", held)
                return

    def _held(self) -> int:
        return len(self._agent.view().held)

    def _join_query(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the end of the query's loop; return whether it ended."""
        return self._query is None or self._query.join(timeout)

    def _leave(self) -> None:
        try:
            self._registrar.leave(self._poison)
        except ConsulError as error:
            log.warning("not deregistered: %s; its check will fail, and Consul forgets it later", error)
        self._handler.close()
