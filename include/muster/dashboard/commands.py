"""The commands of `muster.commands.table` as the dashboard serves and takes them.

Each opens its own connections: commands are rare, must not use what a reading is using, and have to see what there is
now and not some seconds ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from pydantic import create_model

from muster.commands.command import Command, Kind, Standing
from muster.commands.table import COMMANDS, DID, standing_on, why_not
from muster.commands.target import Target
from muster.core.overrides import Overrides
from muster.dashboard.models import (
    AssignorChoice,
    CommandBody,
    CommandEntry,
    CommandsAnswer,
    CommandState,
    OverrideEntry,
    Said,
)
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connection_lookup import CONNECTIONS

VIA = "dashboard"
"""The surface, for the cluster's history."""

MOST = 100
"""Overrides of one command that are listed."""

OpenTarget = Callable[[ClusterSettings], Target]


def open_target(cluster: ClusterSettings) -> Target:
    """Return the real servers of `cluster`. Raises `ConnectionSettingsError`."""
    return Target.of(cluster, CONNECTIONS)


_TYPES: Mapping[Kind, tuple[object, object]] = {
    Kind.CONSUMER: (str, ...),
    Kind.TOPIC: (str, ...),
    Kind.PARTITIONS: (str, ...),
    Kind.DESTINATION: (str, ...),
    Kind.SOURCE: (str, ...),
    Kind.TEXT: (str, ...),
    Kind.NUMBER: (str, ...),
    Kind.FLAG: (bool, False),
    Kind.ASSIGNOR: (AssignorChoice | None, ...),
}
"""The type of a field in a request, and its default; `...` for none."""


def body_of(command: Command) -> type[CommandBody]:
    """Make the model of the command's request: its fields, and the reason."""
    fields = {each.name: (str, "") if each.optional else _TYPES[each.kind] for each in command.fields}
    name = f"{command.name.title().replace('-', '')}Body"
    return create_model(name, __base__=CommandBody, **fields)  # type: ignore[call-overload,no-any-return]


def commands_answer() -> CommandsAnswer:
    """Return the table, for the page."""
    return CommandsAnswer(commands=[_entry(command) for command in COMMANDS.values()], did=dict(DID))


def _entry(command: Command) -> CommandEntry:
    return CommandEntry(
        name=command.name,
        label=command.label,
        question=command.question,
        happens=[command.summary, *filter(None, command.documentation.split("\n\n"))],
        fields=list(command.fields),
        subject=command.subject,
        undo=command.undo,
        override=command.override,
        risky=command.risky,
        foresees=command.foresee is not None,
        preview=None if command.preview is None else dict(command.preview),
    )


def command_states(decided: Overrides) -> list[CommandState]:
    """Return every command, and whether it makes sense at all now."""
    reasons = {
        name: why_not(command, decided) if command.subject == "cluster" else ""
        for name, command in COMMANDS.items()
    }
    return [
        CommandState(lever=name, available=not reason, why_not=reason)
        for name, reason in {**reasons, "apply": ""}.items()
    ]


def override_entries(decided: Overrides) -> list[OverrideEntry]:
    """Return the overrides about consumers and topics, by command."""
    return [
        _override(command, each)
        for command in COMMANDS.values()
        if command.subject in {"consumer", "topic"}
        for each in islice(command.standing(decided), MOST)
    ]


def overrides_on(decided: Overrides, consumer: str) -> list[OverrideEntry]:
    """Return the overrides about this consumer alone."""
    return [_override(*found) for found in standing_on(decided, consumer)]


def _override(command: Command, standing: Standing) -> OverrideEntry:
    said = Said.of(standing.override)
    return OverrideEntry(command=command.name, on=dict(standing.on), said=said, does=standing.does)
