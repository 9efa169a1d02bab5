"""The table of commands, and which of them make sense now. DAGs, command line, HTTP API and page are made from it, in
this order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from muster.commands.actions.consumers import drain, exclude, include, isolate, restore, undrain
from muster.commands.actions.consumption import (
    foresee_pause,
    foresee_resumption,
    pause_consumption,
    resume_consumption,
)
from muster.commands.actions.coordination import pause, plan_with, rebalance_now, resume
from muster.commands.actions.dead_letters import foresee_replay, replay_dead_letters
from muster.commands.actions.moving_in import foresee_import, import_offsets
from muster.commands.actions.pins import pin, unpin
from muster.commands.actions.records import answer_record, foresee_answer
from muster.commands.actions.seeks import cancel_seek, foresee_cancelling, foresee_seek, seek
from muster.commands.actions.standing import answer_from_now_on, end_answer, foresee_answers
from muster.commands.actions.topics import subscribe, unsubscribe
from muster.commands.command import Command, Field, Kind, Standing
from muster.commands.fields import (
    ASSIGNOR,
    CONSUMER,
    ERROR,
    FAILS_WITH,
    PARTITIONS,
    REBUILD,
    RECORD,
    SCOPE,
    SOURCES,
    STATE,
    TEXT,
    TO,
    TOPIC,
    TOPICS,
)
from muster.core.overrides import Override, Overrides
from muster.core.parking import Answer


def _on_consumers(found: Mapping[str, Override]) -> list[Standing]:
    return [Standing({"consumer": consumer}, each) for consumer, each in found.items()]


COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command(
            "isolate",
            label="Isolate",
            title="isolate a consumer",
            summary="Isolate a consumer: its partitions go to the others, it keeps running without work.",
            question="Isolate {consumer}?",
            did="isolated",
            run=isolate,
            fields=(CONSUMER,),
            undo="restore",
            override="isolated",
            standing=lambda decided: _on_consumers(decided.isolated),
            documentation=(
                "The consumer closes its partitions, commits their offsets and idles until it is restored. One "
                "that cannot be reached counts as gone.\n\n"
                "Its partitions go to the other live consumers one by one. Partitions that do not move "
                "continue without a pause."
            ),
            risky=True,
            preview={"without": ["{consumer}"]},
        ),
        Command(
            "restore",
            label="Restore",
            title="restore a consumer",
            summary="Take the isolation of a consumer back: it gets its share of partitions with the next rebalance.",
            question="Restore {consumer}?",
            did="restored",
            run=restore,
            fields=(CONSUMER,),
            preview={"joining": [{"consumer": "{consumer}"}]},
        ),
        Command(
            "drain",
            label="Drain",
            title="drain a consumer",
            summary="Drain a consumer: its partitions are handed to the others in order, and it gets no more.",
            question="Drain {consumer}?",
            did="drained",
            run=drain,
            fields=(CONSUMER,),
            undo="undrain",
            override="drained",
            standing=lambda decided: _on_consumers(decided.drained),
            documentation=(
                "For maintenance, not for a consumer that misbehaves: each partition is closed and committed before "
                "its new owner starts, so nothing is read twice.\n\n"
                "The consumer stays live without partitions until it is undrained. Where no other consumer can take "
                "over, it keeps what it has."
            ),
            preview={"without": ["{consumer}"]},
        ),
        Command(
            "undrain",
            label="Undrain",
            title="undrain a consumer",
            summary="Take the drain of a consumer back: it gets its share of partitions with the next rebalance.",
            question="Undrain {consumer}?",
            did="undrained",
            run=undrain,
            fields=(CONSUMER,),
        ),
        Command(
            "pin",
            label="Pin",
            title="pin partitions to a consumer",
            summary="Fix partitions to a consumer: they go there, and stay until they are unpinned.",
            question="Pin partitions to a consumer?",
            did="pinned",
            run=pin,
            fields=(TOPIC, PARTITIONS, CONSUMER),
            undo="unpin",
            override="pinned",
            standing=lambda decided: [
                Standing(
                    {"topic": each.topic, "partitions": str(each.partition), "consumer": each.consumer}, each
                )
                for each in decided.pins.values()
            ],
            documentation=(
                "The pins count as long as the consumer is live and takes the topic. The assignor balances the "
                "other partitions."
            ),
        ),
        Command(
            "unpin",
            label="Unpin",
            title="unpin partitions",
            summary="Take pins back: the partitions may go wherever the assignor wants them again.",
            question="Take pins back?",
            did="unpinned",
            run=unpin,
            fields=(TOPIC, PARTITIONS),
            documentation="A sticky assignor leaves them where they are as long as that is balanced.",
        ),
        Command(
            "exclude",
            label="Exclude",
            title="exclude a consumer from a topic",
            summary="Keep a consumer from a topic: its partitions of the topic go to the others.",
            question="Exclude a consumer from a topic?",
            did="excluded",
            run=exclude,
            fields=(CONSUMER, TOPIC),
            undo="include",
            override="excluded",
            standing=lambda decided: [
                Standing({"consumer": each.consumer, "topic": each.topic}, each)
                for each in decided.exclusions.values()
            ],
            documentation="It gets none of the topic until it is included again. Its other topics stay.",
            risky=True,
        ),
        Command(
            "include",
            label="Include",
            title="include a consumer in a topic again",
            summary="Take the exclusion of a consumer from a topic back: it takes its share of the topic again.",
            question="Include {consumer} in {topic} again?",
            did="included",
            run=include,
            fields=(CONSUMER, TOPIC),
        ),
        Command(
            "pause-consumption",
            label="Pause consumption",
            title="pause the consumption of a topic",
            summary="Pause consumption of partitions, a topic or all: owners keep them, and do not read them.",
            question="Pause consumption in {cluster}?",
            did="paused consumption of",
            run=pause_consumption,
            fields=SCOPE,
            undo="resume-consumption",
            override="paused",
            standing=lambda decided: [
                Standing(
                    {
                        "topic": each.topic,
                        "partitions": "" if each.partition is None else str(each.partition),
                    },
                    each,
                )
                for each in decided.consumption
            ],
            documentation=(
                "Reading stops between two batches: what the handler has begun is finished and committed. Resumed, "
                "each partition goes on where it stopped, and nothing is lost or read twice.\n\n"
                "Coordination goes on: partitions move as usual and stay paused with their new owners. The pause "
                "stands until it is taken back, whatever is restarted meanwhile; mind the retention of the topic."
            ),
            risky=True,
            foresee=foresee_pause,
        ),
        Command(
            "resume-consumption",
            label="Resume consumption",
            title="resume the consumption of a topic",
            summary="Resume consumption where it was paused: it goes on from the committed offsets.",
            question="Resume consumption in {cluster}?",
            did="resumed consumption of",
            run=resume_consumption,
            fields=SCOPE,
            documentation="Name just what was paused: a pause of the whole topic is not ended for one partition.",
            foresee=foresee_resumption,
        ),
        Command(
            "seek",
            label="Seek",
            title="seek a topic to another place",
            summary="Have partitions, a topic or all go on elsewhere: records come again, or are passed over.",
            question="Seek in {cluster}?",
            did="asked for a seek of",
            run=seek,
            fields=(TO, *SCOPE, REBUILD, STATE),
            undo="cancel-seek",
            override="sought",
            standing=lambda decided: [
                Standing({"topic": topic, "partitions": str(partition)}, each)
                for (topic, partition), each in sorted(decided.seeks.items())
                if each.offset is not None
            ],
            documentation=(
                "The place is made an offset of each partition when the command is given. The owner goes on there "
                "after the batch under way, and commits it once, whatever is killed or moves meanwhile. Where no "
                "consumer has a partition the coordinator commits the offset.\n\n"
                "Records that come again are given to the handler again, in other batches than the first time. A "
                "sink of muster.sinks leaves out what it has already, unless the seek is a rebuild. Delete what is "
                "there of them before a rebuild, with the consumption paused, or they stand twice.\n\n"
                "On topics with state by key, 'state' says what becomes of that, in place of 'rebuild'. Only an "
                "owner moves such a topic. Where state and committed offset of a partition do not fit, a seek is "
                "the choice: to changelog, to committed, or with the state rebuild."
            ),
            risky=True,
            foresee=foresee_seek,
        ),
        Command(
            "cancel-seek",
            label="Cancel seek",
            title="take a seek back",
            summary="Take seeks back that are not carried out yet; what was carried out stays.",
            question="Take seeks back in {cluster}?",
            did="took back a seek of",
            run=cancel_seek,
            fields=SCOPE,
            foresee=foresee_cancelling,
        ),
        Command(
            "import-offsets",
            label="Import offsets",
            title="import the offsets of a consumer from before Muster",
            summary="Begin where a consumer from before Muster stopped: its offsets are committed for the group.",
            question="Import offsets into {cluster}?",
            did="imported offsets",
            run=import_offsets,
            fields=SOURCES,
            documentation=(
                "Give one source: another group, a group in ZooKeeper, or a checkpoint. It is refused while "
                "consumers of the cluster or of that group run; one that runs without being registered is fenced "
                "off.\n\n"
                "In a form, on the page and in the API, allowed_imports in the settings has to name the connection, "
                "and a folder that the checkpoint is in: Airflow reads them with its own rights. The command line "
                "takes any, with the rights of the person who types it."
            ),
            risky=True,
            foresee=foresee_import,
        ),
        Command(
            "pause",
            label="Pause coordination",
            title="pause the coordination of a cluster",
            summary="Pause coordination: nothing is planned or written until it is resumed.",
            question="Pause coordination of {cluster}?",
            did="paused coordination",
            run=pause,
            undo="resume",
            override="paused",
            standing=lambda decided: [Standing({}, decided.paused)] if decided.paused else [],
            documentation=(
                "Consumers continue with the partitions that they have. One that dies is not replaced: its "
                "partitions are not read. New topics and partitions wait, and a hand-over under way waits "
                "where it is.\n\n"
                "Each run of the coordinator skips compute_assignment (with many clusters: advance_state), whose log "
                "says who paused the cluster, since when and why."
            ),
            risky=True,
        ),
        Command(
            "resume",
            label="Resume coordination",
            title="resume the coordination of a cluster",
            summary="Resume coordination: what changed meanwhile is planned at once.",
            question="Resume coordination of {cluster}?",
            did="resumed coordination",
            run=resume,
            preview={},
        ),
        Command(
            "rebalance",
            label="Rebalance now",
            title="rebalance a cluster now",
            summary="Rebalance now: wait for no absent consumer, and move what the assignor leaves where it is.",
            question="Rebalance {cluster} now?",
            did="asked for a rebalance",
            run=rebalance_now,
            documentation=(
                "Absent consumers are not waited for (rebalance_delay), and what the assignor leaves where it "
                "is until a person asks goes where it belongs (failover with give_back: false).\n\n"
                "What a setting bounds stays bounded (budget and tolerance of load-aware, rack_moves of "
                "sticky). A cluster that is balanced stays as it is."
            ),
            preview={},
            unavailable=lambda decided: "paused; resume it first" if decided.paused is not None else "",
        ),
        Command(
            "assignor",
            label="Change the assignor",
            title="change the assignor of a cluster",
            summary="Plan with another assignor than the one in the settings, until it is taken back.",
            question="Change the assignor of {cluster}?",
            did="changed the assignor",
            run=plan_with,
            fields=(ASSIGNOR,),
            undo="assignor",
            override="chosen",
            standing=lambda decided: (
                [Standing({"assignor": None}, decided.assignor)] if decided.assignor else []
            ),
            documentation=(
                "The coordinator plans with it from its next run on. 'muster plan --cluster NAME --assignor "
                "OTHER' shows beforehand what would move and why. An unknown assignor, one that the settings "
                "do not allow, or options that it refuses, change nothing."
            ),
            preview={"assignor": "{assignor}"},
        ),
        Command(
            "subscribe",
            label="Subscribe",
            title="subscribe a cluster to a topic",
            summary="Read a topic, or all topics that match a pattern, on top of what the settings name.",
            question="Subscribe {cluster} to a topic?",
            did="subscribed to",
            run=subscribe,
            fields=TOPICS,
            undo="unsubscribe",
            override="subscribed",
            standing=lambda decided: [
                Standing({"topic": each.selector, "pattern": each.pattern}, each)
                for each in decided.subscriptions
                if each.subscribed
            ],
            documentation=(
                "The next run of the coordinator picks up what is in Kafka; a topic starts at the offsets that "
                "the group committed, else at startingOffsets, or its earliest record. A pattern picks up new "
                "topics from then on."
            ),
        ),
        Command(
            "unsubscribe",
            label="Unsubscribe",
            title="unsubscribe a cluster from a topic",
            summary="Stop reading a topic, or all topics that match a pattern, whatever the settings say.",
            question="Unsubscribe {cluster} from a topic?",
            did="unsubscribed from",
            run=unsubscribe,
            fields=TOPICS,
            documentation=(
                "The owners stop reading and commit; when all have reported so, the topics are removed. The "
                "other topics do not pause. Subscribed again later, a topic continues from the committed "
                "offsets."
            ),
            risky=True,
        ),
        Command(
            "retry-record",
            label="Retry the record",
            title="retry a record that a handler fails with",
            summary="Try a record again that a handler fails with, and read its partition on if that works.",
            question="Try offset {offset} of {topic} again?",
            did="retried a record of",
            run=partial(answer_record, Answer.RETRY),
            fields=RECORD,
            documentation=(
                "If it still fails, a person is asked again. Where failOnDataLoss has parked the partition at this "
                "offset, Kafka is asked again for its records. Where a timer of its state fails, that is tried again."
            ),
            foresee=partial(foresee_answer, Answer.RETRY),
        ),
        Command(
            "skip-record",
            label="Skip the record",
            title="skip a record that a handler fails with",
            summary="Skip a record that a handler fails with: its partition goes on after it, and no copy is kept.",
            question="Skip offset {offset} of {topic}?",
            did="skipped a record of",
            run=partial(answer_record, Answer.SKIP),
            fields=RECORD,
            documentation=(
                "Kafka has the record for as long as its topic keeps records. To keep it, dead-letter it. Where "
                "failOnDataLoss has parked the partition at this offset, the loss is accepted: the partition goes on "
                "at the next record that there is.\n\n"
                "A skipped record changes no state by key. Where a timer of the state fails at this offset, the "
                "timer is dropped instead, and no record is skipped."
            ),
            risky=True,
            foresee=partial(foresee_answer, Answer.SKIP),
        ),
        Command(
            "dead-letter-record",
            label="Dead-letter the record",
            title="write a record that a handler fails with to the dead-letter topic",
            summary="Write a record that a handler fails with to the dead-letter topic, and read its partition on.",
            question="Dead-letter offset {offset} of {topic}?",
            did="dead-lettered a record of",
            run=partial(answer_record, Answer.DEAD_LETTER),
            fields=RECORD,
            documentation=(
                "The letter and the offset after the record are committed in one transaction; the record changes no "
                "state by key. 'muster deadletters' lists the letters, and replay-deadletters writes them back once "
                "the handler is mended."
            ),
            foresee=partial(foresee_answer, Answer.DEAD_LETTER),
        ),
        Command(
            "standing-answer",
            label="Answer from now on",
            title="answer about failing records from now on",
            summary="Skip, dead-letter or retry from now on what a topic's handler fails with by one error.",
            question="Answer from now on about records of {topic}?",
            did="gave a standing answer for",
            run=answer_from_now_on,
            fields=(
                *FAILS_WITH,
                Field("answer", Kind.TEXT, "Answer", "skip, dead-letter or retry"),
                TEXT,
                Field(
                    "limit",
                    Kind.TEXT,
                    "Limit",
                    "100 for so many records, 100/h for so many an hour; until it is taken back without one",
                    optional=True,
                ),
            ),
            undo="end-standing-answer",
            override="answered",
            standing=lambda decided: [
                Standing({"topic": each.topic, "error": each.error, "text": each.text}, each, each.does)
                for each in decided.standing
            ],
            documentation=(
                "It is given to records that have failed three times alone. With retry they are tried once a minute, "
                "and no person is asked. Without a limit it is also for records that the handler rejects.\n\n"
                "It stops, and a person is asked, at 33 of a partition's or topic's last 100 records, and where more "
                "matching records (at least three) pass by themselves within an hour than it was given to."
            ),
            risky=True,
            foresee=foresee_answers,
        ),
        Command(
            "end-standing-answer",
            label="End the standing answer",
            title="take a standing answer back",
            summary="Take a standing answer back: people are asked about such records again.",
            question="Take the standing answer about {error} in {topic} back?",
            did="took back a standing answer for",
            run=end_answer,
            fields=(*FAILS_WITH, TEXT),
        ),
        Command(
            "replay-deadletters",
            label="Replay dead letters",
            title="write dead letters back",
            summary="Write dead letters back to the topics and partitions that they came from, each once.",
            question="Replay dead letters in {cluster}?",
            did="wrote dead letters back to",
            run=replay_dead_letters,
            fields=(*SCOPE, ERROR),
            documentation=(
                "The oldest come first, and 1,000 at most. Each comes after what its partition got since, for all "
                "groups that read the topic, with the header muster.replay. The letter stays, and is marked in the "
                "same transaction, so none is written back twice. A replay of the cluster that begins later ends "
                "this one. Letters that cannot be written back, such as those of a deleted topic, are named and left "
                "out.\n\n"
                "'muster deadletters' lists the letters; 'muster deadletters replay' also takes single ones, another "
                "topic, and those that were written back before."
            ),
            risky=True,
            foresee=foresee_replay,
        ),
    )
}
"""The commands by name."""

DID: Mapping[str, str] = {
    **{name: command.did for name, command in COMMANDS.items()},
    "clear-assignor": "took the choice of assignor back",
    "lost-records": "lost records of",
    "left-out-records": "left out records of",
}
"""What the names in the history mean, to complete "ann ..."; or the name of a consumer, for what it has lost."""

_DOES = {command.undo: command for command in COMMANDS.values() if command.undo}
"""The command whose override another one takes back, by the name of the latter."""

CLUSTER_WIDE: Mapping[str, Any] = {}


def why_not(command: Command, decided: Overrides, on: Mapping[str, Any] = CLUSTER_WIDE) -> str:
    """Return why `command` makes no sense on `on` (fields with their values, all of one override's) by the overrides
    in force, '' if it does. A command is checked again when it is given."""
    if (does := _DOES.get(command.name)) is not None and does is not command:
        return "" if _stands(does, decided, on) else f"not {does.override}"
    if command.undo != command.name and _stands(command, decided, on):
        return f"{command.override} already"
    return command.unavailable(decided)


def _stands(command: Command, decided: Overrides, on: Mapping[str, Any]) -> bool:
    return any(each.on == on for each in command.standing(decided))


def standing_on(decided: Overrides, consumer: str) -> list[tuple[Command, Standing]]:
    """Return the overrides about `consumer` alone, with the commands that left them."""
    return [
        (command, each)
        for command in COMMANDS.values()
        for each in command.standing(decided)
        if each.on == {"consumer": consumer}
    ]


def on_consumer(decided: Overrides, consumer: str) -> list[str]:
    """Return the names of the commands that make sense on `consumer`."""
    return [
        name
        for name, command in COMMANDS.items()
        if command.subject == "consumer" and not why_not(command, decided, {"consumer": consumer})
    ]
