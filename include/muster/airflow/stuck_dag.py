"""The DAG `muster_stuck__[cluster]`: asks a person whether to isolate a consumer that holds things up, and what is to
become of a record that its handler fails with.

The question is an Airflow task that waits for a person (human in the loop). Airflow's own operator would wait until a
person answers. This one also looks whether the question is still one: when the consumer holds up nothing any more, it
closes by itself. After "Wait" it lets `stuck_after` pass before the run ends and another question may come.

A DAG file imports no client of a server, so the tasks do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import DAG, Context, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail, update_hitl_detail_response
from airflow.triggers.base import TriggerEvent
from asgiref.sync import sync_to_async

from muster.airflow.base_trigger import SETTLED, MusterTrigger, event
from muster.airflow.command_dags import EVENTS, carry_out_in_run
from muster.airflow.coordinator_dag import stuck
from muster.airflow.older import AWAITS_INPUT
from muster.commands.command import Actor, CommandError
from muster.commands.table import COMMANDS
from muster.core.parking import Answer
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters

LOOK = 5.0
"""Seconds between two looks at whether the consumer still holds things up."""
ISOLATE, WAIT = "Isolate", "Wait"
ABOUT_RECORD = {COMMANDS[name].label: name for name in ("retry-record", "skip-record", "dead-letter-record")}
"""What can be answered about a record, with the commands that do it."""

_DOC = """
### Something is stuck in cluster `{name}`

A topic of this cluster is not Stable, or an owner makes no progress, for longer than {stuck:g} s, or a handler
works on one batch for longer than `max_batch_time`, or a partition is parked. `ask` has one task for each consumer
that holds things up, and for each record that a handler fails with. Open it under **Required Actions**: it shows
what is held up, and what would happen. About a record choose whether it is tried again, skipped, or written to the
dead-letter topic. About a consumer choose:

- **Isolate** it: its partitions go to the others, with your name on it. *restore* in
  `muster_isolate__{name}` takes it back.
- **Wait**: nothing is changed. If it still holds things up after another {stuck:g} s, you are asked again.

Where no live consumer holds a topic up, the question says what does, and what to do. A question closes by itself when
what it is about holds up nothing any more.
"""


def stuck_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_stuck__[cluster]`, which the coordinator's Asset event `muster://[cluster]/stuck` starts."""
    name = cluster.name
    with DAG(
        dag_id=f"muster_stuck__{name}",
        dag_display_name=f"Muster, stuck: {name}",
        description="Asks a person whether to isolate a consumer that holds up a rebalance",
        doc_md=_DOC.format(name=name, stuck=cluster.stuck_after),
        schedule=[stuck(name)],
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        is_paused_upon_creation=False,  # it asks only when something is stuck, and then a person is to see it
        max_active_runs=1,
        default_args={"owner": "muster", "retries": 0, **cluster.airflow.coordinator.arguments()},
        tags=["muster", "stuck", name],
    ) as dag:

        @task(execution_timeout=timedelta(minutes=2))
        def find() -> list[dict[str, Any]]:
            """Tell who holds things up now, and what to ask about each."""
            return find_questions(name, get_current_context())

        AskAPerson.partial(
            task_id="ask",
            cluster=name,
            # Airflow resumes the task at the answer, and takes it for dead if that comes before the executor has
            # reported the end of the process that asked, some seconds late. Then the question is put again.
            retries=3,
            retry_delay=timedelta(seconds=1),
            outlets=[EVENTS],
            map_index_template="{{ task.about }}",
        ).expand_kwargs(find())
    return dag


def find_questions(name: str, context: Context) -> list[dict[str, Any]]:
    """Return the arguments of one `AskAPerson` a question. Raises `AirflowSkipException` if there is none."""
    from muster.airflow.coordination import open_cluster  # noqa: PLC0415 - see the module
    from muster.coordinator.stuck import questions  # noqa: PLC0415

    with open_cluster(load_clusters()[name], context) as coordinator:
        found = questions(coordinator)
    if not found:
        raise AirflowSkipException("no consumer holds anything up any more")
    return [
        {
            "consumer": each.consumer,
            "subject": each.subject,
            "body": each.body,
            "options": [*_answers(each.consumer, each.commands), WAIT],
            "records": [list(record) for record in each.records],
            "topic": each.topic,
        }
        for each in found
    ]


def _answers(consumer: str, commands: Collection[str]) -> list[str]:
    """Return what can be answered beside "Wait": one of the `commands` about a record, or to isolate `consumer`."""
    about_record = [label for label, name in ABOUT_RECORD.items() if name in commands]
    return about_record or ([f"{ISOLATE} {consumer}"] if consumer else [])


def still_holds_up(name: str, consumer: str) -> bool:
    """Tell whether some topic still waits for `consumer`. Raises `ZooKeeperError` or `ConsulError`."""
    from muster.airflow.coordination import open_edges  # noqa: PLC0415 - see the module

    with open_edges(load_clusters()[name]) as coordinator:
        return coordinator.waits_for(consumer)


def still_stands(name: str, topic: str) -> bool:
    """Tell whether `topic` is still held up. Raises `ZooKeeperError` or `ConsulError`."""
    from muster.airflow.coordination import open_edges  # noqa: PLC0415 - see the module

    with open_edges(load_clusters()[name]) as coordinator:
        return coordinator.stands_still(topic)


def still_fail(name: str, records: list[list[Any]]) -> bool:
    """Tell whether a consumer still fails with one of `records`. Raises `ZooKeeperError` or `ConsulError`."""
    from muster.airflow.coordination import open_edges  # noqa: PLC0415 - see the module

    with open_edges(load_clusters()[name]) as coordinator:
        return any(coordinator.fails_with(*record) for record in records)


def put_off(cluster: ClusterSettings, records: list[list[Any]], by: str) -> None:
    """Have the owners not ask about `records` for an hour. Raises `ConsulError`."""
    from muster.airflow.connections import CONNECTIONS  # noqa: PLC0415 - see the module
    from muster.edges.consul import ConsulCluster  # noqa: PLC0415

    answers = ConsulCluster.of(CONNECTIONS.consul(cluster.consul), cluster).answers
    for topic, partition, offset in records:
        answers.give((topic, partition), offset, Answer.WAIT, by, "answered when asked", time.time())


class AskAPerson(HITLOperator):
    """Asks about `consumer` of `cluster`, about the `records` (topic, partition, offset) that handlers fail with, or,
    without a consumer, about the `topic` that is held up, and does as answered.

    The return value is `{"consumer", "answer", "by"}`; `answer` is `isolated`, the name of a command about records,
    `waited` or `obsolete`.
    """

    template_fields: Collection[str] = ()

    def __init__(
        self,
        *,
        cluster: str,
        consumer: str,
        records: list[list[Any]] | None = None,
        topic: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.consumer = consumer
        self.records = records or []
        self.topic = topic

    @property
    def about(self) -> str:
        """What the question is about, in a few words."""
        first = ["{} [{}], offset {}".format(*record) for record in self.records[:1]]
        more = [f"and {len(self.records) - 1} more"] if len(self.records) > 1 else []
        return " ".join([*first, *more]) or self.consumer or f"topic {self.topic}"

    def execute(self, context: Context) -> None:
        """Put the question, and wait for the answer in the triggerer."""
        try:
            super().execute(context)
        except AWAITS_INPUT:  # a wait in which no code of ours would run
            ti_id = str(context["ti"].id)
            self.defer(
                trigger=self._trigger(ti_id=ti_id),
                method_name="execute_complete",
            )

    def _trigger(self, **given: Any) -> HoldUpTrigger:
        return HoldUpTrigger(
            self.cluster, self.consumer, records=self.records or None, topic=self.topic, **given
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Do as answered. Raises `AirflowFailException` if that cannot be done any more."""
        if event.get("obsolete"):
            self.log.info("%s holds up nothing any more; the question is closed", self.about)
            return self._answered("obsolete", None)
        if event.get("over"):
            return self._answered("waited", event.get("by"))
        who = (event.get("responded_by_user") or {}).get("name") or "unknown"
        cluster = load_clusters()[self.cluster]
        if event["chosen_options"] == [WAIT]:
            self.log.info("%s says: wait", who)
            if self.records:
                put_off(cluster, self.records, who)
            until = time.time() + cluster.stuck_after
            self.defer(
                trigger=self._trigger(until=until, by=who),
                method_name="execute_complete",
            )
        why = "held things up for too long; approved when asked"
        name, given = "isolate", [{"consumer": self.consumer}]
        if self.records:
            name = ABOUT_RECORD[event["chosen_options"][0]]
            fields = ("topic", "partition", "offset")
            given = [dict(zip(fields, map(str, record), strict=True)) for record in self.records]
            why = "it held its partition up; answered when asked"
        errors = []
        for each in given:
            try:
                carry_out_in_run(COMMANDS[name], cluster, Actor(who, why, time.time()), each, context)
            except CommandError as error:
                errors.append(str(error))
        if len(errors) == len(given):  # asking again would not help
            raise AirflowFailException("; ".join(errors))
        for why_not in errors:
            self.log.warning("not carried out: %s", why_not)
        return self._answered(name if self.records else "isolated", who)

    def _answered(self, answer: str, by: str | None) -> dict[str, Any]:
        return {"consumer": self.consumer, "answer": answer, "by": by}


@dataclass(eq=False, repr=False)
class HoldUpTrigger(MusterTrigger):
    """Fires when `consumer`, or each of the `records`, holds up nothing any more (`{"obsolete": True}`), at `until`
    (`{"over": True, "by"}`; seconds since the epoch), or when the question of the task instance `ti_id` is answered.

    Mostly Airflow resumes a task itself when a person answers; the trigger sees the answers that came before it ran.
    """

    cluster: str
    consumer: str
    ti_id: str | None = None
    until: float | None = None
    by: str | None = None
    records: list[list[Any]] | None = None
    topic: str = ""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every few seconds."""
        await asyncio.sleep(SETTLED)
        while True:
            if answer := await self._answer():
                yield event(answer)
                return
            try:
                obsolete = not await sync_to_async(self._stands)()
            except Exception as error:  # whatever is out of reach, the question stands
                self.log.warning("whether %s still holds things up is unknown: %s", self.consumer, error)
                obsolete = False
            if obsolete:
                await self._close()
                yield event({"obsolete": True})
                return
            if self.until is not None and time.time() >= self.until:
                yield event({"over": True, "by": self.by})
                return
            await asyncio.sleep(LOOK)

    def _stands(self) -> bool:
        if self.records:
            return still_fail(self.cluster, self.records)
        if self.topic:
            return still_stands(self.cluster, self.topic)
        return still_holds_up(self.cluster, self.consumer)

    # Airflow has no public way for a trigger to see or give the answer of its task.

    async def _answer(self) -> dict[str, Any] | None:
        if self.ti_id is None:
            return None
        found = await sync_to_async(get_hitl_detail_content_detail)(ti_id=self.ti_id)  # type: ignore[arg-type]
        if not (found.response_received and found.chosen_options):
            return None
        user = found.responded_by_user
        return {
            "chosen_options": list(found.chosen_options),
            "responded_by_user": None if user is None else {"id": user.id, "name": user.name},
        }

    async def _close(self) -> None:
        """Take the question off the list of those that wait for an answer."""
        if self.ti_id is not None:
            update = sync_to_async(update_hitl_detail_response)
            await update(ti_id=self.ti_id, chosen_options=[WAIT], params_input={})  # type: ignore[arg-type]
