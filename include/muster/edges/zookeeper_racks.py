"""The racks nodes of a cluster's topics in ZooKeeper: read those that are asked for, write those that changed.

They only say what a plan would rather have, so they are written whatever their version: the last word stands, and
`fetch_partitions`, which writes them, is never run twice at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kazoo.exceptions import NodeExistsError, NoNodeError

from muster.core.wire import Racks, WireError, format_racks, parse_racks, racks_parent, racks_path
from muster.edges.zookeeper_session import AccessDeniedError, Deadline, Session


def read_racks(
    session: Session, cluster: str, topics: Iterable[str], deadline: Deadline
) -> dict[str, Racks | WireError]:
    """The racks of those of `topics` that have a node, all asked for at once; where none has one, one request.

    A node with invalid data, or that may not be read, gives the error that says so.
    """
    parent = racks_parent(cluster)
    try:
        present = session.call(f"listing {parent}", deadline, session.client.get_children_async, parent)
    except NoNodeError:
        return {}
    asked = {}
    for topic in sorted(set(topics) & set(present)):
        path = racks_path(cluster, topic)
        asked[topic] = (path, session.client.get_async(path))
    found: dict[str, Racks | WireError] = {}
    for topic, (path, result) in asked.items():
        try:
            data, _ = session.wait(f"reading {path}", deadline, result)
            found[topic] = parse_racks(data, path)
        except NoNodeError:
            continue
        except WireError as error:
            found[topic] = error
        except AccessDeniedError as error:
            found[topic] = WireError(str(error))
    return found


def write_racks(session: Session, cluster: str, topic: str, racks: Racks, deadline: Deadline) -> None:
    """Make the node of `topic` say `racks`; without any it is deleted."""
    path = racks_path(cluster, topic)
    what = f"writing {path}"
    client = session.client
    if not racks:
        with suppress(NoNodeError):
            session.call(what, deadline, client.delete_async, path)
        return
    data = format_racks(racks)
    try:
        session.call(what, deadline, client.set_async, path, data)
    except NoNodeError:
        session.call(what, deadline, client.ensure_path_async, racks_parent(cluster))
        with suppress(NodeExistsError):  # another writer was faster; the next run looks again
            session.call(what, deadline, client.create_async, path, data)
