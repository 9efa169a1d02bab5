"""What a consumer job is started with: one JSON text in the environment variable `MUSTER_CONSUMER`.

The environment rather than the command line, because it holds secrets and command lines are for all to see.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from muster.core.wire import check_id
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

VARIABLE = "MUSTER_CONSUMER"


class ConsumerSettings(BaseModel):
    """All that one consumer needs to know. Times are in seconds.

    `incarnation` is a UUID that is new for each start. `kafka` supplies security and tuning; where a topic's
    records are and whose offsets count, its assignment node says. `bind` is the address that the status page
    listens on, `advertise` the one that it is registered under; port 0 takes a free one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: Annotated[str, AfterValidator(check_id)]
    consumer: Annotated[str, AfterValidator(check_id)]
    incarnation: Annotated[str, Field(min_length=1, max_length=128)]
    consul_service: Annotated[str, AfterValidator(check_id)]
    zookeeper: ZooKeeperSettings
    consul: ConsulSettings
    kafka: KafkaSettings
    handler: str
    handler_options: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, str] = Field(default_factory=dict)
    bind: str = "127.0.0.1"
    advertise: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=65536)] = 0
    trigger_interval: Annotated[float, Field(ge=0)] = 0.2
    max_records_per_batch: Annotated[int, Field(gt=0)] = 100_000
    check_interval: Annotated[float, Field(gt=0)] = 1.0
    reread_interval: Annotated[float, Field(gt=0)] = 5.0
    """ZooKeeper is read again this often besides the watches, because watches can get lost."""
    fencing: bool = True
    """Whether Kafka refuses the commits of whoever had a partition before."""
    graceful_timeout: Annotated[float, Field(gt=0)] = 60.0

    @classmethod
    def from_environment(cls) -> ConsumerSettings:
        """Read `MUSTER_CONSUMER`. Raises ValueError naming the key that is wrong, never showing a secret."""
        text = os.environ.get(VARIABLE)
        if not text:
            raise ValueError(f"environment variable {VARIABLE} is not set; the consumers DAG sets it")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
                for item in error.errors(include_url=False, include_input=False)
            )
            raise ValueError(f"environment variable {VARIABLE}: {wrong}") from None

    def to_environment(self) -> dict[str, str]:
        """The environment variable to start the consumer with. Holds secrets in the clear."""
        return {VARIABLE: self.model_dump_json()}
