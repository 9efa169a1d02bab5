"""The table of commands: every entry is complete, and each surface can be made from it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.commands.command import Command, CommandError, Foreseen
from muster.commands.table import COMMANDS, DID, on_consumer, why_not
from muster.core.overrides import Drain, Exclusion, IsolationEntry, Overrides, Pause

BOTH = Overrides(
    isolated={"a": IsolationEntry(consumer="a", by="ann", at=1.0, why="w")},
    drained={"a": Drain("a", by="ann", at=1.0, why="w")},
    exclusions={("b", "t"): Exclusion("b", "t", by="ann", at=1.0, why="w")},
    paused=Pause(by="ann", at=1.0, why="w"),
)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_entry_is_complete(command: Command) -> None:
    parameters = list(inspect.signature(command.run).parameters)
    assert parameters == ["target", "actor", *(each.name for each in command.fields)]
    assert command.summary.endswith(".")
    assert command.question.endswith("?")
    assert set(re.findall(r"{(\w+)}", command.question)) <= {"cluster", *(f.name for f in command.fields)}
    if command.undo:
        undo = COMMANDS[command.undo]
        assert command.override
        assert {each.name for each in undo.fields} <= {each.name for each in command.fields}


def test_undo_is_offered_where_the_override_stands() -> None:
    assert on_consumer(Overrides(), "a") == ["isolate", "drain", "exclude"]
    assert on_consumer(BOTH, "a") == ["restore", "undrain", "exclude"]
    assert on_consumer(BOTH, "b") == ["isolate", "drain", "exclude"]


def test_commands_that_make_no_sense_say_why() -> None:
    def reasons(decided: Overrides) -> dict[str, str]:
        found = {name: why_not(COMMANDS[name], decided) for name in ("pause", "resume", "rebalance")}
        return {name: reason for name, reason in found.items() if reason}

    assert reasons(Overrides()) == {"resume": "not paused"}
    assert reasons(BOTH) == {"pause": "paused already", "rebalance": "paused; resume it first"}
    assert why_not(COMMANDS["drain"], BOTH, {"consumer": "a"}) == "drained already"


def test_field_that_may_be_left_empty_is_not_blank() -> None:
    topic, partitions = COMMANDS["pause-consumption"].fields
    assert (topic.read({}), topic.read({"topic": None}), topic.read({"topic": ""})) == ("", "", "")
    assert partitions.read({"partitions": ""}) == frozenset()
    assert partitions.read({"partitions": "0-2"}) == {0, 1, 2}
    for field in (topic, partitions):
        with pytest.raises(CommandError, match="is blank; leave it empty to mean all"):
            field.read({field.name: "  "})


def test_import_is_about_its_source_and_takes_none_or_some_of_its_fields() -> None:
    command = COMMANDS["import-offsets"]
    assert (command.subject, command.risky, command.foresee is not None) == ("source", True, True)
    assert [field.name for field in command.fields] == ["group", "zookeeper_group", "zookeeper", "checkpoint"]
    assert [field.read({"group": " g "}) for field in command.fields] == ["g", "", "", ""]


def test_replay_is_offered_for_topics_and_takes_all_letters_unless_some_are_named() -> None:
    command = COMMANDS["replay-deadletters"]
    assert (command.subject, command.risky, command.foresee is not None) == ("topic", True, True)
    assert [field.read({}) for field in command.fields] == ["", frozenset(), ""]
    assert command.fields[-1].read({"error": " KeyError: 'a' "}) == "KeyError: 'a'"
    with pytest.raises(CommandError, match="has characters that cannot be shown"):
        command.fields[-1].read({"error": "a\x00b"})


@pytest.fixture
def type_command(tmp_path: Path) -> Callable[..., Result]:
    """Gives a command for cluster `c`, whose Consul does not answer."""
    file = tmp_path / "clusters.yaml"
    file.write_text(
        "clusters: {c: {consul_service: c, group_id: g, topics: [t], consumers: {handler: a.b}}}",
        encoding="utf-8",
    )
    environment = {"MUSTER_CLUSTERS": str(file), "AIRFLOW_CONN_MUSTER_CONSUL": "http://127.0.0.1:9"}
    return lambda *typed: CliRunner().invoke(main, [*typed, "--cluster", "c"], env=environment)


def test_preview_in_words_is_cut_unless_all_is_asked_for_and_json_never(
    type_command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = tuple(f"p{n}" for n in range(40))
    seen = Foreseen(partitions, ("together",), {"imports": [7]})
    monkeypatch.setattr("muster.cli.commands.foreseen", lambda *_: seen)
    typed = ("import-offsets", "--group", "g", "--preview")
    cut = [*partitions[:30], "and 10 more partition(s)", "together"]
    assert type_command(*typed).output.splitlines() == cut
    assert type_command(*typed, "--all").output.splitlines() == [*partitions, "together"]
    shown = {"preview": [*partitions, "together"], "imports": [7]}
    assert json.loads(type_command(*typed, "--json").output) == shown


def test_history_names_are_all_in_words() -> None:
    assert DID.keys() == {*COMMANDS, "clear-assignor", "lost-records", "left-out-records"}
