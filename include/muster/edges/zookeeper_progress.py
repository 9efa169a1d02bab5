"""The marks of `muster.core.progress` in ZooKeeper: read all, write what has changed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from kazoo.exceptions import NodeExistsError, NoNodeError

from muster.core.progress import Look, format_marks, format_parent, parse_look, progress_path
from muster.edges.zookeeper_session import Operation


def read_look(operation: Operation, cluster: str) -> Look:
    """Read the last look; one without marks if there was none. Raises `ZooKeeperError`."""
    parent = progress_path(cluster)
    what = f"reading {parent}"
    try:
        data, _ = operation.call(what, operation.client.get_async, parent)
        names = operation.call(what, operation.client.get_children_async, parent)
    except NoNodeError:
        return Look()
    asked = [operation.client.get_async(f"{parent}/{name}") for name in names]
    nodes = []
    for each in asked:
        with suppress(NoNodeError):  # another coordinator has deleted it: nothing stands there any more
            nodes.append(operation.wait(what, each)[0])
    return parse_look(data, nodes)


def write_look(operation: Operation, cluster: str, before: Look, after: Look) -> None:
    """Write the nodes in which `after` differs from `before`, and the time of the look after them.

    Two coordinators that write at once do no harm: each mark is of a partition that one of them saw standing. Raises
    `ZooKeeperError`.
    """
    parent = progress_path(cluster)
    client, what = operation.client, f"writing {parent}"
    operation.call(what, client.ensure_path_async, parent)
    old, new = format_marks(before.marks), format_marks(after.marks)
    for name in sorted(old.keys() | new.keys()):
        path = f"{parent}/{name}"
        if name not in new:
            with suppress(NoNodeError):
                operation.call(what, client.delete_async, path)
        elif old.get(name) != new[name]:
            try:
                operation.call(what, client.set_async, path, new[name])
            except NoNodeError:
                with suppress(NodeExistsError):
                    operation.call(what, partial(client.create_async, path, new[name]))
    operation.call(what, client.set_async, parent, format_parent(after))
