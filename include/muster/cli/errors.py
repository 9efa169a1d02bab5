"""How a command ends that could not do what was asked: a message that names the next step, and an exit code.

0: done. 1: a fault of Muster itself. 2: the question is wrong (unknown cluster, consumer, topic or option, or
settings that cannot be used). 3: ZooKeeper or Consul is out of reach, or Consul's answer is not to be trusted. 4: the
assignor is unavailable, failed, or returned something that cannot be obeyed. 5: `status --check` found
something, or a check of `doctor` failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from muster.cluster.planning import NothingReadError
from muster.commands.refusal import CommandError
from muster.core.assignors import AssignorError
from muster.core.preview import WhatIfError
from muster.core.wire import WireError
from muster.edges.consul import ConsulError
from muster.edges.zookeeper import ZooKeeperError
from muster.settings.clusters import SettingsError
from muster.settings.connection_parsing import ConnectionSettingsError


class WrongQuestionError(click.ClickException):
    """What was asked does not fit what there is."""

    exit_code = 2


class OutOfReachError(click.ClickException):
    """A server that is needed does not answer, or not in a way that can be trusted."""

    exit_code = 3


class NoPlanError(click.ClickException):
    """The assignor has no plan to show."""

    exit_code = 4


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors that Muster's parts raise into ends of a command."""
    try:
        yield
    except (SettingsError, ConnectionSettingsError, WhatIfError, WireError, CommandError) as error:
        raise WrongQuestionError(str(error)) from error
    except (ZooKeeperError, ConsulError, NothingReadError) as error:
        raise OutOfReachError(str(error)) from error
    except AssignorError as error:
        raise NoPlanError(str(error)) from error
