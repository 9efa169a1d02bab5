"""The DAGs `muster_commands__[cluster]` and `muster_isolate__[cluster]`, to be triggered by hand with a form.

The first has every command of `muster.commands.table`, the second what is needed most and in a hurry. Each cluster
has its own, so that Airflow's rights to a DAG are rights to one cluster. A run leaves its outcome in the cluster's
history, as its own note, and as an event of the Asset `muster://[CLUSTER]/levers`, on which other DAGs can be
scheduled; the note of a refused run says why. A DAG file imports no client of a server, so the task does.

Airflow shows an asterisk at each field whose type has no `null`, and gives None for one that is emptied.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from airflow.sdk import DAG, Asset, AssetAlias, Context, Param, get_current_context, task

from muster.airflow.run_notes import OURS, leave_note
from muster.commands.command import (
    PARTITION_LIST,
    WHOLE_NUMBER,
    Actor,
    Command,
    CommandError,
    Field,
    Kind,
    brief,
    listed,
)
from muster.commands.table import COMMANDS
from muster.core.assignors import BUILT_IN
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import load_clusters

log = logging.getLogger(__name__)

EVENTS = AssetAlias(name="muster_levers", group="muster")
"""The outlet of a task that carries a command out."""

FROM_FILE = "(as in the settings)"
"""The choice of an assignor that takes an earlier one back."""
PREVIEW = "preview"
"""The field that asks only what would be done."""
ISOLATE, RESTORE = "isolate", "restore"


def commands_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_commands__[cluster]`."""
    what = f"What a person may have done in cluster {cluster.name}: isolate, drain, pin, pause and so on"
    return _dag(cluster, "commands", "commands for", what, form(cluster), list(COMMANDS))


def isolate_dag(cluster: ClusterSettings) -> DAG:
    """Build `muster_isolate__[cluster]`."""
    what = f"Takes a consumer of cluster {cluster.name} out as a whole, or back"
    return _dag(cluster, "isolate", "isolate a consumer of", what, isolate_form(cluster), [ISOLATE, RESTORE])


def _dag(
    cluster: ClusterSettings,
    kind: str,
    title: str,
    description: str,
    params: dict[str, Param],
    commands: list[str],
) -> DAG:
    name = cluster.name
    with DAG(
        dag_id=f"{OURS}{kind}__{name}",
        dag_display_name=f"Muster: {title} {name}",
        description=description,
        doc_md=_documented(commands),
        params=params,
        schedule=None,
        is_paused_upon_creation=False,  # it runs only when a person triggers it, and then at once
        default_args={"owner": "muster", "retries": 0, **cluster.airflow.coordinator.arguments()},
        tags=["muster", "by hand", name],
    ) as dag:

        @task(outlets=[EVENTS])
        def carry_out() -> dict[str, Any]:
            return from_form(name, get_current_context())

        carry_out()
    return dag


def _documented(commands: list[str]) -> str:
    told = (COMMANDS[name] for name in commands)
    return "\n\n".join(f"**{each.name}**: {each.summary} {each.documentation}".strip() for each in told)


def from_form(cluster: str, context: Context) -> dict[str, Any]:
    """Carry out what the run's form says.

    If that cannot be done, the run's note says why, and the error is raised: `CommandError`, `SettingsError`, or what
    the servers' clients raise.
    """
    try:
        return _from_form(cluster, context)
    except Exception as error:
        leave_note(context, f"failed: {error}")
        raise


def _from_form(cluster: str, context: Context) -> dict[str, Any]:
    params = context["params"]
    settings = load_clusters()[cluster]
    name = asked(params, "command")
    if name not in COMMANDS:
        raise CommandError(f"there is no command {name!r}; there are: {listed(COMMANDS)}")
    actor = Actor(context["dag_run"].triggering_user_name or "airflow", asked(params, "reason"), time.time())
    body = given(COMMANDS[name], params, form(settings))
    carry_out = _foresee_in_run if params.get(PREVIEW) else carry_out_in_run
    return carry_out(COMMANDS[name], settings, actor, body, context)


def carry_out_in_run(
    command: Command, cluster: ClusterSettings, actor: Actor, body: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Carry out `command` in a task of any DAG, and return its values. Raises `CommandError`."""
    from muster.airflow.connections import CONNECTIONS  # noqa: PLC0415 - see the module
    from muster.commands.audit import carry_out  # noqa: PLC0415
    from muster.commands.target import Target  # noqa: PLC0415

    run = context["dag_run"]
    outcome = carry_out(command, Target.of(cluster, CONNECTIONS), actor, body, f"{run.dag_id} {run.run_id}")
    for line in outcome.lines:
        log.info("%s", line)
    leave_note(context, outcome.lines[0])
    _leave_event(context, command.name, outcome.values, outcome.lines[0])
    return dict(outcome.values)


def _foresee_in_run(
    command: Command, cluster: ClusterSettings, actor: Actor, body: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    from muster.airflow.connections import CONNECTIONS  # noqa: PLC0415 - see the module
    from muster.commands.audit import foreseen  # noqa: PLC0415
    from muster.commands.target import Target  # noqa: PLC0415

    lines = foreseen(command, Target.of(cluster, CONNECTIONS), actor, body).lines()
    for line in lines:
        log.info("%s", line)
    leave_note(context, f"preview, nothing was changed: {lines[-1]}")
    return {"preview": list(lines)}


def _leave_event(context: Context, command: str, values: Mapping[str, Any], summary: str) -> None:
    if EVENTS not in context["task"].outlets:
        return
    cluster = values["cluster"]
    asset = Asset(name=f"muster_{cluster}_levers", uri=f"muster://{cluster}/levers", group="muster")
    run = f"{context['ti'].dag_id} {context['run_id']}"
    extra = {"lever": command, "summary": summary, **values, "run": run}
    context["outlet_events"][EVENTS].add(asset, extra=extra)


def form(cluster: ClusterSettings) -> dict[str, Param]:
    """Make the fields: the command, those of all commands, and the reason."""
    command = Param(type="string", enum=list(COMMANDS), title="Command", description_md=_summaries(COMMANDS))
    found: dict[str, Param] = {}
    for each in (field for command in COMMANDS.values() for field in command.fields):
        if each.name not in found:
            found |= _params(each, cluster, _hint(each.name))
    seen = ", ".join(command.name for command in COMMANDS.values() if command.foresee is not None)
    text = f"{seen}: say in the run's log what it would do, and change nothing"
    found[PREVIEW] = Param(False, type=["null", "boolean"], title="Preview only", description=text)
    return {"command": command, **found, "reason": _reason()}


def isolate_form(cluster: ClusterSettings) -> dict[str, Param]:
    """Make the fields: the consumer, what is to become of it, and the reason."""
    ids = list(cluster.consumer_ids())
    hint = "Its id: one of the settings, or any other that Consul has"
    both = [ISOLATE, RESTORE]
    consumer = Param(type="string", minLength=1, title="Consumer", description=hint, examples=ids)
    command = Param(
        ISOLATE, type="string", enum=both, title="Isolate or restore", description_md=_summaries(both)
    )
    return {"consumer": consumer, "command": command, "reason": _reason()}


def _summaries(commands: Iterable[str]) -> str:
    return "\n".join(f"- **{name}**: {COMMANDS[name].summary}" for name in commands)


def _reason() -> Param:
    return Param(type="string", minLength=1, title="Reason", description="Recorded in the audit history")


def _hint(name: str) -> str:
    """Return what the field `name` is to each command that takes it."""
    takers: dict[str, list[str]] = {}
    for command in COMMANDS.values():
        for each in command.fields:
            if each.name == name:
                takers.setdefault(each.hint, []).append(command.name)
    return "; ".join(f"{', '.join(commands)}: {hint}" for hint, commands in takers.items())


def _params(each: Field, cluster: ClusterSettings, hint: str) -> dict[str, Param]:
    """Make the fields of the form that fill in this one. Each may stay empty, because not every command takes it."""
    texts: dict[str, Any] = {"type": ["null", "string"], "title": each.label, "description": hint}
    match each.kind:
        case Kind.CONSUMER | Kind.TOPIC | Kind.DESTINATION | Kind.SOURCE | Kind.TEXT:
            return {each.name: _text(texts, _proposed(each.kind, cluster))}
        case Kind.PARTITIONS | Kind.NUMBER:
            pattern = PARTITION_LIST if each.kind is Kind.PARTITIONS else WHOLE_NUMBER
            return {each.name: Param("", pattern=f"^$|{pattern}", **texts)}
        case Kind.FLAG:
            return {each.name: Param(False, **texts | {"type": ["null", "boolean"]})}
        case Kind.ASSIGNOR:
            options = 'Of the assignor, such as {"budget": 10}'
            return {
                each.name: Param(FROM_FILE, minLength=1, examples=[FROM_FILE, *sorted(BUILT_IN)], **texts),
                "options": Param({}, type=["null", "object"], title="Options", description=options),
            }


def _proposed(kind: Kind, cluster: ClusterSettings) -> list[str]:
    """Return what the form proposes for a text, among others."""
    match kind:
        case Kind.CONSUMER:
            return list(cluster.consumer_ids())
        case Kind.TOPIC:
            return sorted(cluster.topics.names)
        case Kind.DESTINATION:
            return ["earliest", "latest", "-10m", "-1000"]
        case _:
            return []


def _text(texts: Mapping[str, Any], proposed: list[str]) -> Param:
    examples: dict[str, Any] = {"examples": proposed} if proposed else {}
    return Param("", **texts, **examples)


def asked(params: Mapping[str, Any], name: str) -> str:
    """Return the text under `name`, '' for none. Raises `CommandError` for text that is too long."""
    value = params.get(name)
    return "" if value is None else brief(name, str(value)).strip()


def given(command: Command, params: Mapping[str, Any], fields: Mapping[str, Param]) -> dict[str, Any]:
    """Return the filled-in `fields` of the form as the body of the command in the HTTP API.

    Raises `CommandError` where a field is empty, or one is filled in that the command does not take: the person meant
    another command.
    """
    taken = {name for each in command.fields for name in _PARTS.get(each.kind, (each.name,))}
    taken |= {"command", "reason"} if command.foresee is None else {"command", "reason", PREVIEW}
    for name in fields.keys() - taken:
        if params.get(name) not in (None, fields[name].value):
            raise CommandError(
                f"'{command.name}' takes no {name}; leave it as it is, or choose the command that was meant"
            )
    return {each.name: _given(each, params) for each in command.fields}


_PARTS: Mapping[Kind, tuple[str, ...]] = {Kind.ASSIGNOR: ("assignor", "options")}
"""The names in the form of a field that has others there."""


def _given(each: Field, params: Mapping[str, Any]) -> Any:
    if each.kind is Kind.FLAG:
        return bool(params.get(each.name))
    if each.kind is not Kind.ASSIGNOR:
        if not (text := asked(params, each.name)) and not each.optional:
            raise CommandError(f"{each.label.lower()} is empty; fill it in")
        return text
    name, options = asked(params, "assignor"), params.get("options") or {}
    if name not in ("", FROM_FILE):
        return {"name": name, "options": options}
    if options:
        raise CommandError(f"options belong to an assignor; leave them empty with {FROM_FILE}")
    return None
