"""A ZooKeeper session whose every call ends within a deadline, with TLS, SASL and digest authentication.

kazoo queues requests while the connection is suspended and waits for their answers without end. Here each
operation gets `operation_timeout` seconds as a whole. A *write* that ran into its deadline, or lost its
connection, may or may not have happened, and may even still happen: a caller that gets `ZooKeeperError` reads
again before it decides anything, and its versions keep a late write from doing harm. Versions count within one
session: a multi is sent by the session that read them, or not at all.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE, make_acl

from muster.edges.zookeeper_multi_write import multi_async, session_of, size_of
from muster.settings.connections import ZooKeeperSettings, parse_acl

log = logging.getLogger(__name__)

LONGEST_RECONNECT_DELAY = 3.0
"""Seconds between two attempts to reconnect; kazoo's own limit is an hour."""

ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""What ZooKeeper says about the nodes themselves; callers decide what it means."""


DENIALS = (NoAuthError, InvalidACLError, AuthFailedError, SessionClosedRequireSaslError)


class ZooKeeperError(RuntimeError):
    """ZooKeeper did not do what was asked; the message names the servers, the operation and the next step."""


class TooLargeError(ZooKeeperError):
    """A request is larger than ZooKeeper takes, and was not sent."""


class AccessDeniedError(ZooKeeperError):
    """The session may not do this to this node; other nodes may be open to it."""


class _LastWords(logging.LoggerAdapter[logging.Logger]):
    """Passes kazoo's log on and keeps its last warning: kazoo tells only its log why it cannot connect.

    `ended_by` is what ended its connecting thread, after which it never connects again.
    """

    last = ""
    ended_by: BaseException | None = None

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, and remember from WARNING on."""
        if level >= logging.WARNING:
            self.last = (str(msg) % args if args else str(msg)).splitlines()[0][:300]
        if kwargs.get("exc_info"):
            self.ended_by = sys.exc_info()[1]
        super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave the message as it is."""
        return msg, kwargs


def make_client(settings: ZooKeeperSettings) -> KazooClient:
    """Return a client that is not started; `start_client` and `stop_client` do that within deadlines.

    With `use_ssl` the server's certificate and its host name (as it stands in `hosts`) are checked unless
    `verify_certs` or `check_hostname` is off. When the client authenticates (SASL or digest), the nodes it
    creates belong to the user so authenticated and may be read by all: consumers only read, and what they read
    is no secret. Without authentication they are open to all, which is ZooKeeper's default. The setting `acl` says
    otherwise; nodes that are there already keep the ACL they have.

    Raises `ZooKeeperError` for settings that contradict each other.
    """
    _check(settings)
    password = settings.password.get_secret_value() if settings.password else ""
    sasl: dict[str, str] | None = None
    auth: list[tuple[str, str]] | None = None
    if settings.sasl_mechanism == "DIGEST-MD5":
        sasl = {"mechanism": "DIGEST-MD5", "username": settings.username or "", "password": password}
    elif settings.sasl_mechanism == "GSSAPI":
        sasl = {"mechanism": "GSSAPI"} | ({"principal": settings.username} if settings.username else {})
    elif settings.auth_scheme == "digest":
        auth = [("digest", f"{settings.username}:{password}")]
    try:
        return KazooClient(
            hosts=settings.hosts,
            timeout=settings.session_timeout,
            default_acl=_acl(settings, authenticated=bool(sasl or auth)),
            auth_data=auth,
            sasl_options=sasl,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=LONGEST_RECONNECT_DELAY),
            logger=_LastWords(logging.getLogger("kazoo.client"), {}),
            use_ssl=settings.use_ssl,
            ca=settings.ca,
            certfile=settings.certfile,
            keyfile=settings.keyfile,
            keyfile_password=settings.keyfile_password.get_secret_value()
            if settings.keyfile_password
            else None,
            verify_certs=settings.verify_certs,
            check_hostname=settings.use_ssl and settings.verify_certs and settings.check_hostname,
        )
    except ValueError as error:
        raise ZooKeeperError(
            f"ZooKeeper at {settings.hosts!r}: {error}; write the hosts as host:port,host:port/chroot"
        ) from error


def _acl(settings: ZooKeeperSettings, authenticated: bool) -> list[ACL] | None:
    """Return what the nodes that are created get; None is kazoo's default, open to all."""
    if settings.acl is None:
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if authenticated else None
    return [
        make_acl(
            entry.scheme,
            entry.id,
            read="r" in entry.permissions,
            write="w" in entry.permissions,
            create="c" in entry.permissions,
            delete="d" in entry.permissions,
            admin="a" in entry.permissions,
        )
        for entry in parse_acl(settings.acl)
    ]


def _check(settings: ZooKeeperSettings) -> None:
    def refuse(problem: str, step: str) -> None:
        raise ZooKeeperError(f"ZooKeeper at {settings.hosts}: {problem}; {step}")

    if settings.use_ssl and bool(settings.certfile) != bool(settings.keyfile):
        # kazoo would silently connect without the client certificate.
        refuse("of certfile and keyfile only one is set", "set both for a client certificate, or neither")
    if settings.sasl_mechanism and settings.auth_scheme:
        refuse("both sasl_mechanism and auth_scheme are set", "choose one of them")
    if (settings.sasl_mechanism == "DIGEST-MD5" or settings.auth_scheme == "digest") and not (
        settings.username and settings.password
    ):
        refuse("digest authentication needs username and password", "set both")
    if settings.acl and "auth" in {entry.scheme for entry in parse_acl(settings.acl)}:
        certificate = settings.use_ssl and settings.certfile
        if not (settings.sasl_mechanism or settings.auth_scheme or certificate):
            refuse(
                "acl grants something to 'auth', which is the authenticated user, and there is none",
                "set sasl_mechanism or auth_scheme with username and password, or grant it to another user",
            )
    if settings.sasl_mechanism and importlib.util.find_spec("puresasl") is None:
        refuse("SASL needs a package that is not installed", "pip install 'kazoo[sasl]'")
    if settings.sasl_mechanism == "GSSAPI" and importlib.util.find_spec("kerberos") is None:
        refuse("GSSAPI needs a package that is not installed", "pip install 'pure-sasl[gssapi]'")


def start_client(client: KazooClient, settings: ZooKeeperSettings) -> None:
    """Connect. Raises `ZooKeeperError`, saying what kept it from connecting, after `operation_timeout` seconds."""
    if not client.start_async().wait(settings.operation_timeout):
        words = getattr(client.logger, "last", "")
        stop_client(client, 1.0)
        raise ZooKeeperError(
            f"ZooKeeper at {settings.hosts}: no connection within {settings.operation_timeout:g} s"
            f"{f' ({words})' if words else ''}; check that it runs, and the hosts, TLS and SASL of the connection"
        )


def gave_up(client: KazooClient) -> BaseException | None:
    """Say why the client will never connect again; None while it may.

    A refused password is final for kazoo, and it takes a connection that drops during SASL for one. But a server that
    restarts drops connections too, and a password can be put right: make a new client.
    """
    error: BaseException | None = getattr(client.logger, "ended_by", None)
    if client.client_state == KeeperState.AUTH_FAILED:
        error = AuthFailedError()
    final = isinstance(error, DENIALS) or client.client_state == KeeperState.CLOSED
    return error if final else None


def refused(settings: ZooKeeperSettings) -> str:
    """Say that ZooKeeper does not let one in, and what to do about it."""
    if settings.auth_scheme:
        step = (
            "check username and password in the connection, and whether ZooKeeper asks for SASL, which is "
            "'sasl_mechanism' in place of 'auth_scheme'"
        )
    elif settings.username or settings.sasl_mechanism:
        step = "check username and password in the connection, and that ZooKeeper knows this user"
    else:
        step = "set username and password in the connection, with 'sasl_mechanism' or 'auth_scheme'"
    return f"refused {settings.who}: it does not accept these credentials; {step}"


def stop_client(client: KazooClient, timeout: float) -> None:
    """End the session, waiting at most `timeout` seconds; kazoo itself may take ten without an answer."""

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except (KazooException, OSError) as error:
            log.warning("ZooKeeper session was not closed in order (%s); it ends with its time-out", error)

    thread = threading.Thread(target=stop, daemon=True, name="zookeeper-stop")
    thread.start()
    thread.join(timeout)


class Session:
    """A connected client. What it is asked to do are operations (`begin`)."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self.settings = settings
        self.client = make_client(settings)

    def open(self) -> None:
        """Connect. Raises `ZooKeeperError`, also if the path in the connection's host (kazoo's chroot) is not there.

        It is not created: a misspelt one would be a second, empty ZooKeeper.
        """
        start_client(self.client, self.settings)
        try:
            self._require_chroot()
        except ZooKeeperError:
            self.close()
            raise

    def _require_chroot(self) -> None:
        path, hosts = self.client.chroot, self.settings.hosts
        if path and self.begin().call(f"looking for {path}", self.client.exists_async, "/") is None:
            raise ZooKeeperError(
                f"ZooKeeper at {hosts}: there is no path {path}; correct it in the connection's host, or create it "
                f"once: zkCli.sh create {path}"
            )

    def close(self) -> None:
        """End the session; never raises, never takes longer than `operation_timeout`."""
        stop_client(self.client, self.settings.operation_timeout)

    def begin(self) -> Operation:
        """Begin an operation: its time runs from now."""
        return Operation(self)


class Operation:
    """Calls that end within `operation_timeout` seconds together, or in `ZooKeeperError`.

    `session` is the number of the session that it began in, `limit` the bytes of the largest request.
    """

    def __init__(self, session: Session) -> None:
        self.client = session.client
        self.session = session_of(session.client)
        self.limit = session.settings.jute_maxbuffer
        self._settings = session.settings
        self._end = time.monotonic() + session.settings.operation_timeout

    def left(self) -> float:
        """Return the seconds that are left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def call(self, what: str, function: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        """Call one of kazoo's `..._async` functions and wait for its answer; see `wait`."""
        self.compare(what, sum(len(arg) for arg in args if isinstance(arg, bytes)))
        return self.wait(what, function(*args, **kw))

    def wait(self, what: str, result: Any) -> Any:
        """Return what the asynchronous `result` came to.

        What ZooKeeper says about nodes (`ANSWERS`) is passed on; everything else becomes `ZooKeeperError`.
        """
        try:
            return result.get(timeout=self.left())
        except ANSWERS:
            raise
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise self.error(what, error) from error

    def compare(self, what: str, size: int) -> None:
        """Raise `TooLargeError` for a request of `size` bytes that ZooKeeper would not take.

        It would drop the connection without a word, and all that is under way with it.
        """
        if size > self.limit:
            raise TooLargeError(
                f"ZooKeeper at {self._settings.hosts}: {what}: takes {size:,} bytes in one write, of at most "
                f"{self.limit:,} that ZooKeeper takes; nothing was sent. Give the topic fewer partitions, or its "
                "consumers shorter ids; or raise 'jute.maxbuffer' of every ZooKeeper server, and then "
                "'jute_maxbuffer' in the extra of the connection"
            )

    def commit(self, what: str, transaction: Any, read_in: int = 0) -> Exception | None:
        """Send a multi and check every result: None if all of it was done, else what ZooKeeper said of a node.

        Its versions were read in the session `read_in`, 0 is that of this operation. Raises `ZooKeeperError` if that
        has ended, if it is too large, and for anything that is not about the nodes being otherwise than expected.
        """
        return self.outcome(what, transaction, self.send(what, transaction, read_in))

    def send(self, what: str, transaction: Any, read_in: int = 0) -> Any:
        """Send a multi as `commit` does, and return its asynchronous result for `outcome`."""
        self.compare(what, size_of(transaction.operations))
        session = read_in or self.session
        if session_of(self.client) != session:
            raise ZooKeeperError(
                f"ZooKeeper at {self._settings.hosts}: {what}: nothing was written, because its session has ended "
                "since it was read, and others may have deleted and created it again unseen; read again (the next "
                "run does)"
            )
        return multi_async(self.client, transaction, session)

    def outcome(self, what: str, transaction: Any, result: Any) -> Exception | None:
        """Wait as `commit` does, for a multi that `send` has sent."""
        results: list[object] = self.wait(what, result)
        failures = [item for item in results if isinstance(item, Exception)]
        if not failures and len(results) == len(transaction.operations):
            return None
        # Of a multi that failed, one operation has the reason; the others say that they were not done.
        reasons = [item for item in failures if not isinstance(item, RolledBackError | RuntimeInconsistency)]
        cause: Exception = reasons[0] if reasons else RuntimeInconsistency(f"{len(results)} results")
        about_a_node = isinstance(cause, ANSWERS)
        if about_a_node:
            return cause
        raise self.error(what, cause) from cause

    def error(self, what: str, error: Exception) -> ZooKeeperError:
        """Say what went wrong while doing `what`, and what to do."""
        settings = self._settings
        where = f"ZooKeeper at {settings.hosts}: {what}"
        denial = error if isinstance(error, DENIALS) else gave_up(self.client)
        if isinstance(denial, NoAuthError):
            return AccessDeniedError(
                f"{where}: refused {settings.who}: the node's ACL does not allow it; check username and password in "
                "the connection, or let the node's owner change its ACL (zkCli.sh: getAcl, setAcl)"
            )
        if isinstance(denial, InvalidACLError):
            return AccessDeniedError(
                f"{where}: refused {settings.who}: ZooKeeper does not take the ACL "
                f"{settings.acl or 'for new nodes'}; check 'acl' in the connection, and username and password"
            )
        if isinstance(denial, DENIALS):
            return AccessDeniedError(f"{where}: {refused(settings)}")
        if isinstance(error, KazooTimeoutError):
            state = "" if self.client.connected else ", the connection is lost"
            problem = f"no answer within {settings.operation_timeout:g} s{state}"
            step = "check that it runs and has a leader"
        else:
            problem = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            # With a wrong password ZooKeeper says nothing and drops the connection.
            step = "check that it runs and can be reached"
            step += ", and username and password" if settings.sasl_mechanism else ""
        return ZooKeeperError(f"{where}: {problem}; {step}; a write may still have happened, so read again")
