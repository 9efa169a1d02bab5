"""The watch that all triggers of a triggerer share: whatever goes wrong, it says so and goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from muster.airflow import watcher
from muster.core.model import Consumer, Membership
from muster.edges.consul import Members, Registration, StopRequest, WaitIndex


class FailingOnce:
    """A Consul whose second reading of the members fails with an exception that is not Consul's."""

    readings = 0

    def __init__(self, *_: object, **__: object) -> None:
        """The same for all that are made."""

    def wait(self, index: WaitIndex, timeout: float) -> WaitIndex:
        return index

    @property
    def catalog(self) -> FailingOnce:
        return self

    jobs = catalog

    def stop_requests(self) -> dict[str, StopRequest]:
        return {}

    def members(self) -> Members:
        FailingOnce.readings += 1
        if FailingOnce.readings == 2:
            raise RuntimeError("can't start new thread")
        if FailingOnce.readings == 1:
            return Members(Membership(live={"x": Consumer("x")}), {"x": Registration("x", "i", True)})
        return Members(Membership(live={}), {})


async def no_settings(_: str) -> None:
    return None


def test_watch_goes_on_after_an_exception_that_is_not_consuls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FailingOnce, "readings", 0)
    monkeypatch.setattr(watcher, "ConsulCluster", FailingOnce)
    monkeypatch.setattr(watcher, "aconsul_settings", no_settings)
    monkeypatch.setattr(watcher, "AGAIN", 0.05)

    async def watch() -> list[str]:
        errors: list[str] = []
        async with watcher.watching(watcher.Watched("c", "s", "k", "muster")) as watch:
            while "x" in (watch.members.registered if watch.members else {"x": None}):
                await watch.changed(1.0)
                errors.append(watch.error)
            assert watch.error == ""
        return errors

    with caplog.at_level(logging.WARNING):
        errors = asyncio.run(asyncio.wait_for(watch(), 10))
    [said] = {error for error in errors if error}
    assert "RuntimeError: can't start new thread" in said
    assert "'c'" in said
    [record] = [record for record in caplog.records if record.name == watcher.__name__]
    assert record.exc_info, "where it came from is in the log"
