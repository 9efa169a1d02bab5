"""`muster init`: writes what an Airflow needs of Muster besides the package. Overwrites nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from muster.cli.errors import end
from muster.monitoring import FILES

_DAGS = '''"""All of Muster's DAGs (Airflow)."""

from muster.airflow.dags import muster_dags

globals().update(muster_dags())
'''

_SETTINGS = '''"""Shows mistakes in the settings as an import error of this file (Airflow). It defines no DAG."""

from muster.airflow.dags import check_settings

check_settings()
'''

_CLUSTERS = """\
# What Muster coordinates: one entry a cluster. A cluster is one consumer application, which reads some topics as one
# Kafka group. Durations are seconds, or text such as 500ms, 20s, 5m.
clusters:
  # The name of the cluster and of its DAGs: muster_coordinator__example, muster_consumers__example.
  example:
    # The service that its consumers register under in Consul; each cluster its own.
    consul_service: example-consumers
    # The Kafka group that the committed offsets belong to.
    group_id: example
    # A list of names, or {names: [...], patterns: [...]}; patterns are regular expressions for the whole name.
    topics: [example]
    consumers:
      # So many Spark jobs, example-1 and example-2; 0 if something other than Airflow runs the consumers.
      count: 2
      # A function process(batch_df, batch) that the jobs can import; or a class, made with handler_options.
      handler: my_package.my_module.process
      # handler_options: {path: /data/example}
      # The Spark UI of each job asks for no login, so it is off.
      spark_conf: {spark.ui.enabled: false}

    # Airflow connections; these are the defaults:
    # kafka: muster_kafka
    # zookeeper: muster_zookeeper
    # consul: muster_consul

    # How partitions are assigned: sticky, range, round-robin, failover, co-partitioned, load-aware or your own.
    # assignor: sticky

    # Who is notified when a topic is stuck or a consumer cannot start: Airflow notifiers.
    # on_stuck:
    #   - notifier: airflow.providers.smtp.notifications.smtp.SmtpNotifier
    #     options: {to: [oncall@example.com], from_email: airflow@example.com}
"""

_NEXT = """\
Next:
1. Say in {clusters} what is read and by which handler.
2. Make the connections muster_kafka, muster_zookeeper, muster_consul and muster_spark under Admin > Connections.
3. Run 'muster doctor', with AIRFLOW_HOME set, until nothing fails.
4. Unpause muster_coordinator__... and muster_consumers__... in Airflow.
"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--monitoring", is_flag=True, help="Also write the files for Prometheus and Grafana.")
@click.option("--json", "as_text", is_flag=True, help="Print JSON: the files that were written.")
def init(folder: Path, monitoring: bool, as_text: bool) -> None:
    """Write the DAG files and an example of the settings into FOLDER, which is Airflow's home.

    Nothing is overwritten: if one of the files exists, none is written.

    Exit codes: 0 written, 2 a file exists or cannot be written.
    """
    files = dict(_files(folder, monitoring))
    if existing := [str(path) for path in files if path.exists()]:
        end(f"{', '.join(existing)}: exists already; move it away, or name another folder", 2)
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            end(
                f"{path}: cannot be written ({error.strerror}); correct the rights, or name another folder", 2
            )
    if as_text:
        click.echo(json.dumps([str(path) for path in files], indent=2))
        return
    for path in files:
        click.echo(f"wrote {path}")
    click.echo(_NEXT.format(clusters=folder / "clusters.d" / "example.yaml"), nl=False)


def _files(folder: Path, monitoring: bool) -> Iterator[tuple[Path, str]]:
    yield folder / "dags" / "muster_dags.py", _DAGS
    yield folder / "dags" / "muster_settings.py", _SETTINGS
    yield folder / "clusters.d" / "example.yaml", _CLUSTERS
    if monitoring:
        for source in sorted(path for path in FILES.rglob("*") if path.is_file()):
            yield folder / "monitoring" / source.relative_to(FILES), source.read_text(encoding="utf-8")
