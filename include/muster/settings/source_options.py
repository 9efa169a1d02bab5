"""The options of Spark's Kafka source in `consumers.source_options`: what Muster takes, and what it has instead.

`kafka.` and a setting of Kafka's Java consumer goes to the reader. `maxOffsetsPerTrigger` is `max_records_per_batch`.
Spark does not distinguish between upper and lower case in names, and neither does this.
"""

from __future__ import annotations

from collections.abc import Mapping

KAFKA = "kafka."
LIMIT = "maxOffsetsPerTrigger"

_TOPICS = "remove it: the cluster's 'topics' say what is read"
_START = "remove it: a partition begins at the group's committed offset, and without one at its first record"
_END = "remove it: a consumer's query has no end"
_TASKS = (
    "remove it: a partition is read by one task; Spark's cores, in 'spark_conf', say how many run at a time"
)
_PACE = "set 'trigger_interval' instead"
_RETRIES = "set 'operation_timeout' in the extra of the Airflow connection to Kafka instead"
_INSTEAD = {
    "assign": _TOPICS,
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "startingoffsets": _START,
    "startingoffsetsbytimestamp": _START,
    "startingoffsetsbytimestampstrategy": _START,
    "startingtimestamp": _START,
    "endingoffsets": _END,
    "endingoffsetsbytimestamp": _END,
    "endingtimestamp": _END,
    "minpartitions": _TASKS,
    "maxrecordsperpartition": _TASKS,
    "minoffsetspertrigger": _PACE,
    "maxtriggerdelay": _PACE,
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
    "failondataloss": (
        "remove it: the query goes on, and what Kafka has no more is counted (muster_consumer_lost_records_total)"
    ),
    "groupidprefix": "set the cluster's 'group_id' instead",
    "includeheaders": "remove it: the column 'headers' is always there",
    "kafkaconsumer.polltimeoutms": "remove it: a task waits 120 s for a partition that gives nothing",
}
_CONNECTION = (
    "set it in the Airflow connection to Kafka instead, from which the consumer's other clients have it, too"
)
_MUSTERS = "remove it: Muster decides which offsets are read and committed, and gives the columns as bytes"
_NOT_FOR_THE_READER = {
    "bootstrap.servers": _CONNECTION,
    "isolation.level": _CONNECTION,
    "group.id": "set the cluster's 'group_id' instead",
    "group.instance.id": _MUSTERS,
    "group.protocol": _MUSTERS,
    "enable.auto.commit": _MUSTERS,
    "auto.offset.reset": _START,
    "key.deserializer": _MUSTERS,
    "value.deserializer": _MUSTERS,
    "interceptor.classes": _MUSTERS,
    "allow.auto.create.topics": "remove it: topics are never created by reading them",
}
_OF_THE_CONNECTION = ("security.", "ssl.", "sasl.")


def check_source_options(options: Mapping[str, str]) -> None:
    """Raise ValueError naming the first option that cannot stand there, with what to do instead."""
    for name in options:
        if step := _step(name):
            raise ValueError(f"{name[:100]!r}: {step}")


def is_limit(name: object) -> bool:
    """Whether it is Spark's name for the most records of a batch."""
    return str(name).lower() == LIMIT.lower()


def reader_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings of Kafka's Java consumer among the options."""
    return {name[len(KAFKA) :].lower(): value for name, value in options.items()}


def _step(name: str) -> str:
    """What to do about an option; '' if it may stand there."""
    lower = name.lower()
    if not lower.startswith(KAFKA):
        return _INSTEAD.get(lower) or (
            f"Spark's Kafka source has no such option; allowed are '{KAFKA}' with a setting of Kafka's Java "
            f"consumer, such as '{KAFKA}max.poll.records', and '{LIMIT}'"
        )
    setting = lower[len(KAFKA) :]
    return _CONNECTION if setting.startswith(_OF_THE_CONNECTION) else _NOT_FOR_THE_READER.get(setting, "")
