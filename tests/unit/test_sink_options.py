"""Options of sinks that are of no use, as they may stand in the settings: refused when the sink is made."""

from __future__ import annotations

from typing import Any

import pytest

from muster.consumer.handler import HandlerError, load_handler

DELTA = {"path": "/data/flights"}
DATABASE = {"driver": "sqlite3", "connect": {"database": ":memory:"}, "table": "flights"}


@pytest.mark.parametrize(
    ("sink", "option", "given", "says"),
    [
        ("DeltaSink", "path", "", "'path' is ''; give a text, such as /data/flights"),
        ("DeltaSink", "path", None, "'path' is None; give a text"),
        (
            "DeltaSink",
            "storage_options",
            "x",
            "'storage_options' is of type str; give keys and values, such as {",
        ),
        (
            "DeltaSink",
            "storage_options",
            {"AWS_ALLOW_HTTP": True},
            "'storage_options.AWS_ALLOW_HTTP' is of type bool; give a text, in quotes",
        ),
        (
            "DeltaSink",
            "storage_options",
            {"AWS_REGION": None},
            "'storage_options.AWS_REGION' is empty; give a te",
        ),
        ("DeltaSink", "storage_options", {1: "a"}, "'storage_options' is of type dict; give keys and values"),
        (
            "DeltaSink",
            "partition_by",
            "topic",
            "'partition_by' is 'topic'; give a list of names, such as [topic]",
        ),
        ("DeltaSink", "partition_by", ["topic", 1], "'partition_by' is ['topic', 1]; give a list of names"),
        ("DeltaSink", "partition_by", None, "'partition_by' is None; give a list of names"),
        ("DeltaSink", "new_columns", "true", "'new_columns' is 'true'; give true or false, without quotes"),
        ("DeltaSink", "upkeep", "false", "'upkeep' is 'false'; give true or false, without quotes"),
        ("DeltaSink", "upkeep", 0, "'upkeep' is 0; give true or false, without quotes"),
        ("DatabaseSink", "driver", None, "'driver' is None; give a text, such as psycopg"),
        ("DatabaseSink", "driver", "", "'driver' is ''; give a text, such as psycopg"),
        (
            "DatabaseSink",
            "connect",
            None,
            "'connect' is empty; give keys and values, such as {conninfo: host=db1}",
        ),
        (
            "DatabaseSink",
            "connect",
            "host=db1 password=secret",
            "'connect' is of type str; give keys and values",
        ),
        ("DatabaseSink", "table", "", "'table' is ''; give a text, such as flights"),
        ("DatabaseSink", "table", ["flights"], "'table' is ['flights']; give a text"),
        ("DatabaseSink", "offsets_table", " ", "'offsets_table' is ' '; give a text, such as muster_offsets"),
        (
            "DatabaseSink",
            "statement",
            "INSERT {",
            "'statement' is 'INSERT {': Single '{' encountered in format string; w",
        ),
        ("DatabaseSink", "statement", "INSERT }", "'statement' is 'INSERT }': Single '}' encountered"),
        ("DatabaseSink", "statement", None, "'statement' is None; give a text, such as INSERT INTO"),
    ],
)
def test_option_of_no_use_is_named_at_the_start(sink: str, option: str, given: Any, says: str) -> None:
    options = DELTA if sink == "DeltaSink" else DATABASE
    with pytest.raises(HandlerError) as raised:
        load_handler(f"muster.sinks.{sink}", options | {option: given})
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


def test_options_that_may_be_empty_are_taken() -> None:
    load_handler("muster.sinks.DeltaSink", DELTA | {"storage_options": None, "partition_by": []})
    load_handler("muster.sinks.DeltaSink", DELTA | {"storage_options": {"AWS_SESSION_TOKEN": ""}})
    load_handler("muster.sinks.DatabaseSink", DATABASE | {"connect": {}, "statement": ""})
