"""How a command ends that could not do what was asked: a message that names the next step, and an exit code.

0: done. 1: a fault of Muster itself. 2: the question is wrong (unknown cluster, consumer, topic or option, or
settings that cannot be used). 3: ZooKeeper, Consul or Kafka is out of reach, or Consul's answer is not to be trusted.
4: the assignor is unavailable, failed, or returned something that cannot be obeyed. 5: `status --check` found
something, or a check of `doctor` failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

import click

from muster.cluster.planning import NothingReadError
from muster.commands.command import CommandError
from muster.core.assignors import AssignorError
from muster.core.preview import WhatIfError
from muster.core.wire import WireError
from muster.edges.consul import ConsulError
from muster.edges.kafka_admin import KafkaError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import Clusters, SettingsError, load_clusters
from muster.settings.connection_parsing import ConnectionSettingsError

_CODES: Mapping[type[Exception], int] = {
    SettingsError: 2,
    ConnectionSettingsError: 2,
    WhatIfError: 2,
    WireError: 2,
    CommandError: 2,
    ZooKeeperError: 3,
    ConsulError: 3,
    KafkaError: 3,
    NothingReadError: 3,
    AssignorError: 4,
}


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors that Muster's parts raise into ends of a command."""
    try:
        yield
    except tuple(_CODES) as error:
        code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
        end(str(error), code)


def read_clusters() -> Clusters:
    """Return what the settings hold, and name on stderr each file that cannot be used. Raises `SettingsError`."""
    clusters = load_clusters()
    for mistake in clusters.general.values():
        click.echo(f"Warning: {mistake}", err=True)
    return clusters


def end(message: str, code: int) -> NoReturn:
    """End the command with an error on stderr and this exit code."""
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(code)
