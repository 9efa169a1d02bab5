"""One Kafka admin client with deadlines, errors that say what to do, and a quiet log.

librdkafka logs every refused connection several times a second, and says in its errors only that something timed
out. Here its log goes to `logging`, each message once a minute, and the last thing that it said about the connection
stands in the error.
"""

from __future__ import annotations

import concurrent.futures
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, though not by name
    AdminClient,
    NewTopic,
)

from muster.core.model import TopicPartition
from muster.settings.connections import KafkaSettings

Client = TypeVar("Client")

REPEAT_AFTER = 60.0
"""Seconds until the same message of librdkafka is logged again."""
GRACE = 2.0
"""Seconds that librdkafka is given beyond its own time-out to report it."""
LISTED = 5
"""An error names so many partitions."""
RENEW_AFTER = 5.0
"""Seconds that an admin client has to find Kafka before another one takes its place.

librdkafka (2.13 to 2.16) forgets all brokers when one that the controller has fenced tells it that none is up,
and may never connect again (https://github.com/confluentinc/librdkafka/issues/5301).
"""

ONE_TOPIC = "__consumer_offsets"
"""A topic that every Kafka has or will have, to ask for no more than the brokers."""

_CLIENT = re.compile(r"#(producer|consumer)-\d+")


class KafkaError(RuntimeError):
    """Kafka did not do what was asked; the message names the brokers, the operation and the next step."""


class PartitionError(KafkaError):
    """Some partitions failed. `errors` says why for each of them, `offsets` holds the others."""

    def __init__(
        self,
        message: str,
        offsets: Mapping[TopicPartition, Any],
        errors: Mapping[TopicPartition, str],
    ) -> None:
        super().__init__(message)
        self.offsets = dict(offsets)
        self.errors = dict(errors)


@dataclass(frozen=True)
class Failure:
    """What Kafka or librdkafka said: its code, None if it said nothing, and its words."""

    code: int | None
    text: str

    @classmethod
    def of(cls, error: BaseException | confluent_kafka.KafkaError) -> Failure:
        """Read an exception, or an error that stands in an answer."""
        if isinstance(error, KafkaException) and error.args:
            error = error.args[0]
        if isinstance(error, confluent_kafka.KafkaError):
            return cls(error.code(), error.str())
        if isinstance(error, concurrent.futures.TimeoutError):
            return SILENCE
        return cls(None, str(error) or type(error).__name__)


SILENCE = Failure(None, "no answer in time")
UNREACHABLE = frozenset(
    {
        None,
        confluent_kafka.KafkaError._TIMED_OUT,
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    }
)
"""Codes of a failure that may be the connection's."""


class _Once(logging.Filter):
    """Lets a message pass that was not seen for a minute, whichever client it is of."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = _CLIENT.sub("", record.getMessage().split(" (after ")[0])
        now = time.monotonic()
        if now - self._seen.get(key, -REPEAT_AFTER) < REPEAT_AFTER:
            return False
        self._seen[key] = now
        return True


def librdkafka_logger() -> logging.Logger:
    """Return the logger for `logger=` of confluent-kafka's clients: each message once a minute."""
    logger = logging.getLogger("muster.librdkafka")
    if not any(isinstance(present, _Once) for present in logger.filters):
        logger.addFilter(_Once())
    return logger


def next_step(config: Mapping[str, str], said: str) -> str:
    """Say what to do about a connection of which librdkafka, configured with `config`, `said` this."""
    words = said.lower()
    user = config.get("sasl.username")
    asked = f"asked as user {user!r}" if user else "asked without a user"
    if "authorization failed" in words:
        return (
            "give this user Describe on the topics and the group; a consumer's user Read on both, and Write and "
            f"Describe on its transactional ids ({asked})"
        )
    if "sasl" in words and "authentication" in words:
        return f"check sasl.username, sasl.password and sasl.mechanism in the connection ({asked})"
    if "ssl handshake" in words or "certificate" in words:
        return (
            "check ssl.ca.location in the connection, that the brokers' certificates name the hosts they are reached "
            "by, and security.protocol"
        )
    return (
        "check that the brokers run and can be reached from here, and the connection's security settings "
        f"({asked})"
    )


def reader_config(settings: KafkaSettings, group_id: str) -> dict[str, Any]:
    """Return what a client is configured with that reads given offsets of given partitions: it neither joins
    `group_id` nor commits for it, and says where a partition ends."""
    return client_config(settings) | {
        "group.id": group_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "allow.auto.create.topics": "false",
    }


def client_config(settings: KafkaSettings, longest: float = math.inf) -> dict[str, Any]:
    """Return what every client of ours is configured with; but for `socket.timeout.ms` the connection's settings win.

    A request without an answer (the broker is cut off) ends when the caller gives up, after `operation_timeout` or
    `longest` seconds but not before one, and not after a minute.
    """
    timeout = max(1.0, min(longest, settings.operation_timeout))
    return {
        # A broker that is away is asked again after longer and longer, up to every 2 s. The first of these times is
        # short, because librdkafka (2.16) waits half of it between any two connections that it makes: a new client's
        # first answer comes from a bootstrap server, which is another connection than that to the same broker.
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "2000",
        # Idle connections are closed by brokers all the time; that is no news.
        "log.connection.close": "false",
        **settings.config,
        "socket.timeout.ms": str(round(timeout * 1000)),
    }


def open_client(kind: Callable[..., Client], config: Mapping[str, Any]) -> Client:
    """Make one of confluent-kafka's clients. Raises `KafkaError` for settings that librdkafka refuses."""
    try:
        return kind(config, logger=librdkafka_logger())
    except (KafkaException, ValueError, TypeError) as error:
        raise KafkaError(
            f"Kafka at {config['bootstrap.servers']}: librdkafka refuses its settings ({Failure.of(error).text}); "
            "correct the connection, and put what only Kafka's Java client has into 'source_options' of the consumers"
        ) from error


class Trouble:
    """The last trouble that librdkafka reported since Kafka answered; `text` is '' if there was none."""

    text = ""

    def heard(self, error: confluent_kafka.KafkaError) -> None:
        """Take note of an error; that all brokers are down says less than what each of them said."""
        if error.code() != confluent_kafka.KafkaError._ALL_BROKERS_DOWN:
            self.text = error.str()

    def over(self) -> None:
        """Take note that Kafka answered."""
        self.text = ""


class Admin:
    """An admin client of one Kafka cluster; thread-safe. Raises `KafkaError` for settings librdkafka refuses."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.servers = settings.bootstrap_servers
        self.timeout = settings.operation_timeout
        self._config = settings.config
        self._trouble = Trouble()
        self._connected = False
        config = client_config(settings) | {
            # Without this, which librdkafka (2.16) does not document, two threads wake each other all the time that a
            # request waits for a dead broker, and a CPU is gone. With it the client connects to each broker.
            "enable.sparse.connections": "false",
            "error_cb": self._trouble.heard,
        }
        config.pop("isolation.level", None)  # of consumers only
        self._client: AdminClient | None = open_client(AdminClient, config)
        self._another = partial(open_client, AdminClient, config)
        self._opened = time.monotonic()
        self._lock = threading.Lock()

    @property
    def client(self) -> AdminClient:
        """The client, to be used at once: later it may be another one. Raises `KafkaError` once it is closed."""
        client = self._client
        if client is None:
            raise KafkaError(f"Kafka at {self.servers}: this client is closed; make a new one")
        # librdkafka hands over what it has to say only when asked; it would pile up.
        client.poll(0)
        return client

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            self._client = None

    def _renew(self) -> None:
        """Make another client in place of one that has had the time to find Kafka."""
        with self._lock:
            if self._client is not None and time.monotonic() - self._opened > RENEW_AFTER:
                self._client, self._connected, self._opened = self._another(), False, time.monotonic()

    @property
    def trouble(self) -> str:
        """The last trouble with a connection since Kafka answered, '' if there was none."""
        client = self._client
        if client is not None:
            client.poll(0)
        return self._trouble.text

    def connect(self, timeout: float) -> None:
        """Wait once until a broker answers. Raises `KafkaException` if none does.

        While it connects, librdkafka (2.16) asks in vain who leads a partition, and again only after 3 s
        (`rd_kafka_topic_partition_list_query_leaders_async_worker`).
        """
        if not self._connected:
            self.brokers(timeout)
            self._connected = True

    def answers(self, timeout: float) -> bool:
        """Tell whether a broker answers, and knows of one that is up."""
        try:
            return bool(self.brokers(timeout))
        except KafkaException:
            return False

    def racks(self, timeout: float) -> dict[int, str]:
        """Return the rack (`broker.rack`) of each broker that has one, by the broker's id.

        Raises `KafkaException` or `TimeoutError`.
        """
        if not self.brokers(timeout):
            # librdkafka (2.16) ends the process when it hears in `describe_cluster` that there is no broker.
            code = confluent_kafka.KafkaError._ALL_BROKERS_DOWN
            raise KafkaException(confluent_kafka.KafkaError(code, "Kafka names no broker that is up"))
        described = self.client.describe_cluster(request_timeout=timeout)
        return {node.id: node.rack for node in described.result(timeout=timeout + GRACE).nodes if node.rack}

    def brokers(self, timeout: float) -> Collection[int]:
        """Return the ids of the brokers that are up. Raises `KafkaException` if none answers."""
        return self.client.list_topics(ONE_TOPIC, timeout=timeout).brokers

    def refresh(self, timeout: float) -> bool:
        """Ask for all topics and their leaders again; report whether there was an answer."""
        try:
            self.client.list_topics(timeout=timeout)
        except KafkaException:
            return False
        return True

    def heard(self) -> None:
        """Take note that Kafka answered."""
        self._trouble.over()

    def make_topic(
        self, name: str, partitions: int, config: Mapping[str, str], what: str, validate_only: bool = False
    ) -> bool:
        """Make a topic with the brokers' own replication; False if it is there. With `validate_only` nothing is made.

        Raises `KafkaError` that begins with `what` it is, and names the command that makes it.
        """
        asked = self.client.create_topics(
            [NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config))],
            request_timeout=self.timeout,
            validate_only=validate_only,
        )
        try:
            asked[name].result(self.timeout + GRACE)
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            failure = Failure.of(error)
            if failure.code != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                given = " ".join(f"--config {key}={value}" for key, value in config.items())
                raise KafkaError(
                    f"Kafka at {self.servers}: {what} does not exist and cannot be made: "
                    f"{failure.text}; make it with 'kafka-topics.sh --create --topic {name} --partitions "
                    f"{partitions} {given}', or allow this user to create it"
                ) from error
            return False
        return True

    def error(self, what: str, failure: Failure, trouble: str = "") -> KafkaError:
        """Say what went wrong while doing `what`, and what to do.

        If Kafka was out of reach, the next call may be made with another client.
        """
        trouble = trouble or self.trouble
        if failure.code in UNREACHABLE:
            self._renew()
        more = f"; last heard: {trouble}" if trouble else ""
        step = self.next_step(f"{failure.text} {trouble}")
        return KafkaError(f"Kafka at {self.servers}: {what}: {failure.text}{more}; {step}")

    def next_step(self, said: str) -> str:
        """Say what to do when Kafka or librdkafka `said` this."""
        return next_step(self._config, said)


def name_partitions(errors: Mapping[TopicPartition, str]) -> str:
    """Name partitions as `flights [3]: why, ...`, the first few of them."""
    named = [f"{topic} [{partition}]: {why}" for (topic, partition), why in sorted(errors.items())[:LISTED]]
    more = len(errors) - LISTED
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")
