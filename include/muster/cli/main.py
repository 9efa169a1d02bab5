"""The command `muster` and what its subcommands share."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from muster.cli.commands import CLICK_COMMANDS
from muster.cli.deadletters import deadletters
from muster.cli.doctor import doctor
from muster.cli.history import history
from muster.cli.init import init
from muster.cli.local_stack import local_stack
from muster.cli.plan import plan
from muster.cli.state import state
from muster.cli.status import status
from muster.cluster.sources import open_sources


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muster-kafka")
@click.pass_context
def main(context: click.Context) -> None:
    """See and steer who reads which Kafka partition.

    Clusters come from clusters.d (MUSTER_CLUSTERS names another file or folder), connections from AIRFLOW_CONN_...
    variables or Airflow itself; in a checkout, from the local stack that runs.
    """
    # Clients log each attempt to connect, and the reader each server that fails: both are in the command's own error.
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    for client in ("kazoo", "httpx", "urllib3", "muster.librdkafka"):
        logging.getLogger(client).setLevel(logging.CRITICAL)
    logging.getLogger("muster.cluster").setLevel(logging.ERROR)
    context.with_resource(local_stack(Path.cwd()))
    context.obj = context.obj or open_sources


for command in (plan, status, history, deadletters, state, doctor, init, *CLICK_COMMANDS):
    main.add_command(command)
