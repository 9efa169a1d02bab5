"""The commands of `muster.commands.table` as commands of `muster`.

Each asks for a reason, which is kept with the override in Consul and in the cluster's history. The coordinator acts
on it with its next run; nothing here touches an assignment.
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from muster.cli.errors import explained, read_clusters
from muster.cli.what_if import PairType
from muster.commands.audit import carry_out, foreseen
from muster.commands.command import SHOWN, Actor, Command, CommandError, Field, Kind, brief
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.settings.connection_lookup import CONNECTIONS

_SHARED: tuple[click.Parameter, ...] = (
    click.Option(["--cluster"], required=True, help="As in the settings."),
    click.Option(["--by"], default=getpass.getuser, show_default="you", help="Who decided it."),
    click.Option(["--json", "as_text"], is_flag=True, help="Print JSON."),
)

_CODES = "Exit codes: 0 done, 2 refused, or unusable settings, 3 ZooKeeper, Consul or Kafka out of reach."


def click_command(command: Command) -> click.Command:
    """Make the command of the command line."""

    def run(cluster: str, reason: str | None, by: str, as_text: bool, **typed: Any) -> None:
        if reason is None:
            if not typed.get("preview"):
                raise click.UsageError("Missing option '--reason'.")
            reason = "preview"
        with explained():
            target = Target.of(read_clusters()[cluster], CONNECTIONS, own_rights=True)
            given = _given(command.fields, typed)
            if typed.get("preview"):
                seen = foreseen(command, target, Actor(by, reason, time.time()), given)
                values = {"preview": seen.lines(None), **seen.values}
                lines = seen.lines(None if typed.get("everything") else SHOWN)
                click.echo(json.dumps(values, indent=2) if as_text else "\n".join(lines))
                return
            outcome = carry_out(command, target, Actor(by, reason, time.time()), given, "command line")
        click.echo(json.dumps(dict(outcome.values), indent=2) if as_text else "\n".join(outcome.lines))

    parameters = [parameter for each in command.fields for parameter in _PARAMETERS[each.kind](each)]
    why = "Reason, recorded in the audit history"
    if command.foresee is None:
        parameters.append(click.Option(["--reason"], required=True, help=f"{why}."))
    else:
        parameters += [
            click.Option(["--preview"], is_flag=True, help="Say what it would do; change nothing."),
            click.Option(["--reason"], help=f"{why}; not needed with --preview."),
        ]
        if command.subject != "record":
            text = f"With --preview: all partitions, in place of the first {SHOWN}."
            parameters.append(click.Option(["--all", "everything"], is_flag=True, help=text))
    text = "\n\n".join(filter(None, [command.summary, command.documentation, _CODES]))
    return click.Command(
        command.name, callback=run, params=[*parameters, *_SHARED], help=text, short_help=command.summary
    )


def _argument(each: Field) -> list[click.Parameter]:
    return [click.Argument([each.name], required=not each.optional)]


def _option(each: Field) -> list[click.Parameter]:
    name = each.name.replace("_", "-")
    return [click.Option([f"--{name}"], required=not each.optional, help=f"{each.hint}.")]


def _flag(each: Field) -> list[click.Parameter]:
    return [click.Option([f"--{each.name}"], is_flag=True, help=f"{each.hint}.")]


def _assignor(_: Field) -> list[click.Parameter]:
    return [
        click.Argument(["name"], required=False),
        click.Option(
            ["--option", "options"],
            multiple=True,
            type=PairType("key", "value"),
            help="An option of NAME. Repeatable.",
        ),
        click.Option(
            ["--clear"], is_flag=True, help="Take the choice back: the assignor of the settings counts again."
        ),
    ]


_PARAMETERS: Mapping[Kind, Callable[[Field], list[click.Parameter]]] = {
    Kind.CONSUMER: _argument,
    Kind.TOPIC: _argument,
    Kind.PARTITIONS: _argument,
    Kind.NUMBER: _argument,
    Kind.FLAG: _flag,
    Kind.DESTINATION: _option,
    Kind.SOURCE: _option,
    Kind.TEXT: _option,
    Kind.ASSIGNOR: _assignor,
}


def _given(fields: tuple[Field, ...], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was typed as the body of the command in the HTTP API."""
    for each in fields:
        if each.optional and typed[each.name] == "":
            # A variable of a script that is not set must not mean all topics.
            raise CommandError(f"{each.name} is empty text; leave it out{each.empty}, or name one")
    return {each.name: _typed(typed) if each.kind is Kind.ASSIGNOR else typed[each.name] for each in fields}


def _typed(typed: Mapping[str, Any]) -> dict[str, Any] | None:
    brief("options", str(typed["options"]))
    name, options, clear = typed["name"], dict(typed["options"]), typed["clear"]
    if clear == (name is not None) or (clear and options):
        raise CommandError("give either the NAME of an assignor, with its options, or --clear")
    return None if name is None else {"name": name, "options": options}


CLICK_COMMANDS = tuple(click_command(command) for command in COMMANDS.values())
