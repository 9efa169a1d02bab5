"""The question whether to isolate a consumer, as an Airflow task that waits for a person (human in the loop).

Airflow's own operator would wait until a person answers. This one also looks whether the question is still one: when
the consumer holds up nothing any more, it closes by itself. After "Wait" it lets `patience` seconds pass before the
run ends and another question may come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.hitl import (
    get_hitl_detail_content_detail,
    update_hitl_detail_response,
    upsert_hitl_detail,
)
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

if TYPE_CHECKING:
    from airflow.sdk import Context

LOOK = 5.0
"""Seconds between two looks at whether the consumer still holds things up."""
SETTLED = 6.0
"""Seconds that a trigger runs at least before it fires, as in `muster.airflow.trigger`."""
WAIT = "Wait"


class AskToIsolate(HITLOperator):
    """Asks about `consumer` of `cluster`, and isolates it if that is the answer. `patience` is in seconds.

    The return value is `{"consumer", "answer", "by"}`; `answer` is `isolated`, `waited` or `obsolete`.
    """

    template_fields: Collection[str] = ()

    def __init__(self, *, cluster: str, consumer: str, patience: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.consumer = consumer
        self.patience = patience

    def execute(self, context: Context) -> None:
        """Put the question, and wait for the answer in the triggerer."""
        ti_id = context["task_instance"].id
        upsert_hitl_detail(
            ti_id=ti_id,
            options=self.options,
            subject=self.subject,
            body=self.body,
            defaults=None,
            multiple=False,
            params={},
            assigned_users=None,
        )
        self.log.info("asked: %s", self.subject)
        self.defer(
            trigger=HoldUpTrigger(self.cluster, self.consumer, ti_id=str(ti_id)),
            method_name="execute_complete",
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Do as answered. Raises `AirflowFailException` if the consumer cannot be isolated any more."""
        from muster.airflow.stuck import isolate  # noqa: PLC0415 - DAG files load this module, and stay light
        from muster.commands.command import CommandError  # noqa: PLC0415

        if event.get("obsolete"):
            self.log.info("consumer %s holds up nothing any more; the question is closed", self.consumer)
            return self._answered("obsolete", None)
        if event.get("over"):
            return self._answered("waited", event.get("by"))
        who = (event.get("responded_by_user") or {}).get("name") or "unknown"
        if event["chosen_options"] == [WAIT]:
            self.log.info("%s says: wait", who)
            self.defer(
                trigger=HoldUpTrigger(self.cluster, self.consumer, until=time.time() + self.patience, by=who),
                method_name="execute_complete",
            )
        try:
            isolate(self.cluster, self.consumer, who, self.patience, context)
        except CommandError as error:  # asking again would not help
            raise AirflowFailException(str(error)) from error
        return self._answered("isolated", who)

    def _answered(self, answer: str, by: str | None) -> dict[str, Any]:
        return {"consumer": self.consumer, "answer": answer, "by": by}


class HoldUpTrigger(BaseTrigger):
    """Fires when `consumer` holds up nothing any more (`{"obsolete": True}`), at `until` (`{"over": True, "by"}`;
    seconds since the epoch), or when the question of the task instance `ti_id` is answered.

    Mostly Airflow resumes a task itself when a person answers; the trigger sees the answers that came before it ran.
    """

    def __init__(
        self,
        cluster: str,
        consumer: str,
        ti_id: str | None = None,
        until: float | None = None,
        by: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's is not annotated
        self.cluster = cluster
        self.consumer = consumer
        self.ti_id = ti_id
        self.until = until
        self.by = by

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What the triggerer makes this trigger from again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "cluster": self.cluster,
                "consumer": self.consumer,
                "ti_id": self.ti_id,
                "until": self.until,
                "by": self.by,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every few seconds."""
        from muster.airflow.stuck import still_holds_up  # noqa: PLC0415 - DAG files load this module

        await asyncio.sleep(SETTLED)
        while True:
            if event := await self._answer():
                yield event
                return
            try:
                obsolete = not await sync_to_async(still_holds_up)(self.cluster, self.consumer)
            except Exception as error:  # whatever is out of reach, the question stands
                self.log.warning("whether %s still holds things up is unknown: %s", self.consumer, error)
                obsolete = False
            if obsolete:
                await self._close()
                yield _event({"obsolete": True})
                return
            if self.until is not None and time.time() >= self.until:
                yield _event({"over": True, "by": self.by})
                return
            await asyncio.sleep(LOOK)

    async def _answer(self) -> TriggerEvent | None:
        if self.ti_id is None:
            return None
        found = await sync_to_async(get_hitl_detail_content_detail)(ti_id=self.ti_id)  # type: ignore[arg-type]
        if not (found.response_received and found.chosen_options):
            return None
        user = found.responded_by_user
        return _event(
            {
                "chosen_options": list(found.chosen_options),
                "responded_by_user": None if user is None else {"id": user.id, "name": user.name},
            }
        )

    async def _close(self) -> None:
        """Take the question off the list of those that wait for an answer."""
        if self.ti_id is not None:
            update = sync_to_async(update_hitl_detail_response)
            await update(ti_id=self.ti_id, chosen_options=[WAIT], params_input={})  # type: ignore[arg-type]


def _event(payload: dict[str, Any]) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's is not annotated
