"""What `muster.airflow.older` has triggers do in Airflow 3.2, which calls no `on_kill`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from airflow.triggers.base import BaseTrigger, TriggerEvent

from muster.airflow.base_trigger import event
from muster.airflow.trigger import ConsumerTrigger


class Trigger(ConsumerTrigger):
    """Fires when a test says so, and counts how often it stops its consumer."""

    def __init__(self) -> None:
        super().__init__({}, "billing-1", "an incarnation", 1.0, 1.0)
        self.begun, self.fires = asyncio.Event(), asyncio.Event()
        self.stops = 0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        self.begun.set()
        await self.fires.wait()
        yield event("gone")

    async def _stop(self) -> str:
        self.stops += 1
        return "stopped"


async def run_to_end(trigger: Trigger) -> None:
    """What a triggerer of 3.2 does with a trigger."""
    try:
        async for _ in trigger.run():
            pass
    finally:
        await trigger.cleanup()


def stops(*, cancelled: bool) -> int:
    async def scenario() -> int:
        trigger = Trigger()
        running = asyncio.create_task(run_to_end(trigger))
        await trigger.begun.wait()
        if cancelled:
            running.cancel()
        else:
            trigger.fires.set()
        await asyncio.wait([running])
        assert running.cancelled() == cancelled
        return trigger.stops

    return asyncio.run(scenario())


@pytest.mark.parametrize(("cancelled", "expected"), [(True, 1), (False, 0)])
def test_cancelled_trigger_stops_its_consumer(
    cancelled: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(BaseTrigger, "on_kill", raising=False)
    assert stops(cancelled=cancelled) == expected


def test_cleanup_leaves_stopping_to_newer_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def on_kill(self: BaseTrigger) -> None: ...

    monkeypatch.setattr(BaseTrigger, "on_kill", on_kill, raising=False)
    assert stops(cancelled=True) == 0
