"""Keeping a cluster's history in ZooKeeper as small as `retention` in clusters.yaml says.

The history grows only when something is written, so the coordinator's run that wrote prunes it, now and then and in
bounded steps. A quiet cluster costs nothing.
"""

from __future__ import annotations

import logging

from muster.airflow.connections import CONNECTIONS
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.clusters import Clusters

log = logging.getLogger(__name__)

EVERY = 100
"""Entries from one pruning to the next. It looks at every entry there is, 5,000 with the default retention."""


def prune_history(clusters: Clusters, name: str, written: int) -> int:
    """Prune the history of cluster `name` if one of the last `written` entries was a hundredth; say how many went.

    An error is a warning, because what the run is for is done. With a wrong `retention` nothing is deleted.
    """
    kept = clusters.retention
    if kept is None or not written:
        return 0
    try:
        with TopicStore(CONNECTIONS.zookeeper(clusters[name].zookeeper), name, read_only=True) as store:
            newest = store.history(limit=1).records[:1]
            if not newest or newest[0].number % EVERY >= written:
                return 0
            pruned = store.prune_history(
                keep_seconds=kept.history,
                keep_entries=kept.history_entries,
                keep_bytes=kept.history_megabytes * 2**20,
            )
    except ZooKeeperError as error:
        log.warning("the history of cluster %s was not pruned: %s", name, error)
        return 0
    if pruned:
        log.info("%d old entries of the history of cluster %s were deleted", pruned, name)
    return pruned
