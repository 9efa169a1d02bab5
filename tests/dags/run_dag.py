"""Runs one DAG with `dag.test()` in a process of its own, and prints what came of it as the last line, in JSON.

A process of its own, because Airflow keeps database, configuration and connections for as long as one lasts.
"""

from __future__ import annotations

import json
import sys

from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select


def main(dag_file: str, dag_id: str, conf: str) -> None:
    bag = DagBag(dag_file)
    if bag.import_errors:
        sys.exit(f"import errors: {bag.import_errors}")
    run = bag.dags[dag_id].test(run_conf=json.loads(conf))
    with create_session() as session:
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
                "tasks": tasks,
                "xcoms": xcoms,
                "events": [[uri, extra] for uri, extra in events],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:], *(["{}"] if len(sys.argv) < 4 else []))
