"""Names, numbers and moments as they stand in paths and nodes, and the version of the protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from muster.core.lenient import NUMBER
from muster.core.model import TopicSnapshot

PROTOCOL = 2
"""The version of the protocol that is spoken here. It grows with a change that the version before would misread.
What names no version is always read: version 1 named none, and consumers in other languages need not."""
MAX_PARTITION = 2**31 - 1
MAX_EPOCH = 2**53
"""The greatest whole number that readers of JSON in all languages agree on; epochs begin at the clock's seconds."""
LONGEST_NAME_SHOWN = 100
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule for topic names
SEEK_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the id of a seek may be."""
TOPIC_ID = SEEK_ID
"""What Kafka's id of a topic may be, too."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class WireError(ValueError):
    """Something read from outside is not what the protocol says; the message names it and the next step."""


def readable(
    read: Mapping[str, TopicSnapshot | WireError],
) -> tuple[dict[str, TopicSnapshot], dict[str, str]]:
    """Return the snapshots, and the unreadable topics with the reason: they stay as they are; others go on."""
    snapshots = {topic: found for topic, found in read.items() if isinstance(found, TopicSnapshot)}
    return snapshots, {topic: str(found) for topic, found in read.items() if isinstance(found, WireError)}


def check_topic(name: str) -> str:
    """Return `name` if Kafka would take it as a topic name, else raise `WireError`."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise WireError(
            f"topic name {_shown(name)}: allowed are 1 to 249 of letters, digits, '.', '_' and '-'"
        )
    return name


def check_id(name: str, what: str = "consumer id") -> str:
    """Return `name` if it can stand in a ZooKeeper path and a Consul key, else raise `WireError`."""
    if not _ID.fullmatch(name):
        raise WireError(
            f"{what} {_shown(name)}: allowed are 1 to 128 of letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return name


def _shown(name: str) -> str:
    """Show a name that may be anything, as errors do."""
    return repr(name if len(name) <= LONGEST_NAME_SHOWN else f"{name[:LONGEST_NAME_SHOWN]}...")


Partition = Annotated[StrictInt, Field(ge=0, le=MAX_PARTITION)]
# The same ids and partitions stand in every node of a cluster: each is checked once.
Id = Annotated[StrictStr, AfterValidator(lru_cache(maxsize=65_536)(check_id))]
Epoch = Annotated[StrictInt, Field(ge=0, le=MAX_EPOCH)]
# Control characters stand in no address or group, and librdkafka would refuse all its settings for the sake of one.
Setting = Annotated[StrictStr, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00-\x1f\x7f]+$")]


def parse_partition(text: str) -> int:
    """Read a partition number. Raises `WireError` for anything else, also for one written with leading zeros."""
    if not (NUMBER.fullmatch(text) and int(text) <= MAX_PARTITION):
        raise WireError(f"partition {_shown(text)}: expected a whole number from 0")
    return int(text)


def _moment(value: datetime) -> datetime:
    if not 1970 <= value.year <= 9998:  # noqa: PLR2004  what can be written again in any time zone
        raise ValueError("is not a moment from 1970 to 9998")
    return value


Moment = Annotated[datetime, AfterValidator(_moment)]


@lru_cache(maxsize=65_536)
def partition_key(text: str) -> str:
    parse_partition(text)
    return text


class OtherVersionError(ValueError):
    """Something is of a version of the protocol that is not understood here."""


def check_protocol(version: int | None) -> int | None:
    """Return `version` if what is written in it can be relied on here. None names none.

    Raises `OtherVersionError`.
    """
    if version is None or abs(version - PROTOCOL) <= 1:
        return version
    raise OtherVersionError(
        f"it is of version {version} of the protocol, and here versions {PROTOCOL - 1} to {PROTOCOL + 1} are "
        "understood; first install a version of Muster between the two"
    )


Protocol = Annotated[StrictInt | None, AfterValidator(check_protocol)]


class Node(BaseModel):
    """What is written as JSON; keys that are not known are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)


def mistake(where: str, error: ValidationError, otherwise: str) -> WireError:
    """Say what is wrong `where`: a version that is not understood here, or `otherwise`, with {} for the details."""
    for each in error.errors(include_url=False):
        if isinstance(cause := each.get("ctx", {}).get("error"), OtherVersionError):
            return WireError(f"{where}: {cause}")
    return WireError(f"{where} {otherwise.format(explain(error))}")


def explain(error: ValidationError) -> str:
    """Name the first key at fault, and what is wrong with it."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part)[:LONGEST_NAME_SHOWN] for part in first["loc"]) or "the whole text"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}"


def to_json(value: Mapping[str, object]) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
