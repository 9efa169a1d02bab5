"""Answering about a record that a handler fails with: try it again, skip it, or write it to the dead-letter topic.
About records that Kafka has no more, of which this is the first: look again, or go on behind them. About a timer of
the partition's state that fails before the record: try it again, or drop it.

The answer is a key in Consul that names the record by its offset, so it cannot meet another one. The owner of the
partition sees it within a second, and carries it out between two batches: what is skipped or dead-lettered counts
only when Kafka has acknowledged the offset after it. A preview shows the beginning of the record itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, CommandOutcome, Foreseen
from muster.core.model import FailingRecord, TopicAssignment, TopicPartition
from muster.core.parking import Answer

if TYPE_CHECKING:
    from muster.commands.target import Failing, Target

SHOWN = 200
"""Bytes of a key, a value or a header, and characters of all headers, that a preview shows."""


def answer_record(
    answer: Answer, target: Target, actor: Actor, topic: str, partition: int, offset: int
) -> CommandOutcome:
    """Have `answer` done to the record. Raises `CommandError` if its handler does not fail with it now, if the answer
    does not fit, and for a dead letter without fencing."""
    tp = topic, partition
    failing, record = _checked(target, tp, offset, answer)
    target.consul.answers.give(tp, offset, answer, by=actor.name, why=actor.reason, at=actor.at)
    becomes, found = _words(target, tp, failing.owner, record, answer)
    values = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "consumer": failing.owner,
        "error": record.error,
    }
    lost = {"lost": record.lost} if record.lost else {}
    return CommandOutcome((f"{becomes}: {actor}", found), {**values, **lost})


def foresee_answer(
    answer: Answer, target: Target, _actor: Actor, topic: str, partition: int, offset: int
) -> Foreseen:
    """Return what `answer` would do to the record, and what it holds. Raises `CommandError` as `answer_record`."""
    tp = topic, partition
    failing, record = _checked(target, tp, offset, answer)
    becomes, found = _words(target, tp, failing.owner, record, answer)
    content = () if record.lost or record.timer else _content(target, failing.assignment, tp, offset)
    return Foreseen((), (*content, found, becomes))


def _checked(
    target: Target, tp: TopicPartition, offset: int, answer: Answer
) -> tuple[Failing, FailingRecord]:
    """Return what the owner fails with, and the record. Raises `CommandError` if the answer does not fit it."""
    if answer is Answer.DEAD_LETTER and not target.cluster.fencing:
        raise CommandError(
            f"cluster {target.cluster.name!r} has 'fencing: false', and a dead letter is written in the transaction "
            "that fences its offset; take that out and restart the consumers, or skip the record"
        )
    where = _where(tp)
    failing = target.failing(*tp)
    owner, record = failing.owner, failing.record
    if record is None:
        raise CommandError(f"consumer {owner} does not fail with a record of {where} now; nothing to answer")
    if record.offset != offset:
        raise CommandError(
            f"in {where} consumer {owner} fails with offset {record.offset}, not with {offset}"
        )
    if answer is Answer.RETRY and record.answer:
        raise CommandError(
            f"offset {offset} of {where} is to be passed over already ({record.answer}), which is under way; what "
            f"keeps consumer {owner} from it is on its status page"
        )
    if record.lost and answer is Answer.DEAD_LETTER:
        raise CommandError(
            f"offset {offset} of {where} is lost, so no letter of it can be written; skip it, and the partition goes "
            "on behind what is lost"
        )
    if record.timer and answer is Answer.DEAD_LETTER:
        raise CommandError(
            f"in {where} a timer fails, and no record, so there is no letter to write; skip-record drops the timer"
        )
    return failing, record


def _words(
    target: Target, tp: TopicPartition, owner: str, record: FailingRecord, answer: Answer
) -> tuple[str, str]:
    """Return what becomes of the record, and how its owner fares with it."""
    where = _where(tp)
    if record.lost:
        does = "goes on behind what is lost" if answer is Answer.SKIP else "looks for its records again"
        return f"{where} {does}, at offset {record.offset}", f"at consumer {owner}: {record.error}"
    if record.timer:
        does = "is dropped, and no record is skipped" if answer is Answer.SKIP else "is tried again"
        return (
            f"the timer that fails at offset {record.offset} of {where} {does}",
            f"at consumer {owner}: {record.error}",
        )
    becomes = {
        Answer.RETRY: "is tried again",
        Answer.SKIP: "is skipped",
        Answer.DEAD_LETTER: f"goes to topic {target.cluster.dead_letter_topic}",
    }[answer]
    state = (
        "; it changes no state by key"
        if answer is not Answer.RETRY and target.cluster.state.has(tp[0])
        else ""
    )
    failed = f"it failed {record.attempts} times alone at consumer {owner}"
    return (
        f"the record at offset {record.offset} of {where} {becomes}{state}",
        f"{failed if record.attempts else f'at consumer {owner}'}: {record.error}",
    )


def _where(tp: TopicPartition) -> str:
    return f"partition {tp[1]} of topic {tp[0]!r}"


def _content(target: Target, assignment: TopicAssignment, tp: TopicPartition, offset: int) -> tuple[str, ...]:
    """Return what the record holds, in lines; or why that cannot be shown, which keeps a person from no answer."""
    try:
        record = target.record(assignment, tp, offset)
    except CommandError as error:
        return (f"what it holds cannot be shown: {error}",)
    if record is None:
        return ("Kafka has no record there any more",)
    headers = ", ".join(f"{name} {_brief(value)}" for name, value in record.headers)
    return (
        f"key: {_brief(record.key)}",
        f"value: {_brief(record.value)}",
        f"headers: {headers[:SHOWN] or 'none'}",
    )


def _brief(data: bytes | None) -> str:
    """Return the beginning of `data` as text, and its size in bytes."""
    if data is None:
        return "null"
    text = data[:SHOWN].decode("utf-8", "replace")
    return f"{text!r}{'...' if len(data) > SHOWN else ''} ({len(data)} bytes)"
