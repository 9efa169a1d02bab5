"""The DAGs `muster_[command]`, each to be triggered by hand with a form, made from `muster.commands.table`.

A run leaves its outcome in the cluster's history, as its own note, and as an event of the Asset
`muster://[CLUSTER]/levers`, on which other DAGs can be scheduled. The cluster is only known when the form is filled
in, so the tasks name an alias as their outlet. A DAG file imports no client of a server, so the tasks do.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
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
)
from muster.commands.table import COMMANDS
from muster.core.assignors import BUILT_IN
from muster.settings.clusters import Clusters, ClusterSettings, load_clusters

log = logging.getLogger(__name__)

EVENTS = AssetAlias(name="muster_levers", group="muster")
"""The outlet of a task that carries a command out."""

FROM_FILE = "(as in clusters.yaml)"
"""The choice of an assignor that takes an earlier one back."""
BY_NAME, BY_PATTERN = "name", "pattern"


def command_dags(clusters: Clusters, only: str | None = None) -> Iterator[DAG]:
    """Make the DAG of each command, or the one with the id `only`."""
    for command in COMMANDS.values():
        if only in {None, f"{OURS}{command.name}"}:
            yield _dag(command, clusters)


def _dag(command: Command, clusters: Clusters) -> DAG:
    with DAG(
        dag_id=f"{OURS}{command.name}",
        dag_display_name=f"Muster: {command.title}",
        description=command.summary,
        doc_md=command.documentation or None,
        params=form(command, clusters),
        schedule=None,
        is_paused_upon_creation=False,  # it runs only when a person triggers it, and then at once
        default_args={"owner": "muster", "retries": 0},
        tags=["muster", "by hand"],
    ) as dag:

        @task(task_id=command.name, outlets=[EVENTS])
        def carry_out() -> dict[str, Any]:
            return from_form(command, get_current_context())

        carry_out()
    return dag


def from_form(command: Command, context: Context) -> dict[str, Any]:
    """Carry out `command` as the run's form says. Raises `CommandError` or `SettingsError` if that cannot be done."""
    params = context["params"]
    cluster = load_clusters()[asked(params, "cluster")]
    actor = Actor(context["dag_run"].triggering_user_name or "airflow", asked(params, "reason"), time.time())
    return carry_out_in_run(command, cluster, actor, given(command, params), context)


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


def _leave_event(context: Context, command: str, values: Mapping[str, Any], summary: str) -> None:
    if EVENTS not in context["task"].outlets:
        return
    cluster = values["cluster"]
    asset = Asset(name=f"muster_{cluster}_levers", uri=f"muster://{cluster}/levers", group="muster")
    run = f"{context['ti'].dag_id} {context['run_id']}"
    extra = {"lever": command, "summary": summary, **values, "run": run}
    context["outlet_events"][EVENTS].add(asset, extra=extra)


def form(command: Command, clusters: Clusters) -> dict[str, Param]:
    """Make the fields: cluster (a drop-down list), those of the command, and reason."""
    names = sorted(clusters.clusters)
    only: dict[str, Any] = {"default": names[0]} if len(names) == 1 else {}
    enum = names or ["(none)"]
    cluster = Param(type="string", enum=enum, title="Cluster", description="As in clusters.yaml", **only)
    fields = {name: param for each in command.fields for name, param in _params(each, clusters).items()}
    reason = Param(type="string", minLength=1, title="Reason", description="Recorded in the audit history")
    return {"cluster": cluster, **fields, "reason": reason}


def _params(each: Field, clusters: Clusters) -> dict[str, Param]:
    """Make the fields of the form that fill in this one."""
    found = [clusters.clusters[name] for name in sorted(clusters.clusters)]
    texts: dict[str, Any] = {"type": "string", "title": each.label, "description": each.hint}
    match each.kind:
        case Kind.CONSUMER:
            return {each.name: _text(texts, [consumer for c in found for consumer in c.consumer_ids()])}
        case Kind.TOPIC:
            return {each.name: _text(texts, sorted({name for c in found for name in c.topics.names}))}
        case Kind.PARTITIONS:
            return {each.name: Param(pattern=PARTITION_LIST, **texts)}
        case Kind.NUMBER:
            return {each.name: Param(pattern=WHOLE_NUMBER, **texts)}
        case Kind.PATTERN:
            title = f"Name or {each.label.lower()}"
            return {"kind": Param(BY_NAME, enum=[BY_NAME, BY_PATTERN], **texts | {"title": title})}
        case Kind.ASSIGNOR:
            options = 'Of the assignor, such as {"budget": 10}; docs/assignors.md has them'
            return {
                each.name: Param(FROM_FILE, minLength=1, examples=[FROM_FILE, *sorted(BUILT_IN)], **texts),
                "options": Param({}, type="object", title="Options", description=options),
            }


def _text(texts: Mapping[str, Any], proposed: list[str]) -> Param:
    examples: dict[str, Any] = {"examples": proposed} if proposed else {}
    return Param(minLength=1, **texts, **examples)


def asked(params: Mapping[str, Any], name: str) -> str:
    """Return the text under `name`. Raises `CommandError` for text that is too long."""
    return brief(name, str(params[name])).strip()


def given(command: Command, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filled-in fields as the body of the command in the HTTP API. Raises `CommandError`."""
    return {each.name: _given(each, params) for each in command.fields}


def _given(each: Field, params: Mapping[str, Any]) -> Any:
    if each.kind is Kind.PATTERN:
        return asked(params, "kind") == BY_PATTERN
    if each.kind is not Kind.ASSIGNOR:
        return asked(params, each.name)
    name, options = asked(params, "assignor"), params["options"] or {}
    if name != FROM_FILE:
        return {"name": name, "options": options}
    if options:
        raise CommandError(f"options belong to an assignor; leave them empty with {FROM_FILE}")
    return None
