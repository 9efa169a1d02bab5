"""Notes on DAG runs: what a run did, shown in Airflow's grid and list of runs. A run that did nothing has none.

A task cannot set the note of its run, because tasks have no database and the REST API wants credentials. So it leaves
the text as an XCom, and this listener, which runs where Airflow ends a run (in the scheduler, with a database session
at hand), makes it the run's note. `muster.airflow.plugin` has Airflow load it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import Context
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

NOTE = "note"
"""XCom key of what is to become the run's note."""
LONGEST_NOTE = 1_000
"""Characters that Airflow's database keeps of a note."""
OURS = "muster_"
"""How the ids of Muster's DAGs begin."""


def leave_note(context: Context, text: str) -> None:
    """Have `text` become the note of the run, when it ends. Of several tasks' notes all are shown."""
    context["ti"].xcom_push(NOTE, text)


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    """Set the note of a run that Airflow ended as a success."""
    _set_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun) -> None:
    """Set the note of a run that Airflow ended as failed."""
    _set_note(dag_run)


def _set_note(dag_run: DagRun) -> None:
    """Put the notes of the run's tasks on the run, unless it has one: that would be a person's own."""
    from airflow.utils.session import create_session  # noqa: PLC0415 - tasks load this module, and have no database
    from sqlalchemy.orm import object_session  # noqa: PLC0415

    if not dag_run.dag_id.startswith(OURS):
        return
    session = object_session(dag_run)
    if session is not None:  # the scheduler's: it holds the run's row, and another session would wait for it
        _write_note(dag_run.id, session)
        return
    with create_session() as own:
        _write_note(dag_run.id, own)


def _write_note(run: int, session: Session) -> None:
    from airflow.models.dagrun import DagRunNote  # noqa: PLC0415
    from airflow.models.xcom import XComModel  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    left = select(XComModel).where(XComModel.dag_run_id == run, XComModel.key == NOTE)
    found = session.scalars(left.order_by(XComModel.timestamp)).all()
    if not found or session.get(DagRunNote, run) is not None:
        return
    note: DagRunNote = DagRunNote(  # type: ignore[no-untyped-call]  # Airflow's is not annotated
        "\n".join(dict.fromkeys(str(XComModel.deserialize_value(x)) for x in found))[:LONGEST_NOTE]
    )
    note.dag_run_id = run
    session.add(note)
