"""What the task that asks about a stuck consumer does with the answer, where a running Airflow does not show it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from muster.airflow import stuck_dag
from muster.airflow.stuck_dag import ABOUT_RECORD, WAIT, AskAPerson
from muster.commands.command import Actor, Command, CommandError
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


def test_question_about_a_topic_can_only_be_waited_with(write_clusters: WriteClusters) -> None:
    write_clusters("c")
    asks: Any = AskAPerson(task_id="ask", cluster="c", consumer="", topic="t", subject="?", options=[WAIT])
    assert asks.about == "topic t"
    with pytest.raises(TaskDeferred) as deferred:
        asks.execute_complete({}, {"chosen_options": [WAIT], "responded_by_user": {"id": "1", "name": "ann"}})
    assert deferred.value.trigger.serialize()[1]["topic"] == "t"


@pytest.mark.parametrize("option", [*ABOUT_RECORD, WAIT])
def test_answer_about_a_record_is_given_as_its_command(
    option: str, monkeypatch: pytest.MonkeyPatch, write_clusters: WriteClusters
) -> None:
    write_clusters("c")
    asks: Any = AskAPerson(
        task_id="ask",
        cluster="c",
        consumer="one",
        records=[["t", 3, 17], ["t", 5, 9]],
        subject="?",
        options=[*ABOUT_RECORD, WAIT],
    )
    given: list[tuple[str, dict[str, str], str]] = []

    def carry_out(command: Command, _: object, actor: Actor, body: dict[str, str], *__: object) -> None:
        given.append((command.name, body, actor.name))

    put_off: list[tuple[list[list[Any]], str]] = []
    monkeypatch.setattr(stuck_dag, "carry_out_in_run", carry_out)
    monkeypatch.setattr(stuck_dag, "put_off", lambda _, records, by: put_off.append((records, by)))
    event = {"chosen_options": [option], "responded_by_user": {"id": "1", "name": "ann"}}
    assert asks.about == "t [3], offset 17 and 1 more"
    if option == WAIT:
        with pytest.raises(TaskDeferred) as deferred:
            asks.execute_complete({}, event)
        assert deferred.value.trigger.serialize()[1]["records"] == [["t", 3, 17], ["t", 5, 9]]
        assert given == []
        assert put_off == [([["t", 3, 17], ["t", 5, 9]], "ann")], "for an hour"
        return
    name = ABOUT_RECORD[option]
    assert asks.execute_complete({}, event) == {"consumer": "one", "answer": name, "by": "ann"}
    assert given == [
        (name, {"topic": "t", "partition": "3", "offset": "17"}, "ann"),
        (name, {"topic": "t", "partition": "5", "offset": "9"}, "ann"),
    ]


def test_answer_holds_for_records_that_still_fail(
    monkeypatch: pytest.MonkeyPatch, write_clusters: WriteClusters
) -> None:
    write_clusters("c")
    (option, name), *_ = ABOUT_RECORD.items()
    records = [["t", 3, 17], ["t", 5, 9]]
    asks: Any = AskAPerson(
        task_id="ask", cluster="c", consumer="one", records=records, subject="?", options=[option, WAIT]
    )
    gone = {"3"}

    def carry_out(
        _command: Command, _cluster: object, _actor: Actor, body: dict[str, str], *_: object
    ) -> None:
        if body["partition"] in gone:
            raise CommandError(f"nothing to answer in {body['partition']}")

    monkeypatch.setattr(stuck_dag, "carry_out_in_run", carry_out)
    event = {"chosen_options": [option], "responded_by_user": {"id": "1", "name": "ann"}}
    assert asks.execute_complete({}, event)["answer"] == name
    gone.add("5")
    with pytest.raises(AirflowFailException, match="nothing to answer in 3; nothing to answer in 5"):
        asks.execute_complete({}, event)
