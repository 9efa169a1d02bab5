"""`python -m devstack up|down|status|fetch|env`."""

from __future__ import annotations

import shlex
import sys

import click
from rich.table import Table

from devstack.errors import DevstackError
from devstack.progress import console, say
from devstack.stack import Stack, stacks

_PORT = click.IntRange(1, 65535)


@click.group()
def main() -> None:
    """Run Kafka, ZooKeeper, Consul and Airflow on this machine, for development and tests."""


@main.command()
@click.option("--kafka-port", type=_PORT, envvar="MUSTER_KAFKA_PORT", show_envvar=True)
@click.option("--zookeeper-port", type=_PORT, envvar="MUSTER_ZOOKEEPER_PORT", show_envvar=True)
@click.option("--consul-port", type=_PORT, envvar="MUSTER_CONSUL_PORT", show_envvar=True)
@click.option("--airflow-port", type=_PORT, envvar="MUSTER_AIRFLOW_PORT", show_envvar=True)
def up(
    kafka_port: int | None, zookeeper_port: int | None, consul_port: int | None, airflow_port: int | None
) -> None:
    """Start what does not run yet. Ports that are not given are free ones, kept from one start to the next."""
    given = {
        "kafka": kafka_port,
        "zookeeper": zookeeper_port,
        "consul": consul_port,
        "airflow": airflow_port,
    }
    stack = Stack(ports={server: port for server, port in given.items() if port is not None})
    stack.up()
    _show(stack)


@main.command()
@click.option(
    "--grace", default=60.0, show_default=True, help="Seconds for consumers to close their partitions."
)
def down(grace: float) -> None:
    """Stop consumers, then Airflow, then the servers, the demo's too. Nothing is left running; the data stays."""
    for folder in reversed(stacks()):
        Stack(folder).down(grace)
    say("Everything is stopped.")


@main.command()
def status() -> None:
    """Show what runs and where: the stack of `make up`, the demo's, or both. Exit code 1 if something is down."""
    known = [Stack(folder) for folder in stacks()]
    shown = [stack for stack in known if stack.running] or known[:1]
    good = True
    for stack in shown:
        say(f"Stack in {stack.folder}:")
        good = _show(stack) and good
    if not good:
        sys.exit(1)


@main.command()
def fetch() -> None:
    """Get Kafka, ZooKeeper and Consul into the cache, without starting anything."""
    Stack().fetch()


@main.command()
def env() -> None:
    """Print the stack's environment for a shell: eval "$(python -m devstack env)"."""
    stack = Stack()
    if not stack.airflow.api.running:
        raise DevstackError("the stack does not run, so its ports are not settled; start it with 'make up'")
    for key, value in stack.for_shells().items():
        click.echo(f"export {key}={shlex.quote(value)}")


def _show(stack: Stack) -> bool:
    table = Table(box=None)
    for column in ("server", "state", "pid", "ports on 127.0.0.1"):
        table.add_column(column)
    good = True
    for server in stack.servers().values():
        state = "down"
        if server.running:
            state = "healthy" if server.healthy() else "runs, but is not healthy"
        good = good and state == "healthy"
        pid = str(server.process.pid) if server.process and server.running else ""
        ports = ", ".join(f"{role} {port}" for role, port in server.ports.items())
        table.add_row(server.name, state, pid, ports)
    console.print(table)
    if stack.airflow.api.running:
        logins = ", ".join(f"{user} / {password}" for user, password in stack.airflow.passwords().items())
        say(f"Dashboard: {stack.airflow.dashboard}  login: {logins}")
        say(f"Airflow: {stack.airflow.url}")
    if stack.consul.running:
        say(f"Consul:  http://{stack.consul.address}/ui")
    return good


if __name__ == "__main__":
    try:
        main()
    except DevstackError as error:
        say(f"Error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("Stopped half-way. 'make down' ends what was started.")
        sys.exit(130)
