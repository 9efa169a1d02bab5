"""The form of a cluster's commands: what it proposes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import ParamValidationError

from muster.airflow.command_dags import FROM_FILE, form, given, isolate_form
from muster.commands.command import CommandError
from muster.commands.table import COMMANDS
from muster.settings.clusters import load_clusters
from tests.dags.conftest import WriteClusters

pytestmark = pytest.mark.airflow


@pytest.fixture
def fields(write_clusters: WriteClusters) -> dict[str, Param]:
    write_clusters("c1", count=2, topics={"names": ["flights", "crews"], "patterns": ["x.*"]})
    return form(load_clusters()["c1"])


def body(fields: dict[str, Param], command: str, **filled: Any) -> dict[str, Any]:
    """What a command is given, with the other fields as the form has them."""
    return given(COMMANDS[command], {name: field.value for name, field in fields.items()} | filled, fields)


def test_form_has_the_fields_of_all_commands_and_asks_for_command_and_reason(fields):
    names = {name for command in COMMANDS.values() for name in (each.name for each in command.fields)}
    assert set(fields) - {"command", "reason", "options", "preview"} == names
    for name in ("command", "reason"):
        with pytest.raises(ParamValidationError):
            fields[name].resolve()
    with pytest.raises(ParamValidationError):
        fields["reason"].resolve("")
    with pytest.raises(ParamValidationError):
        fields["command"].resolve("insolate")
    for name in set(fields) - {"command", "reason"}:
        fields[name].resolve()
        assert fields[name].resolve(None) is None, "a field that is emptied"
        assert "null" in fields[name].schema["type"], "no asterisk"


def test_fields_of_a_pause_of_consumption_may_be_left_empty(fields):
    assert body(fields, "pause-consumption") == {"topic": "", "partitions": ""}
    filled = {"topic": "crews", "partitions": "0-3"}
    assert body(fields, "pause-consumption", **filled) == filled


def test_form_of_a_seek_needs_a_place_and_offers_a_preview(fields):
    assert fields["preview"].resolve() is False
    with pytest.raises(CommandError, match="is empty"):
        body(fields, "seek", topic="crews")
    asked = body(fields, "seek", to=" -10m ", topic="crews", preview=True)
    assert asked == {"to": "-10m", "topic": "crews", "partitions": "", "rebuild": False, "state": ""}
    assert body(fields, "seek", to="+0", rebuild=True)["rebuild"] is True
    with pytest.raises(CommandError, match="'pause' takes no rebuild"):
        body(fields, "pause", rebuild=True)
    with pytest.raises(CommandError, match="'pause' takes no preview"):
        body(fields, "pause", preview=True)


def test_form_of_an_import_takes_each_source_and_offers_a_preview(fields):
    nothing = {"group": "", "zookeeper_group": "", "zookeeper": "", "checkpoint": ""}
    assert body(fields, "import-offsets", preview=True) == nothing
    for name in nothing:
        assert fields[name].description.startswith("import-offsets: ")
        assert body(fields, "import-offsets", **{name: " x "}) == {**nothing, name: "x"}
    with pytest.raises(CommandError, match="'seek' takes no checkpoint"):
        body(fields, "seek", to="latest", checkpoint="/x")
    with pytest.raises(CommandError, match="'import-offsets' takes no topic"):
        body(fields, "import-offsets", group="x", topic="crews")


def test_form_of_a_replay_may_be_left_empty_and_offers_a_preview(fields):
    nothing = {"topic": "", "partitions": "", "error": ""}
    assert body(fields, "replay-deadletters", preview=True) == nothing
    assert body(fields, "replay-deadletters", error=" KeyError ") == {**nothing, "error": "KeyError"}
    with pytest.raises(CommandError, match="'seek' takes no error"):
        body(fields, "seek", to="latest", error="x")


def test_form_proposes_what_the_cluster_has(fields):
    assert fields["topic"].schema["examples"] == ["crews", "flights"]
    assert fields["topic"].resolve("x-1") == "x-1", "what a pattern finds may be named too"
    assert fields["consumer"].schema["examples"] == ["c1-1", "c1-2"]
    assert fields["consumer"].resolve("foreign") == "foreign"
    assert fields["consumer"].description.startswith("isolate, restore, drain, undrain, pin, ")
    assert "; subscribe, unsubscribe: A topic in Kafka, or a regular expr" in fields["topic"].description


@pytest.mark.parametrize("text", ["", "0", "0-3,7", " 1 , 3 - 4"])
def test_lists_of_partitions_are_taken(text, fields):
    assert fields["partitions"].resolve(text) == text


@pytest.mark.parametrize("text", ["a", "1,", "-1", "1--2", "all"])
def test_other_texts_are_flagged_before_the_run(text, fields):
    with pytest.raises(ParamValidationError):
        fields["partitions"].resolve(text)


@pytest.mark.parametrize(
    ("command", "empty"),
    [("isolate", "consumer"), ("pin", "topic"), ("unpin", "topic"), ("subscribe", "topic")],
)
def test_empty_field_that_the_command_takes_is_refused(command, empty, fields):
    with pytest.raises(CommandError, match=f"{empty} is empty; fill it in"):
        body(fields, command)


def test_field_that_the_command_does_not_take_is_refused(fields):
    with pytest.raises(CommandError, match="'pause' takes no consumer; leave it as it is"):
        body(fields, "pause", consumer="c1-1")
    with pytest.raises(CommandError, match="'pause' takes no assignor"):
        body(fields, "pause", assignor="range")
    assert body(fields, "pause") == {}
    assert body(fields, "isolate", consumer=" c1-1 ") == {"consumer": "c1-1"}


def test_an_assignor_is_chosen_with_options_or_taken_back(fields):
    assert body(fields, "assignor") == {"assignor": None}
    chosen = {"name": "my.Own", "options": {"budget": 3}}
    assert body(fields, "assignor", assignor="my.Own", options={"budget": 3}) == {"assignor": chosen}
    assert fields["assignor"].resolve() == FROM_FILE
    assert "load-aware" in fields["assignor"].schema["examples"]
    with pytest.raises(ParamValidationError):
        fields["options"].resolve("budget")


def test_topics_are_named_or_matched(fields):
    assert body(fields, "subscribe", topic="x") == {"topic": "x", "pattern": False}
    assert body(fields, "subscribe", topic="x.*", pattern=True) == {"topic": "x.*", "pattern": True}
    with pytest.raises(ParamValidationError):
        fields["pattern"].resolve("regex")


def test_fields_that_were_emptied_are_left_out(fields):
    emptied = dict.fromkeys(set(fields) - {"command", "reason"})
    assert body(fields, "pause-consumption", **emptied) == {"topic": "", "partitions": ""}
    assert body(fields, "assignor", **emptied) == {"assignor": None}
    assert body(fields, "subscribe", **emptied | {"topic": "x"}) == {"topic": "x", "pattern": False}
    with pytest.raises(CommandError, match="consumer is empty; fill it in"):
        body(fields, "isolate", **emptied)


def test_command_field_says_what_each_command_does(fields):
    told = fields["command"].schema["description_md"]
    assert fields["command"].description is None, "else Airflow would show it instead"
    assert told.splitlines() == [f"- **{name}**: {command.summary}" for name, command in COMMANDS.items()]


def test_isolation_has_three_fields_and_takes_any_consumer(write_clusters: WriteClusters):
    write_clusters("c1", count=2)
    fields = isolate_form(load_clusters()["c1"])
    assert list(fields) == ["consumer", "command", "reason"]
    assert fields["consumer"].schema["examples"] == ["c1-1", "c1-2"]
    assert fields["command"].schema["enum"] == ["isolate", "restore"]
    for name in ("consumer", "reason"):
        with pytest.raises(ParamValidationError):
            fields[name].resolve()
    assert fields["consumer"].resolve("foreign") == "foreign"
