"""Neighbouring versions: what version 1 wrote is read, and what one further off wrote is not used.

`tests/support/version_1/written.json` was written by the code of version 1. `tests/install` has both run together.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from muster.airflow.submission import Submission
from muster.airflow.trigger import ConsumerTrigger
from muster.core import wire
from muster.core.model import State, TopicAssignment, TopicState
from muster.core.wire import PROTOCOL, WireError
from muster.settings.consumer import VARIABLE, VERSION, ConsumerSettings
from tests.support.consumer_settings import consumer_settings

WRITTEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support" / "version_1" / "written.json").read_text(encoding="utf-8")
)


def test_nodes_and_status_of_version_1_are_read() -> None:
    assignment = wire.parse_assignment(WRITTEN["assignment"].encode(), "/a")
    assert assignment is not None
    assert (assignment.owners, assignment.epoch, assignment.standbys) == (
        {0: "c-1", 1: "c-2"},
        7,
        {0: ("c-2",)},
    )
    state = wire.parse_state(WRITTEN["state"].encode(), "/s")
    assert (state.state, state.to_close, state.missing) == (
        State.CLOSING,
        {"c-1": frozenset({1})},
        {"c-3": 1_795_000_000},
    )
    status = wire.parse_status(WRITTEN["status"].encode(), "http://h/status")
    assert status.topics["t"].closing == {1}


@pytest.mark.parametrize(("path", "arguments"), WRITTEN["triggers"], ids=lambda value: str(value)[-20:])
def test_deferred_triggers_of_version_1_are_made_again(path: str, arguments: dict[str, Any]) -> None:
    module, _, name = path.rpartition(".")
    trigger = getattr(importlib.import_module(module), name)(**arguments)
    again, changed = trigger.serialize()
    assert again == path
    assert changed.items() <= arguments.items()


def test_a_trigger_says_nothing_of_what_has_its_default() -> None:
    trigger = ConsumerTrigger({}, "c-1", "i", 30.0, 60.0, log_position=7)
    assert trigger.serialize()[1].keys() == {
        *("watched", "consumer", "incarnation", "lost_after", "graceful_timeout", "log_position")
    }


def test_the_settings_and_the_note_of_a_submission_by_version_1_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, WRITTEN["environment"])
    monkeypatch.delenv(VERSION, raising=False)
    settings = ConsumerSettings.from_environment()
    assert (settings.consumer, settings.handlers["a.*"].handler, settings.metadata) == (
        "c-1",
        "x.y",
        {"zone": "a"},
    )
    assert Submission.from_dict(WRITTEN["submission"]) is not None


def test_a_setting_that_only_the_coordinator_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(consumer_settings().to_environment()[VARIABLE]) | {"invented_later": 1}
    monkeypatch.setenv(VARIABLE, json.dumps(told))
    with pytest.raises(ValueError, match="invented_later: this consumer's Muster does not know the setting"):
        ConsumerSettings.from_environment()


ASSIGNMENT = TopicAssignment("h:1", "g", {0: "a"}, 5)
STATE = TopicState(State.STABLE, epoch=5, since=1_795_000_000.0)


def of(version: object, data: bytes) -> bytes:
    """What a writer of this version of the protocol would have written."""
    return json.dumps(json.loads(data) | {"protocol": version}).encode()


def test_nodes_say_which_version_wrote_them() -> None:
    for data in (wire.format_assignment(ASSIGNMENT), wire.format_state(STATE)):
        assert json.loads(data)["protocol"] == PROTOCOL


@pytest.mark.parametrize("version", [PROTOCOL - 1, PROTOCOL, PROTOCOL + 1])
def test_neighbours_are_understood(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wire.parse_assignment(of(version, wire.format_assignment(ASSIGNMENT)), "/a") == ASSIGNMENT
    assert wire.parse_state(of(version, wire.format_state(STATE)), "/s") == STATE
    assert wire.parse_status(of(version, WRITTEN["status"].encode()), "http://h/status").consumer == "c-1"
    monkeypatch.setenv(VARIABLE, WRITTEN["environment"])
    monkeypatch.setenv(VERSION, str(version))
    assert ConsumerSettings.from_environment().consumer == "c-1"


@pytest.mark.parametrize("version", [PROTOCOL - 2, PROTOCOL + 2, 10**9])
def test_a_version_further_off_is_refused_and_nothing_is_to_be_deleted(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = rf"version {version} of the protocol, and here versions {PROTOCOL - 1} to {PROTOCOL + 1} are understood"
    with pytest.raises(WireError, match=rf"ZooKeeper node /a: it is of {said}") as caught:
        wire.parse_assignment(of(version, wire.format_assignment(ASSIGNMENT)), "/a")
    assert "delete" not in str(caught.value)
    with pytest.raises(WireError, match=rf"ZooKeeper node /s: it is of {said}"):
        wire.parse_state(of(version, wire.format_state(STATE)), "/s")
    with pytest.raises(WireError, match=rf"status answer of http://h/status: it is of {said}"):
        wire.parse_status(of(version, WRITTEN["status"].encode()), "http://h/status")
    monkeypatch.setenv(VARIABLE, WRITTEN["environment"])
    monkeypatch.setenv(VERSION, str(version))
    with pytest.raises(ValueError, match=said):
        ConsumerSettings.from_environment()


def test_a_version_further_off_is_named_even_where_nothing_else_is_understood() -> None:
    with pytest.raises(WireError, match="version 9 of the protocol"):
        wire.parse_assignment(b'{"owners": [], "protocol": 9}', "/a")


@pytest.mark.parametrize("version", ["2", 2.5, True, [2]])
def test_a_version_that_is_no_number_is_a_mistake(version: object) -> None:
    with pytest.raises(WireError, match="protocol: Input should be a valid integer"):
        wire.parse_state(of(version, wire.format_state(STATE)), "/s")
