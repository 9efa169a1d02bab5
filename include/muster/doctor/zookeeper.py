"""ZooKeeper: reachable, its version, what may be read and written, and whether every topic's nodes can be read.

A right to write is asked for with a multi whose last operation cannot succeed: ZooKeeper checks the rights of each
operation and then does none of them, so no version grows and no watch fires.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from muster.core.model import TopicSnapshot
from muster.core.wire import WireError, assignment_path, assignments_path, state_path, states_path
from muster.doctor.findings import Check, CheckOutcome, Part, named
from muster.doctor.versions import check_version
from muster.edges.zookeeper import TopicStore
from muster.edges.zookeeper_session import AccessDeniedError, Session, ZooKeeperError
from muster.settings.connections import ZooKeeperSettings

_VERSION = re.compile(r"Zookeeper version: ([\w.]+)")
_AT_ONCE = 200
"""So many topics are tried in one multi."""


def check_zookeeper(part: Part, settings: ZooKeeperSettings, cluster: str, writes: bool) -> Iterator[Check]:
    """Make every check of ZooKeeper; those of writing only with `writes`. Each takes up to `operation_timeout` s."""
    names = ["version", "read", "topics", *(["create", "write topics"] if writes else [])]
    try:
        session = Session(settings)
    except ZooKeeperError as error:
        yield part.refused("reachable", error)
        yield from (part.skipped(name, "ZooKeeper cannot be asked") for name in names)
        return
    try:
        reachable = _reachable(part, session)
        yield reachable
        if reachable.outcome is not CheckOutcome.OK:
            yield from (part.skipped(name, "ZooKeeper is out of reach") for name in names)
            return
        yield check_version(part, "ZooKeeper", _version(session))
        yield _readable(part, session, cluster)
        snapshots = None
        try:
            with TopicStore(settings, cluster, read_only=True) as store:
                snapshots = store.snapshots()
        except ZooKeeperError as error:
            yield part.refused("topics", error)
        else:
            yield _topics(part, snapshots)
        if not writes:
            return
        yield _may_create(part, session, cluster)
        if snapshots is None:
            yield part.skipped("write topics", "the topics cannot be read")
        else:
            yield _may_write(part, session, cluster, snapshots)
    finally:
        session.close()


def zookeeper_answers(part: Part, settings: ZooKeeperSettings) -> Check:
    """Check whether a server answers and accepts the user. It takes at most `operation_timeout` s for each call."""
    try:
        session = Session(settings)
    except ZooKeeperError as error:
        return part.refused("reachable", error)
    try:
        return _reachable(part, session)
    finally:
        session.close()


def _reachable(part: Part, session: Session) -> Check:
    settings = session.settings
    try:
        _open(session)
    except ZooKeeperError as error:
        if isinstance(error, AccessDeniedError) or not _answers_without_sasl(settings):
            return part.refused("reachable", error)
        return part.failed(
            "reachable",
            f"{settings.hosts} answers, and does not speak SASL {settings.sasl_mechanism}",
            "configure SASL on the servers, or take sasl_mechanism, login and password out of the connection",
        )
    return part.ok("reachable", f"{settings.hosts}, {settings.who}")


def _open(session: Session) -> None:
    session.open()
    # A server that will refuse the password has accepted the connection before.
    session.begin().call("asking for /", session.client.exists_async, "/")


def _answers_without_sasl(settings: ZooKeeperSettings) -> bool:
    """Ask without SASL; a server that has none is silent to a client that speaks it."""
    if settings.sasl_mechanism is None:
        return False
    without = {"sasl_mechanism": None, "username": None, "password": None, "acl": None}
    session = Session(settings.model_copy(update=without))
    try:
        _open(session)
    except ZooKeeperError:
        return False
    finally:
        session.close()
    return True


def _version(session: Session) -> str:
    if session.settings.use_ssl:
        return "unknown (asked for only without TLS)"
    try:
        said = session.client.command(b"srvr")
    except (KazooException, OSError, AttributeError):
        return "unknown ('srvr' is not answered)"
    found = _VERSION.search(said)
    return found[1] if found else "unknown ('srvr' is not in its 4lw.commands.whitelist)"


def _readable(part: Part, session: Session, cluster: str) -> Check:
    path = f"/consumers/{cluster}"
    try:
        children = session.begin().call(f"listing {path}", session.client.get_children_async, path)
    except NoNodeError:
        return part.ok("read", f"{path} is not there yet; the coordinator's first run makes it")
    except ZooKeeperError as error:
        return part.refused("read", error)
    return part.ok("read", f"{path} has {', '.join(sorted(children)) or 'nothing'}")


def _topics(part: Part, snapshots: Mapping[str, TopicSnapshot | WireError]) -> Check:
    wrong = [str(found) for _, found in sorted(snapshots.items()) if isinstance(found, WireError)]
    if wrong:
        return part.failed(
            "topics",
            f"{len(wrong)} of {len(snapshots)} topics cannot be read: {named(wrong)}",
            "put the nodes right or delete them; until then these topics are left as they are",
            wrong,
        )
    return part.ok("topics", f"{len(snapshots)} topics, all can be read")


def _may_create(part: Part, session: Session, cluster: str) -> Check:
    own = f"doctor-{uuid.uuid4()}"
    tried = []
    try:
        for parent in (f"/consumers/{cluster}", assignments_path(cluster), states_path(cluster)):
            missing = _missing(session, parent)
            tried.append(parent)
            _try(session, [*missing, f"{parent}/{own}"], ())
    except ZooKeeperError as error:
        return part.refused("create", error)
    return part.ok("create", f"may create below {', '.join(tried)}")


def _may_write(
    part: Part, session: Session, cluster: str, snapshots: Mapping[str, TopicSnapshot | WireError]
) -> Check:
    paths = []
    for topic, found in sorted(snapshots.items()):
        if isinstance(found, TopicSnapshot):
            paths.append(assignment_path(cluster, topic))
            paths += [state_path(cluster, topic)] if found.state is not None else []
    refused = []
    step = ""
    own = f"/consumers/{cluster}/doctor-{uuid.uuid4()}"
    for start in range(0, len(paths), _AT_ONCE):
        chunk = paths[start : start + _AT_ONCE]
        try:
            _try(session, [own], chunk)
        except ZooKeeperError:
            for path in chunk:
                try:
                    _try(session, [own], [path])
                except ZooKeeperError as error:
                    refused.append(path)
                    step = step or str(error).partition("; ")[2]
                    if not session.client.connected:
                        return part.refused("write topics", error)
    if refused:
        return part.failed(
            "write topics",
            f"{len(refused)} of {len(paths)} topic nodes may not be written: {named(refused)}",
            step,
            refused,
        )
    return part.ok("write topics", f"may write all {len(paths)} nodes of topics")


def _missing(session: Session, path: str) -> list[str]:
    """Return those of `path` and its parents that are not there, the topmost first."""
    steps = path.strip("/").split("/")
    paths = ["/" + "/".join(steps[:count]) for count in range(1, len(steps) + 1)]
    return [
        each
        for each in paths
        if session.begin().call(f"looking for {each}", session.client.exists_async, each) is None
    ]


def _try(session: Session, created: Sequence[str], written: Sequence[str]) -> None:
    """Ask for the right to create and write these nodes. Raises `ZooKeeperError` if it is missing.

    The last of `created` is created twice in one multi, which ZooKeeper refuses as a whole.
    """
    transaction = session.client.transaction()
    for path in written:
        transaction.set_data(path, b"")
    for path in [*created, created[-1]]:
        transaction.create(path)
    refusal = session.begin().commit(f"trying whether {created[-1]} could be made", transaction)
    # Another process may have made or deleted one of the nodes just now, which says nothing about rights.
    if not isinstance(refusal, NodeExistsError | NoNodeError):
        raise ZooKeeperError(
            f"ZooKeeper at {session.settings.hosts}: a multi that cannot succeed came to {refusal!r}; "
            "check that this is an Apache ZooKeeper"
        )
