"""How to reach ZooKeeper, Consul and Kafka, with TLS, SASL and tokens.

In Airflow these come from connections (`muster.settings.connection_parsing` turns one into the other), so secrets are
where Airflow users keep theirs. A consumer gets them in its settings (`muster.settings.consumer`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    field_validator,
)

RESERVED = frozenset(
    {
        "group.id",
        "group.protocol",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.partition.eof",
    }
)
"""The properties of librdkafka that Muster sets itself."""
PERMISSIONS = "cdrwa"
SCHEMES = ("world", "auth", "digest", "sasl", "ip", "x509")


class _Connection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _fit_for_a_header(secret: SecretStr) -> SecretStr:
    # HTTP clients refuse other characters with an error that shows the whole header.
    if not re.fullmatch(r"[!-~]+", secret.get_secret_value()):
        raise ValueError(
            "is empty, or has a space, a line end or another character that no HTTP header can hold"
        )
    return secret


Secret = Annotated[SecretStr, PlainSerializer(SecretStr.get_secret_value, return_type=str, when_used="json")]
"""A secret that stands in the clear in JSON alone, which a consumer is started with."""
HeaderSecret = Annotated[Secret, AfterValidator(_fit_for_a_header)]
"""A secret that is sent in an HTTP header."""


def _checked_acl(text: str) -> str:
    parse_acl(text)
    return text


class ZooKeeperSettings(_Connection):
    """`hosts` is kazoo's connection string, `host:port,host:port/chroot`. Times are in seconds."""

    hosts: Annotated[str, Field(min_length=1)]
    session_timeout: Annotated[float, Field(gt=0)] = 10.0
    operation_timeout: Annotated[float, Field(gt=0)] = 10.0
    jute_maxbuffer: Annotated[int, Field(gt=0)] = 0xFFFFF
    """Bytes of the largest request that the servers take: their `jute.maxbuffer`, and its default."""
    use_ssl: bool = False
    ca: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    keyfile_password: Secret | None = None
    verify_certs: bool = True
    check_hostname: bool = True
    sasl_mechanism: Literal["DIGEST-MD5", "GSSAPI"] | None = None
    username: str | None = None
    password: Secret | None = None
    auth_scheme: Literal["digest"] | None = None
    """With `digest`, username and password are ZooKeeper's own digest authentication instead of SASL."""
    acl: Annotated[str, AfterValidator(_checked_acl)] | None = None
    """Who may do what with the nodes that are created, see `parse_acl`."""

    @property
    def who(self) -> str:
        """Describe the user of the ZooKeeper connection."""
        if self.sasl_mechanism == "GSSAPI":
            return f"with Kerberos{f' as {self.username!r}' if self.username else ''}"
        return f"as user {self.username!r}" if self.username else "without a user"


class ConsulSettings(_Connection):
    """Where the Consul agent answers. `timeout` (seconds) is for a plain call; blocking ones add to it.

    `namespace` and `partition` are those of Consul Enterprise; None: the token's own.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(gt=0, lt=65536)] = 8500
    scheme: Literal["http", "https"] = "http"
    token: HeaderSecret | None = None
    datacenter: str | None = None
    namespace: str | None = None
    partition: str | None = None
    timeout: Annotated[float, Field(gt=0)] = 5.0
    verify: bool = True
    ca: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


class StatusTls(_Connection):
    """TLS of the consumers' status pages: `certfile` and `keyfile` for the page, `ca` for those who read it.

    A `certfile` may hold the key, too. The files are those of the machine where they are used.
    """

    certfile: Annotated[str, Field(min_length=1)]
    keyfile: str | None = None
    ca: Annotated[str, Field(min_length=1)]
    check_hostname: bool = True
    """Whether the address that a consumer registers has to stand in its certificate."""


class StatusPageSettings(_Connection):
    """How the consumers' status pages are guarded: the bearer `token` that they ask for, and TLS."""

    token: HeaderSecret | None = None
    tls: StatusTls | None = None

    @property
    def scheme(self) -> Literal["http", "https"]:
        """What the pages speak."""
        return "https" if self.tls else "http"


OPEN_PAGES = StatusPageSettings()
"""Status pages that anyone may read, over plain HTTP."""


class AirflowApiSettings(_Connection):
    """Where Airflow's REST API answers, and as which user: `username` and `password`, or a bearer `token`."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    scheme: Literal["http", "https"] = "http"
    username: str | None = None
    password: Secret | None = None
    token: HeaderSecret | None = None
    verify: bool = True
    ca: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    @property
    def address(self) -> str:
        """The base URL."""
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port else "")


class KafkaSettings(_Connection):
    """librdkafka properties (`bootstrap.servers`, `security.protocol`, `sasl.*`, `ssl.*`, ...).

    Offsets, group and polling belong to Muster, so properties that would change them (`RESERVED`) are refused here,
    and ignored in a connection.
    `operation_timeout` is in seconds.
    """

    config: dict[str, str]
    operation_timeout: Annotated[float, Field(gt=0)] = 10.0

    @field_validator("config", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
        return value

    @field_validator("config")
    @classmethod
    def _complete(cls, value: dict[str, str]) -> dict[str, str]:
        if not value.get("bootstrap.servers"):
            raise ValueError("needs 'bootstrap.servers'")
        if wrong := sorted(RESERVED & value.keys()):
            raise ValueError(f"{', '.join(wrong)}: set by Muster itself; remove it")
        return value

    @property
    def bootstrap_servers(self) -> str:
        """The brokers to begin with, `host:port,host:port`."""
        return self.config["bootstrap.servers"]

    def at(self, bootstrap_servers: str) -> KafkaSettings:
        """Return the same settings for other brokers to begin with."""
        return self.model_copy(update={"config": {**self.config, "bootstrap.servers": bootstrap_servers}})


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Who (`scheme` and `id`) may do what (`permissions`, letters of `PERMISSIONS`)."""

    scheme: str
    id: str
    permissions: str


def parse_acl(text: str) -> tuple[AclEntry, ...]:
    """Read the ACL of a ZooKeeper node as `zkCli.sh setAcl` takes it: `auth::cdrwa,sasl:flights:r`.

    It is a list of `scheme:id:permissions`. The scheme `auth` (without an id) is the user that creates the node.
    Permissions are letters: `c` create children, `d` delete children, `r` read, `w` write, `a` set the ACL. Raises
    ValueError saying what is wrong and what is allowed.
    """
    return tuple(_entry(part.strip()) for part in text.split(","))


def _entry(text: str) -> AclEntry:
    scheme, _, rest = text.partition(":")
    who, separator, permissions = rest.rpartition(":")
    if not separator:
        raise ValueError(f"{text!r} is no ACL entry; write scheme:id:permissions, such as 'sasl:flights:r'")
    if scheme not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is unknown; there are {', '.join(SCHEMES)}")
    if not permissions or set(permissions) - set(PERMISSIONS):
        raise ValueError(f"permissions {permissions!r} of {text!r}: expected letters of {PERMISSIONS!r}")
    if scheme == "auth" and who:
        raise ValueError(
            f"{text!r}: scheme 'auth' is the user that creates the node and takes no id; write 'auth::...'"
        )
    if scheme == "world" and who != "anyone":
        raise ValueError(f"{text!r}: scheme 'world' has the one id 'anyone'")
    if scheme not in {"auth", "world"} and not who:
        raise ValueError(f"{text!r}: scheme {scheme!r} needs an id")
    return AclEntry(scheme, who, permissions)
