"""What a consumer job is started with: one JSON text in the environment variable `MUSTER_CONSUMER`.

In base64 where the text goes through a shell on its way, as YARN's environment does.

The environment rather than the command line, because it holds secrets and command lines are for all to see.

Coordinator and consumer may be of neighbouring versions. What has its default is left out, so that an older consumer
is only asked for what it does not know where that is wanted; and `MUSTER_PROTOCOL` says which version of the protocol
the coordinator speaks.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)

from muster.core.ownership import LONGEST_RENEWAL
from muster.core.parking import OnPoison
from muster.core.wire import PROTOCOL, check_id, check_protocol
from muster.settings.connections import (
    ConsulSettings,
    HeaderSecret,
    KafkaSettings,
    StatusPageSettings,
    StatusTls,
    ZooKeeperSettings,
)

VARIABLE = "MUSTER_CONSUMER"
VERSION = "MUSTER_PROTOCOL"
LEAST_READ_AHEAD = 2**20
"""Bytes of `max_read_ahead` at least."""
_UNKNOWN = "extra_forbidden"
_NEWER = (
    "this consumer's Muster does not know the setting; install the coordinator's version where consumers run, or "
    "leave the setting out until then"
)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def dotted(value: str) -> str:
    """Return `value` if it is a dotted path, else raise ValueError."""
    if not _DOTTED.fullmatch(value):
        raise ValueError(f"{value[:100]!r} is not a dotted path such as 'package.module.function'")
    return value


def default_dead_letter_topic(cluster: str) -> str:
    """Return the topic of dead letters of a cluster that names none. No pattern covers it, as it begins with `__`."""
    return f"__muster.dead-letters.{cluster}"


class TopicHandler(BaseModel):
    """The handler of some topics; see `muster.consumer.handler`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    handler: Annotated[str, AfterValidator(dotted)]
    handler_options: dict[str, Any] = Field(default_factory=dict)


class ConsumerSettings(BaseModel):
    """All that one consumer needs to know. Times are in seconds.

    `incarnation` is a UUID that is new for each start. `kafka` supplies security and tuning; where a topic's
    records are and whose offsets count, its assignment node says. `bind` is the address that the status page
    listens on, `advertise` the one that it is registered under; an empty one is found out by the driver, which may
    run on another machine than what submitted it. Port 0 takes a free one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Annotated[str, AfterValidator(check_id)]
    consumer: Annotated[str, AfterValidator(check_id)]
    incarnation: Annotated[str, Field(min_length=1, max_length=128)]
    consul_service: Annotated[str, AfterValidator(check_id)]
    consul_prefix: str = "muster"
    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    kafka: KafkaSettings
    handler: str
    handler_options: dict[str, Any] = Field(default_factory=dict)
    handlers: dict[str, TopicHandler] = Field(default_factory=dict)
    """By regular expressions of whole topic names, in the order in which they are tried; others go to `handler`."""
    metadata: dict[str, str] = Field(default_factory=dict)
    bind: str = ""
    advertise: str = ""
    port: Annotated[int, Field(ge=0, lt=65536)] = 0
    trigger_interval: Annotated[float, Field(ge=0)] = 0.2
    max_records_per_batch: Annotated[int, Field(gt=0)] = 500_000
    target_batch_time: Annotated[float, Field(gt=0)] = 10.0
    """A batch that takes longer makes the next one smaller."""
    max_bytes_per_batch: Annotated[int, Field(gt=0)] | None = None
    """About so many bytes of keys, values and headers; None: any."""
    max_read_ahead: Annotated[int, Field(ge=LEAST_READ_AHEAD)] | None = None
    """Bytes that an executor holds of what is read ahead; None: an eighth of its heap, at most 64 MB."""
    max_rate: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Records a second of a topic, by regular expressions of whole names; the first that matches counts."""
    state: tuple[str | tuple[str, ...], ...] = ()
    """The topics with state by key, as regular expressions of whole names, or as lists of names that share it."""
    state_folder: str = ""
    """Where the local stores are; empty: a folder of the user's in that for temporary files."""
    source_options: dict[str, str] = Field(default_factory=dict)
    """`kafka.` and settings of Kafka's Java consumer, for the reader alone."""
    check_interval: Annotated[float, Field(gt=0)] = 1.0
    reread_interval: Annotated[float, Field(gt=0)] = 5.0
    """ZooKeeper is read again this often besides the watches, because watches can get lost."""
    fencing: bool = True
    """Whether Kafka refuses the commits of former owners of a partition."""
    on_poison: OnPoison = OnPoison.PARK
    max_batch_time: Annotated[float, Field(gt=0)] | None = None
    """After so long a batch that is still in its handler is reported to people; None: never."""
    dead_letter_topic: str = ""
    """Where dead letters go; empty: see `dead_letters_to`."""
    graceful_timeout: Annotated[float, Field(gt=0)] = 60.0
    hand_over: Annotated[float, Field(ge=0)] = 5.0
    """How long a consumer that is to stop reads on while none of its partitions is taken from it; 0: not at all."""
    longest_renewal: Annotated[float, Field(gt=0)] = LONGEST_RENEWAL
    """After so long an offset that stands is committed again at the latest; Kafka forgets it after its own time."""
    deregister_after: Annotated[float, Field(ge=60)] = 3600.0
    """So long the check must fail until Consul forgets a consumer that died; Consul takes no less than a minute."""
    log_file: str = ""
    """Where this machine keeps the driver's output, for it to be rotated; empty where the cluster keeps it."""
    status_token: HeaderSecret | None = None
    """The bearer token that `/status` and `/metrics` ask for; None leaves them open."""
    status_tls: StatusTls | None = None
    """TLS of the status pages; None is plain HTTP."""

    @property
    def dead_letters_to(self) -> str:
        """The topic of dead letters, '' for none: they are written in the transaction that fences their offset."""
        return (self.dead_letter_topic or default_dead_letter_topic(self.cluster)) if self.fencing else ""

    @property
    def status_pages(self) -> StatusPageSettings:
        """How this consumer's status page and those of the others are guarded."""
        return StatusPageSettings(token=self.status_token, tls=self.status_tls)

    @classmethod
    def from_environment(cls) -> ConsumerSettings:
        """Read `MUSTER_CONSUMER`. Raises ValueError naming the key that is wrong, never showing a secret."""
        text = os.environ.get(VARIABLE)
        if not text:
            raise ValueError(f"environment variable {VARIABLE} is not set; the consumers DAG sets it")
        version = os.environ.get(VERSION, "")
        try:
            check_protocol(int(version) if version.isdecimal() else None)
        except ValueError as error:
            raise ValueError(f"environment variable {VERSION}: {error}") from None
        try:
            return cls.model_validate_json(text if text.startswith("{") else b64decode(text, validate=True))
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(str(part)[:100] for part in item['loc'])}: "
                f"{_NEWER if item['type'] == _UNKNOWN else item['msg']}"
                for item in error.errors(include_url=False, include_input=False)
            )
            raise ValueError(f"environment variable {VARIABLE}: {wrong}") from None
        except ValueError as error:
            raise ValueError(
                f"environment variable {VARIABLE}: neither a JSON object nor base64: {error}"
            ) from None

    @property
    def kafka_in_zone(self) -> KafkaSettings:
        """`kafka`, which reads from replicas in the consumer's zone; a `client.rack` of its own counts before."""
        zone = self.metadata.get("zone")
        if not zone:
            return self.kafka
        return self.kafka.model_copy(update={"config": {"client.rack": zone, **self.kafka.config}})

    def to_environment(self, encoded: bool = False) -> dict[str, str]:
        """Return the variables to start it with, settings in base64 if `encoded`. They hold secrets in the clear."""
        text = self.model_dump_json(exclude_defaults=True)
        return {VARIABLE: b64encode(text.encode()).decode() if encoded else text, VERSION: str(PROTOCOL)}
