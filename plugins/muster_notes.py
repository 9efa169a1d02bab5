"""Puts what a run did on the run as its note (Airflow plugin); see `muster.airflow.run_notes`."""

from airflow.plugins_manager import AirflowPlugin

from muster.airflow import run_notes


class MusterNotes(AirflowPlugin):
    """A listener in the scheduler."""

    name = "muster_notes"
    listeners = [run_notes]  # noqa: RUF012 - as Airflow wants it
