"""Which commands make sense now, by the overrides in force. A command is checked again when it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.commands.command import Command, Standing
from muster.commands.table import COMMANDS
from muster.core.overrides import Overrides

CLUSTER_WIDE: Mapping[str, Any] = {}

_DOES = {command.undo: command for command in COMMANDS.values() if command.undo}
"""The command whose override another one takes back, by the name of the latter."""


def why_not(command: Command, decided: Overrides, on: Mapping[str, Any] = CLUSTER_WIDE) -> str:
    """Return why `command` makes no sense on `on` (fields with their values, all of one override's), '' if it
    does."""
    if (does := _DOES.get(command.name)) is not None and does is not command:
        return "" if _stands(does, decided, on) else f"not {does.override}"
    if command.undo != command.name and _stands(command, decided, on):
        return f"{command.override} already"
    return command.unavailable(decided)


def _stands(command: Command, decided: Overrides, on: Mapping[str, Any]) -> bool:
    return any(each.on == on for each in command.standing(decided))


def standing_on(decided: Overrides, consumer: str) -> list[tuple[Command, Standing]]:
    """Return the overrides about `consumer` alone, with the commands that left them."""
    on = {"consumer": consumer}
    return [
        (command, each)
        for command in COMMANDS.values()
        if command.subject == "consumer"
        for each in command.standing(decided)
        if each.on == on
    ]


def on_consumer(decided: Overrides, consumer: str) -> list[str]:
    """Return the names of the commands that make sense on `consumer`."""
    on = {"consumer": consumer}
    return [
        name
        for name, command in COMMANDS.items()
        if command.subject == "consumer" and not why_not(command, decided, on)
    ]
