"""What consumers said is kept for one run, and believed for no longer than it is true."""

from __future__ import annotations

from dataclasses import replace

from muster.coordinator.asking import Answers
from muster.core.model import Consumer, ConsumerStatus, Membership, State, TopicSnapshot, TopicStatus
from tests.support.snapshots import topic

STARTING = topic({0: "a", 1: "a", 2: "b", 3: "b"}, State.STARTING, to_start={"a": {0, 1}, "b": {2, 3}})
BOTH = Membership({c: Consumer(c, incarnation="i") for c in ("a", "b")})


def says(consumer: str, running: set[int], epoch: int | None = 3, incarnation: str = "i") -> ConsumerStatus:
    topics = {"t": TopicStatus(frozenset(running), epoch=epoch)}
    return ConsumerStatus(consumer, incarnation, topics, epochs=epoch is not None)


def questions(answers: Answers, snapshot: TopicSnapshot = STARTING, present: Membership = BOTH) -> set[str]:
    return set(answers.open_questions({"t": snapshot}, present))


def test_consumer_with_the_awaited_answer_is_not_asked_again_and_counts() -> None:
    answers = Answers()
    assert questions(answers) == {"a", "b"}
    answers.take([says("a", {0, 1}), says("b", {2})])
    assert questions(answers) == {"b"}
    answers.take([says("b", {2, 3})])
    assert answers.said(["b"]).keys() == {"a", "b"}
    assert questions(answers) == set()


def test_a_word_of_an_older_epoch_is_asked_for_again() -> None:
    answers = Answers()
    answers.take([says("a", {0, 1}, epoch=2), says("b", {2, 3})])
    assert questions(answers) == {"a"}


def test_consumer_that_still_holds_closing_partitions_is_asked_again() -> None:
    closing = topic({2: "b", 3: "b"}, State.CLOSING, to_close={"a": {0, 1}})
    answers = Answers()
    answers.take([says("a", {0})])
    assert questions(answers, closing) == {"a"}
    answers.take([says("a", set())])
    assert questions(answers, closing) == set()


def test_another_incarnation_has_said_nothing() -> None:
    answers = Answers()
    answers.take([says("a", {0, 1}), says("b", {2, 3})])
    again = Membership({**BOTH.live, "a": replace(BOTH.live["a"], incarnation="j")})
    assert questions(answers, present=again) == {"a"}
    assert answers.said([]).keys() == {"b"}


def test_answer_of_another_incarnation_replaces_all_answers_before() -> None:
    answers = Answers()
    answers.take([says("a", {0, 1})])
    answers.take([ConsumerStatus("a", "j", {"u": TopicStatus(epoch=1)}, epochs=True)])
    assert answers.said([])["a"].topics.keys() == {"u"}


def test_consumer_that_left_has_said_nothing_when_it_is_back() -> None:
    answers = Answers()
    answers.take([says("a", {0, 1}), says("b", {2, 3})])
    questions(answers, present=Membership({"b": BOTH.live["b"]}))
    assert questions(answers) == {"a"}


def test_only_the_last_answer_counts_without_epochs() -> None:
    answers = Answers()
    answers.take([says("a", {0, 1}, epoch=None), says("b", {2, 3})])
    assert questions(answers) == {"a"}
    assert answers.said(["a"]).keys() == {"a", "b"}
    assert answers.said([]).keys() == {"b"}


def test_answers_about_different_topics_add_up() -> None:
    answers = Answers()
    answers.take([says("a", {0, 1})])
    other = ConsumerStatus("a", "i", {"u": TopicStatus(epoch=1)}, epochs=True)
    answers.take([other])
    assert answers.said([])["a"].topics.keys() == {"t", "u"}
