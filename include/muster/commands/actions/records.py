"""Answering about a record that a handler fails with: try it again, skip it, or write it to the dead-letter topic.
About records that Kafka has no more, of which this is the first: look again, or go on behind them.

The answer is a key in Consul that names the record by its offset, so it cannot meet another one. The owner of the
partition sees it within a second, and carries it out between two batches: what is skipped or dead-lettered counts
only when Kafka has acknowledged the offset after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.commands.command import Actor, CommandError, Outcome
from muster.core.parking import Answer

if TYPE_CHECKING:
    from muster.commands.target import Target


def retry_record(target: Target, actor: Actor, topic: str, partition: int, offset: int) -> Outcome:
    """Have the record tried again. Raises `CommandError` if its handler does not fail with it now."""
    return _answer(target, actor, (topic, partition), offset, Answer.RETRY, "is tried again")


def skip_record(target: Target, actor: Actor, topic: str, partition: int, offset: int) -> Outcome:
    """Have the record skipped. Raises `CommandError` if its handler does not fail with it now."""
    return _answer(target, actor, (topic, partition), offset, Answer.SKIP, "is skipped")


def dead_letter_record(target: Target, actor: Actor, topic: str, partition: int, offset: int) -> Outcome:
    """Have the record written to the dead-letter topic. Raises `CommandError` if its handler does not fail with it
    now, or without fencing."""
    cluster = target.cluster
    if not cluster.fencing:
        raise CommandError(
            f"cluster {cluster.name!r} has 'fencing: false', and a dead letter is written in the transaction that "
            "fences its offset; take that out and restart the consumers, or skip the record"
        )
    to = f"goes to topic {cluster.dead_letter_topic}"
    return _answer(target, actor, (topic, partition), offset, Answer.DEAD_LETTER, to)


def _answer(
    target: Target, actor: Actor, tp: tuple[str, int], offset: int, answer: Answer, becomes: str
) -> Outcome:
    topic, partition = tp
    owner, record = target.failing(topic, partition)
    where = f"partition {partition} of topic {topic!r}"
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
    target.consul.answers.give(tp, offset, answer, by=actor.name, why=actor.reason, at=actor.at)
    values = {"topic": topic, "partition": partition, "offset": offset, "consumer": owner}
    if record.lost:
        does = "goes on behind what is lost" if answer is Answer.SKIP else "looks for its records again"
        lines: tuple[str, ...] = (
            f"{where} {does}, at offset {offset}: {actor}",
            f"at consumer {owner}: {record.error}",
        )
        return Outcome(lines, {**values, "lost": record.lost, "error": record.error})
    lines = (
        f"the record at offset {offset} of {where} {becomes}: {actor}",
        f"it failed {record.attempts} times alone at consumer {owner}: {record.error}",
    )
    return Outcome(lines, {**values, "error": record.error})
