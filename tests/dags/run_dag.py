"""Runs DAGs with `dag.test()`, each in a process of its own, and prints what came of it as the last line, in JSON.

A process of its own, because Airflow keeps database, configuration and connections for as long as one lasts. Each is
forked from one that has imported everything and made Airflow's API for tasks, which every run needs and takes seconds
to make; neither opens a connection.

It reads a line of JSON for each run (`arguments`, `environment`, `log`: where the output goes) and answers with a
line that holds the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRunNote
from airflow.models.xcom import XComModel
from airflow.sdk.execution_time.supervisor import in_process_api_server
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from airflow.utils.session import create_session
from sqlalchemy import select

KEPT = (
    *("airflow.", "cadwyn", "fastapi", "pydantic", "sqlalchemy.", "structlog"),
    *("confluent_kafka", "consul", "httpx", "kazoo", "muster."),
)
"""Modules that a run imported and the next one finds imported. None of them does anything before it is called."""


def bundle(dag_file: Path) -> Path:
    """Have Airflow know `dag_file` alone, and return where it is then.

    Before each run `dag.test()` parses all files of the folder and writes all their DAGs to the database; `run` sees
    to it that this is one.
    """
    folder = Path(os.environ["AIRFLOW_HOME"], "bundles", dag_file.stem)
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / dag_file.name
    if not link.is_symlink():
        link.symlink_to(dag_file)
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    config = [{"name": "dags-folder", "classpath": local, "kwargs": {"path": str(folder)}}]
    os.environ["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"] = json.dumps(config)
    return link


def run(dag_file: str, dag_id: str, conf: str) -> None:
    os.environ["_AIRFLOW_PARSING_CONTEXT_DAG_ID"] = dag_id  # as in the process of a task
    # As Airflow's task runner does when it starts; `dag.test()` leaves it out.
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
    bag = DagBag(bundle(Path(dag_file)))
    if bag.import_errors:
        sys.exit(f"import errors: {bag.import_errors}")
    run = bag.dags[dag_id].test(run_conf=json.loads(conf))
    with create_session() as session:
        note = session.scalar(select(DagRunNote.content).where(DagRunNote.dag_run_id == run.id))
        tasks = {
            ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.rendered_map_index}]": str(ti.state)
            for ti in run.get_task_instances(session=session)
        }
        found = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id)).all()
        xcoms = {f"{x.task_id}.{x.key}": XComModel.deserialize_value(x) for x in found}
        events = session.execute(
            select(AssetModel.uri, AssetEvent.extra)
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(AssetEvent.source_run_id == run.run_id)
        ).all()
    print(
        json.dumps(
            {
                "state": str(run.state),
                "note": note,
                "tasks": tasks,
                "xcoms": xcoms,
                "events": [[uri, extra] for uri, extra in events],
            }
        )
    )


def in_child(order: dict[str, Any], names: IO[str]) -> int:
    """Do one run; its exit code. Writes the names of the modules that it imported to `names`."""
    known = set(sys.modules)
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(order["environment"])
        run(*order["arguments"])
        code = 0
    except SystemExit as error:
        print(error.code, file=sys.stderr)
    except BaseException:  # whatever it is, the log is where it belongs
        traceback.print_exc()
    json.dump(sorted(set(sys.modules) - known), names)
    for stream in (names, sys.stdout, sys.stderr):
        stream.flush()
    return code


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Airflow logs to its standard output, also while it is imported
    in_process_api_server().app._cadwyn_initialize()  # as the first request does, which is each run's own
    for line in sys.stdin:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.close(reading)
            os._exit(in_child(json.loads(line), os.fdopen(writing, "w")))
        os.close(writing)
        with os.fdopen(reading) as names:
            imported = names.read()  # until the child ends, or whatever inherited the pipe from it
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(code, file=answers, flush=True)
        for name in json.loads(imported or "[]"):
            if name.startswith(KEPT):
                with suppress(Exception):
                    importlib.import_module(name)


if __name__ == "__main__":
    main()
