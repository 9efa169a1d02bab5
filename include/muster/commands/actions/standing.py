"""Answering about records of a topic that a handler fails with from now on, and taking that back.

The answer is a key in Consul, by topic, error and text. A consumer with a record that fails reads it within a second,
one whose handler rejects records within ten, and gives it to each record that has failed three times alone with that
error. A preview shows which records of the last hour it is about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.commands.command import Actor, CommandError, CommandOutcome, Foreseen, listed
from muster.core.model import PastFailure
from muster.core.overrides import StandingAnswer
from muster.core.parking import Answer
from muster.edges.status import StatusFailure

if TYPE_CHECKING:
    from muster.commands.target import Target

ANSWERS: Mapping[str, Answer] = {
    "skip": Answer.SKIP,
    "dead-letter": Answer.DEAD_LETTER,
    "retry": Answer.RETRY,
}
LIMIT = re.compile(r"([0-9]{1,9})(/h)?")


def answer_from_now_on(
    target: Target, actor: Actor, topic: str, error: str, answer: str, text: str, limit: str
) -> CommandOutcome:
    """Have `answer` given to records of `topic` that fail with `error` and a message that holds `text`.

    Raises `CommandError` if the topic is unknown, if there is an answer about these errors already, if `answer` or
    `limit` is none, and for dead letters without fencing.
    """
    one = _checked(target, actor, topic, error, answer, text, limit)
    if not target.consul.answers.stand(one):
        known = next((each for each in _all(target) if _is_about(each, topic, error, text)), None)
        raise CommandError(
            f"{known or f'there is a standing answer about {one.about} in topic {topic!r}, which cannot be read'}; "
            "take it back first, with end-standing-answer, to give another one"
        )
    lines = (
        f"{one}",
        "it is given to records that have failed three times alone, within a second, and to those that a handler "
        "rejects within ten; it stops where too many match",
    )
    return CommandOutcome(lines, _values(one))


def foresee_answers(
    target: Target, actor: Actor, topic: str, error: str, answer: str, text: str, limit: str
) -> Foreseen:
    """Return which records that failed within the last hour the answer is about. Raises `CommandError` as
    `answer_from_now_on`."""
    one = _checked(target, actor, topic, error, answer, text, limit)
    failed, unknown = _failures(target, topic)
    found = [each for each in failed if one.matches(each.error)]
    others = sorted({each.error for each in failed if not one.matches(each.error)})
    return Foreseen(
        tuple(f"topic {topic}, partition {f.partition}, offset {f.offset}: {f.error}" for f in found),
        (
            f"{len(found)} of the {len(failed)} record(s) of topic {topic!r} that failed within the last hour match",
            *([f"others failed with: {'; '.join(others[:3])}"] if others else []),
            *unknown,
            str(one),
        ),
        {"matched": len(found), "failed": len(failed)},
    )


def end_answer(target: Target, actor: Actor, topic: str, error: str, text: str) -> CommandOutcome:
    """Take a standing answer back. Raises `CommandError` if there is none."""
    known = [each for each in _all(target) if _is_about(each, topic, error, text)]
    if not target.consul.answers.end_standing(topic, error, text):
        there = listed(f"{each.about} in topic {each.topic!r}" for each in _all(target))
        raise CommandError(
            f"cluster {target.cluster.name!r} has no standing answer about {error!r} with text {text!r} in topic "
            f"{topic!r}; there are: {there}"
        )
    done = "; ".join(map(str, known)) or f"the standing answer about {error} in topic {topic}"
    values = _values(known[0]) if known else {"topic": topic, "error": error, "text": text}
    return CommandOutcome((f"taken back: {done}: {actor}",), values)


def _checked(
    target: Target, actor: Actor, topic: str, error: str, answer: str, text: str, limit: str
) -> StandingAnswer:
    if answer not in ANSWERS:
        raise CommandError(f"answer {answer[:100]!r}: write one of {', '.join(ANSWERS)}")
    if not error or ":" in error:
        raise CommandError(
            f"error {error[:100]!r}: write the class of the exception, such as ValueError, or Spark's condition, "
            "such as DIVIDE_BY_ZERO, without the message; a part of that is the text"
        )
    found = LIMIT.fullmatch(limit) if limit else None
    if limit and (found is None or int(found[1]) == 0):
        raise CommandError(
            f"limit {limit[:100]!r}: write 100 for so many records, or 100/h for so many an hour; leave it out for "
            "an answer that stands until it is taken back"
        )
    number, an_hour = (int(found[1]), bool(found[2])) if found else (None, False)
    if ANSWERS[answer] is Answer.DEAD_LETTER and not target.cluster.fencing:
        raise CommandError(
            f"cluster {target.cluster.name!r} has 'fencing: false', and a dead letter is written in the transaction "
            "that fences its offset; take that out and restart the consumers, or skip the records"
        )
    target.check_topic(topic)
    return StandingAnswer(
        by=actor.name,
        at=actor.at,
        why=actor.reason,
        topic=topic,
        answer=ANSWERS[answer],
        error=error,
        text=text,
        records=None if an_hour else number,
        hourly=number if an_hour else None,
    )


def _is_about(one: StandingAnswer, topic: str, error: str, text: str) -> bool:
    return (one.topic, one.error, one.text) == (topic, error, text)


def _all(target: Target) -> tuple[StandingAnswer, ...]:
    return target.consul.answers.standing()


def _values(one: StandingAnswer) -> dict[str, Any]:
    limits = {"records": one.records, "hourly": one.hourly}
    return {
        "topic": one.topic,
        "answer": one.answer.replace("_", "-"),
        "error": one.error,
        "text": one.text,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }


def _failures(target: Target, topic: str) -> tuple[list[PastFailure], list[str]]:
    """Return the records of a topic that failed within the last hour, by partition and offset; and which consumers
    did not say, in lines."""
    membership = target.consul.catalog.members().membership
    live = list(membership.live.values()) if membership is not None else []
    asked = {each.id: {topic} for each in live}
    answers = target.poll(live, target.cluster.status_timeout, topics=asked, failures=True) if live else {}
    found, unknown = {}, []
    for consumer, answer in sorted(answers.items()):
        failures = None if isinstance(answer, StatusFailure) else answer.on(topic).failures
        if isinstance(answer, StatusFailure):
            unknown.append(f"what failed at consumer {consumer} is unknown: {answer.reason}")
        found.update({(each.partition, each.offset): each for each in failures or ()})
    if not live:
        unknown.append("what failed is unknown: no consumer is live")
    return [found[place] for place in sorted(found)], unknown
