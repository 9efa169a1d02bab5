"""What the task that asks about a stuck consumer does with the answer, where a running Airflow does not show it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from muster.airflow import stuck_dag
from muster.airflow.stuck_dag import AskAPerson
from muster.commands.command import CommandError
from tests.dags.conftest import WriteClusters

pytestmark = pytest.mark.airflow


def test_an_answer_that_cannot_be_carried_out_fails_for_good(
    monkeypatch: pytest.MonkeyPatch, write_clusters: WriteClusters
) -> None:
    """The task has retries, and asking again would not help."""
    write_clusters("c")
    asks: Any = AskAPerson(
        task_id="ask", cluster="c", consumer="one", subject="?", options=["Isolate one", "Wait"]
    )

    def refuse(*_: object) -> None:
        raise CommandError("consumer 'one' of cluster 'c' is isolated already (by ann)")

    monkeypatch.setattr(stuck_dag, "carry_out_in_run", refuse)
    event = {"chosen_options": ["Isolate one"], "responded_by_user": {"id": "1", "name": "admin"}}
    with pytest.raises(AirflowFailException, match=r"is isolated already \(by ann\)"):
        asks.execute_complete({}, event)
