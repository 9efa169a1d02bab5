"""The consumers operator without a scheduler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from muster.airflow.operator import MusterConsumerOperator
from muster.airflow.submission import Submission
from muster.airflow.trigger import ConsumerTrigger
from muster.edges.consul import ConsulCluster


class Task:
    """One consumer's task, as Airflow would run it: execute, defer, resume."""

    def __init__(self, cluster: str, discovery: ConsulCluster, task_state: str = "running") -> None:
        self.consumer = f"{cluster}-1"
        self.discovery = discovery
        self.operator = MusterConsumerOperator(task_id="consumer", cluster=cluster, consumer=self.consumer)
        self.task_state = task_state
        self.context: Any = {"ti": self.task_instance("try-1")}

    def task_instance(self, ti_id: str) -> Any:
        def get_task_states(**_: object) -> dict[str, dict[str, str]]:
            return {"run": {"consumer_0": self.task_state}}

        return SimpleNamespace(
            id=ti_id,
            dag_id="d",
            run_id="run",
            task_id="consumer",
            map_index=0,
            get_task_states=get_task_states,
        )

    def execute(self) -> ConsumerTrigger:
        with pytest.raises(TaskDeferred) as deferred:
            self.operator.execute(self.context)
        classpath, kwargs = deferred.value.trigger.serialize()
        assert classpath == "muster.airflow.trigger.ConsumerTrigger"
        return ConsumerTrigger(**kwargs)

    @property
    def submission(self) -> Submission:
        note = Submission.from_dict(self.discovery.jobs.submission(self.consumer))
        assert note is not None
        return note

    @property
    def driver(self) -> int:
        return int(self.discovery.catalog.members().registered[self.consumer].meta["pid"])

    def registered(self) -> bool:
        return self.consumer in self.discovery.catalog.members().registered


async def first_event(trigger: ConsumerTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")
