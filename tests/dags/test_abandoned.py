"""Consumers that run on although a person ended their task are asked to stop, and no others are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.airflow.abandoned import stop_abandoned
from muster.airflow.submission import Submission, TaskRef
from muster.edges.consul import ConsulCluster
from tests.conftest import Eventually

WATCH = TaskRef("ti", "dag", "run", "consumer", 0)
NOTE = Submission("i1", "h", 0.0, watch=WATCH)


@pytest.fixture
def consumer(discovery: ConsulCluster, cluster_name: str, eventually: Eventually):
    name = f"{cluster_name}-1"
    discovery.catalog.register(name, "127.0.0.1", 9, {"incarnation": "i1"}, "http://127.0.0.1:9/", 1.0, 60.0)
    eventually(lambda: name in discovery.catalog.members().registered)
    yield name
    discovery.catalog.deregister(name)


def states(state: str | None) -> Any:
    def get(*, dag_id: str, run_ids: list[str]) -> dict[str, dict[str, str | None]]:
        assert (dag_id, run_ids) == ("dag", ["run"])
        return {"run": {"consumer_0": state, "consumer_1": "deferred"}}

    return get


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "removed"])
def test_consumer_whose_task_was_ended_is_asked_once(discovery, consumer, state):
    discovery.jobs.note_submission(consumer, NOTE.as_dict())
    assert stop_abandoned(discovery, states(state)) == [consumer]
    request = discovery.jobs.stop_request(consumer)
    assert request.incarnation == "i1"
    assert f"became {state}" in request.why
    assert stop_abandoned(discovery, states(state)) == []


@pytest.mark.parametrize("state", ["deferred", "running", "up_for_retry", "queued", "scheduled", None])
def test_consumer_whose_task_goes_on_is_left_alone(discovery, consumer, state):
    discovery.jobs.note_submission(consumer, NOTE.as_dict())
    assert stop_abandoned(discovery, states(state)) == []


@pytest.mark.parametrize(
    "note",
    [
        replace(NOTE, incarnation="i0"),
        replace(NOTE, watch=None),
        replace(NOTE, watch=replace(WATCH, map_index=1)),
        replace(NOTE, watch=replace(WATCH, map_index=7)),
    ],
)
def test_consumer_is_left_alone_unless_its_own_task_was_ended(discovery, consumer, note):
    discovery.jobs.note_submission(consumer, note.as_dict())
    assert stop_abandoned(discovery, states("failed")) == []


def test_consumers_without_submission_or_registration_are_left_alone(discovery, consumer):
    discovery.jobs.note_submission("gone", NOTE.as_dict())
    assert stop_abandoned(discovery, states("failed")) == []
