"""The options of Spark's Kafka source in `consumers.source_options`: what Muster takes, and what it has instead.

`kafka.` and a setting of Kafka's Java consumer goes to the reader. `maxOffsetsPerTrigger` is `max_records_per_batch`.
`startingOffsets` and `startingTimestamp` are for topics that are new to the group; the coordinator goes by them.
`failOnDataLoss` parks partitions of which records are lost. With `minPartitions` several tasks read one partition.
Spark does not distinguish between upper and lower case in names, and neither does this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from muster.core.moments import LAST_MOMENT
from muster.core.seeking import Destination, StartingOffsets, To
from muster.core.wire import check_topic, parse_partition

KAFKA = "kafka."
LIMIT = "maxOffsetsPerTrigger"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
MIN_PARTITIONS = "minPartitions"

_TOPICS = "remove it: the cluster's 'topics' say what is read"
STARTING_OFFSETS, STARTING_TIMESTAMP = "startingOffsets", "startingTimestamp"
_OFFSETS_BY_PARTITION = {-2: Destination(To.EARLIEST), -1: Destination(To.LATEST)}
"""What Spark means by these."""

_START = f"set '{STARTING_OFFSETS}' (earliest, latest, or offsets as JSON) or '{STARTING_TIMESTAMP}' instead"
_END = "remove it: a consumer's query has no end"
_PACE = "set 'trigger_interval' instead"
_RETRIES = "set 'operation_timeout' in the extra of the Airflow connection to Kafka instead"
_INSTEAD = {
    "assign": _TOPICS,
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "startingoffsetsbytimestamp": _START,
    "startingoffsetsbytimestampstrategy": _START,
    "endingoffsets": _END,
    "endingoffsetsbytimestamp": _END,
    "endingtimestamp": _END,
    "maxrecordsperpartition": f"set '{MIN_PARTITIONS}' instead",
    "minoffsetspertrigger": _PACE,
    "maxtriggerdelay": _PACE,
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
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
    starting_offsets(options)
    fail_on_data_loss(options)
    min_partitions(options)


def fail_on_data_loss(options: Mapping[str, str]) -> bool:
    """Tell whether a partition is parked of which Kafka has no more what is to be read; false without the option.
    Raises ValueError for anything but true and false."""
    value = _given(options).get(FAIL_ON_DATA_LOSS.lower(), "false").lower()
    if value not in {"true", "false"}:
        raise ValueError(f"'{FAIL_ON_DATA_LOSS}': {value[:100]!r}; expected is true or false")
    return value == "true"


def min_partitions(options: Mapping[str, str]) -> int:
    """Return how many tasks of a batch there are at least, as far as there are cores for them; 1 without the option.
    Raises ValueError for anything but a whole number from 1."""
    value = _given(options).get(MIN_PARTITIONS.lower(), "1")
    if not (value.isascii() and value.isdigit() and int(value) >= 1):
        raise ValueError(f"'{MIN_PARTITIONS}': {value[:100]!r}; expected is a whole number from 1")
    return int(value)


def starting_offsets(options: Mapping[str, str]) -> StartingOffsets:
    """Return where partitions of a topic begin that is new to the group. Raises ValueError naming the option and what
    may stand there."""
    given = _given(options)
    offsets, timestamp = given.get(STARTING_OFFSETS.lower()), given.get(STARTING_TIMESTAMP.lower())
    if offsets is not None and timestamp is not None:
        raise ValueError(
            f"'{STARTING_OFFSETS}' and '{STARTING_TIMESTAMP}' are two answers; remove one of them"
        )
    if timestamp is not None:
        if not (timestamp.isdigit() and int(timestamp) / 1000 < LAST_MOMENT):
            raise ValueError(
                f"'{STARTING_TIMESTAMP}': {timestamp[:100]!r}; expected are milliseconds since 1970, as in Spark"
            )
        return StartingOffsets(Destination(To.TIME, int(timestamp) / 1000))
    if offsets is None or offsets.lower() == To.EARLIEST:
        return StartingOffsets()
    if offsets.lower() == To.LATEST:
        return StartingOffsets(Destination(To.LATEST))
    return StartingOffsets(offsets=_by_partition(offsets))


def _by_partition(text: str) -> dict[str, dict[int, Destination]]:
    """Parse Spark's `{"flights": {"0": 120, "1": -2}}`; -2 is the earliest offset, -1 the latest."""
    try:
        return {
            check_topic(topic): {
                parse_partition(partition): _OFFSETS_BY_PARTITION.get(offset)
                or Destination(To.OFFSET, _whole(offset))
                for partition, offset in of_topic.items()
            }
            for topic, of_topic in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"'{STARTING_OFFSETS}': {text[:100]!r}: {error}; expected is earliest, latest, or JSON such as "
            '{"flights": {"0": 120, "1": -2}}'
        ) from error


def _whole(offset: object) -> int:
    if type(offset) is not int or offset < 0:
        raise ValueError(f"offset {offset!r} is no whole number from 0")
    return offset


def is_limit(name: object) -> bool:
    """Tell whether it is Spark's name for the most records of a batch."""
    return str(name).lower() == LIMIT.lower()


def reader_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Kafka's Java consumer among the options."""
    return {
        name[len(KAFKA) :].lower(): value for name, value in options.items() if name.lower().startswith(KAFKA)
    }


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their names in lower case, without blanks around their values."""
    return {name.lower(): value.strip() for name, value in options.items()}


def _step(name: str) -> str:
    """Say what to do about an option; '' if it may stand there."""
    lower = name.lower()
    if lower in map(str.lower, (STARTING_OFFSETS, STARTING_TIMESTAMP, FAIL_ON_DATA_LOSS, MIN_PARTITIONS)):
        return ""
    if not lower.startswith(KAFKA):
        return _INSTEAD.get(lower) or (
            f"Spark's Kafka source has no such option; allowed are '{KAFKA}' with a setting of Kafka's Java "
            f"consumer, such as '{KAFKA}max.poll.records', '{LIMIT}', '{MIN_PARTITIONS}', '{FAIL_ON_DATA_LOSS}', "
            f"'{STARTING_OFFSETS}' and '{STARTING_TIMESTAMP}'"
        )
    setting = lower[len(KAFKA) :]
    return _CONNECTION if setting.startswith(_OF_THE_CONNECTION) else _NOT_FOR_THE_READER.get(setting, "")
