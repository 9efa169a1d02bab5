"""What the settings say of a cluster, as far as it can be tried here: assignors, notifiers and handler can be loaded,
and no machine on the network is shown the jobs' Spark UI."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping

from muster.consumer.connector import runs_with_driver
from muster.core.assignors import AssignorError, load_assignor
from muster.doctor.findings import Check, Part
from muster.settings.cluster_settings import ClusterSettings

IMPORT_TIMEOUT = 20.0
"""Seconds that importing the handler's module may take."""


def check_settings(part: Part, cluster: ClusterSettings) -> Iterator[Check]:
    """Check the assignors with their options, and whether notifiers and handlers are here."""
    for name, settings in (("assignor", cluster.assignor), ("shadow_assignor", cluster.shadow_assignor)):
        if settings is None:
            continue
        try:
            load_assignor(settings.name, settings.options)
        except AssignorError as error:
            yield part.refused(name, error)
        else:
            yield part.ok(name, settings.name)
    for notifier in cluster.on_stuck:
        if problem := _import_problem(notifier.notifier):
            yield part.failed(
                "on_stuck",
                f"{notifier.notifier} {problem}",
                "install its package where Airflow's tasks run, or correct on_stuck; no failure is reported so",
            )
        else:
            yield part.ok("on_stuck", f"{notifier.notifier} is here")
    of = cluster.consumers
    for path in dict.fromkeys([of.handler, *(one.handler for one in of.handlers.values())]):
        if problem := _import_problem(path):
            yield part.warning(
                "handler",
                f"{path} {problem}",
                "put its module on the PYTHONPATH of the drivers; that it is not here does no harm if it is there",
            )
        else:
            yield part.ok("handler", f"{path} is here")
    if of.count:
        yield _spark_ui(part, of.spark_conf)


def check_executors(part: Part, cluster: ClusterSettings, master: str) -> Check:
    """Check where the tasks of a cluster with state by key run, as `master` says, and what standbys do there."""
    if runs_with_driver(master):
        return part.ok("executors", "the tasks that compute state run with the drivers, where the stores are")
    standbys = cluster.assignor.options.get("standbys")
    found = f"with {master} executors keep copies of the state, and restore them where they have none"
    if not standbys:
        return part.ok("executors", found)
    return part.warning(
        "executors",
        f"{found}; 'standbys: {standbys}' keep theirs with the drivers only",
        "count on a restore after each move, as docs/state.md has it, or run the drivers with the master local[*]",
    )


def _spark_ui(part: Part, conf: Mapping[str, str]) -> Check:
    """Check who reaches the web page that each job's driver serves; Spark binds it to `SPARK_LOCAL_IP`, if set."""
    address = os.environ.get("SPARK_LOCAL_IP", "")
    if conf.get("spark.ui.enabled", "true").lower() == "false":
        return part.ok("Spark UI", "is off")
    if filters := conf.get("spark.ui.filters"):
        return part.ok("Spark UI", f"asks who it is that looks, with {filters}")
    if address.startswith("127.") or address == "::1":
        return part.ok("Spark UI", f"listens on {address} only (SPARK_LOCAL_IP)")
    return part.warning(
        "Spark UI",
        f"of each job listens on {address or 'all addresses'}, from port {conf.get('spark.ui.port', '4040')} on, and "
        "shows anyone queries, environment and logs",
        "set spark.ui.enabled: false in spark_conf, or SPARK_LOCAL_IP=127.0.0.1 where the drivers run",
    )


def _import_problem(path: str) -> str:
    """Say why it is not here, '' if it is. It is not called: what it would do is the user's business."""
    module_name, _, name = path.rpartition(".")
    outcome: list[str] = []

    def find() -> None:
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # importing runs the module, which may raise anything
            outcome.append(f"cannot be imported here ({type(error).__name__}: {error})")
        else:
            there = callable(getattr(module, name, None))
            outcome.append("" if there else f"is nothing that can be called in module {module_name}")

    thread = threading.Thread(target=find, daemon=True, name="handler-import")
    thread.start()
    thread.join(IMPORT_TIMEOUT)
    return outcome[0] if outcome else f"was not imported within {IMPORT_TIMEOUT:g} s"
