"""The trigger form of a command's DAG, and reading what it was filled in with.

DAG files import this module, so it imports no client of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.sdk import Param

from muster.commands.command import PARTITION_LIST, Command, CommandError, Field, Kind, brief
from muster.core.assignors import BUILT_IN
from muster.settings.clusters import Clusters

FROM_FILE = "(as in clusters.yaml)"
"""The choice of an assignor that takes an earlier one back."""
BY_NAME, BY_PATTERN = "name", "pattern"


def form(command: Command, clusters: Clusters) -> dict[str, Param]:
    """Make the fields: cluster (a drop-down list), those of the command, and reason."""
    names = sorted(clusters.clusters)
    only: dict[str, Any] = {"default": names[0]} if len(names) == 1 else {}
    cluster = Param(
        type="string",
        enum=names or ["(none)"],
        title="Cluster",
        description="As in clusters.yaml",
        **only,
    )
    fields = {
        name: param for each in command.fields for name, param in _PARAMS[each.kind](each, clusters).items()
    }
    reason = Param(type="string", minLength=1, title="Reason", description="Recorded in the audit history")
    return {"cluster": cluster, **fields, "reason": reason}


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


def _consumer(each: Field, clusters: Clusters) -> dict[str, Param]:
    configured = [c for _, cluster in sorted(clusters.clusters.items()) for c in cluster.consumer_ids()]
    return _text(each, configured)


def _topic(each: Field, clusters: Clusters) -> dict[str, Param]:
    return _text(each, sorted({name for c in clusters.clusters.values() for name in c.topics.names}))


def _text(each: Field, proposed: list[str]) -> dict[str, Param]:
    examples: dict[str, Any] = {"examples": proposed} if proposed else {}
    return {each.name: Param(type="string", minLength=1, title=each.label, description=each.hint, **examples)}


def _partitions(each: Field, _: Clusters) -> dict[str, Param]:
    return {each.name: Param(type="string", pattern=PARTITION_LIST, title=each.label, description=each.hint)}


def _pattern(each: Field, _: Clusters) -> dict[str, Param]:
    kind = Param(
        BY_NAME,
        type="string",
        enum=[BY_NAME, BY_PATTERN],
        title=f"Name or {each.label.lower()}",
        description=each.hint,
    )
    return {"kind": kind}


def _assignor(each: Field, _: Clusters) -> dict[str, Param]:
    assignor = Param(
        FROM_FILE,
        type="string",
        minLength=1,
        title=each.label,
        description=each.hint,
        examples=[FROM_FILE, *sorted(BUILT_IN)],
    )
    options = Param(
        {},
        type="object",
        title="Options",
        description='Of the assignor, such as {"budget": 10}; docs/assignors.md has them',
    )
    return {each.name: assignor, "options": options}


_PARAMS: Mapping[Kind, Callable[[Field, Clusters], dict[str, Param]]] = {
    Kind.CONSUMER: _consumer,
    Kind.TOPIC: _topic,
    Kind.PARTITIONS: _partitions,
    Kind.PATTERN: _pattern,
    Kind.ASSIGNOR: _assignor,
}
