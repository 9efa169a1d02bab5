"""Submitting a consumer's Spark job so that it lives on its own.

**Client mode**: `spark-submit` gets a session of its own, its output goes to a log file, and no task waits for it.
SIGTERM is ignored in it, which the JVM inherits and honours; only the Python driver puts a handler in place. A
SIGTERM to the whole group therefore reaches the one process that can close partitions in order, with the JVM still
there to help.

**Cluster mode** (YARN, Kubernetes): Spark's own submission without waiting for the job's end.

What was submitted is noted in Consul (`Submission`), so that a retry, or a scheduler that was restarted, finds the
job that is under way instead of submitting it twice.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException
from pydantic import TypeAdapter, ValidationError

from muster.airflow.connections import CONNECTIONS
from muster.airflow.processes import ProcessRef, this_host
from muster.consumer import job
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.connection_lookup import Connections
from muster.settings.consumer import VARIABLE, ConsumerSettings

log = logging.getLogger(__name__)

APPLICATION = "MUSTER_APPLICATION"
"""Environment variable that names another application file than `muster/consumer/job/consume.py` of the package."""

KEPT_LOGS = 5
"""Incarnations of a consumer whose logs are kept, each at most twice `muster.consumer.output.LARGEST`."""

_POD_OF_A_TASK = "AIRFLOW_IS_K8S_EXECUTOR_POD"
"""Environment variable that the KubernetesExecutor sets in the pod of a task."""

_AIRFLOWS_OWN = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__", "_AIRFLOW_")
"""Environment variables that are no business of a job's: all connections, database, keys."""

_REDACTED = "(?i)secret|password|token|access[.]?key|" + VARIABLE


class SubmissionError(RuntimeError):
    """A job could not be submitted; the message says what to correct."""


@dataclass(frozen=True)
class TaskRef:
    """One try of a task: `id` is new for each, the rest is what a person would call it."""

    id: str
    dag: str
    run: str
    task: str
    map_index: int

    @property
    def key(self) -> str:
        """Under which Airflow lists its state."""
        return self.task if self.map_index < 0 else f"{self.task}_{self.map_index}"


@dataclass(frozen=True)
class Submission:
    """A job that was submitted. `at` and `started` are in seconds since the epoch.

    `process` of a job in client mode is the `spark-submit` on `host`; a job in cluster mode has none, but
    an `application` there: YARN's id or the name of the driver's pod. `watch` is the task instance that looks after
    the job at present. `tries` are the jobs in a row, this one included, that were submitted without the consumer
    being live, 0 once it is; `failed` says why this one was given up.
    """

    incarnation: str
    host: str
    at: float = 0.0
    log: str = ""
    pid: int | None = None
    started: float = 0.0
    watch: TaskRef | None = None
    application: str = ""
    tries: int = 1
    failed: str = ""

    @property
    def process(self) -> ProcessRef | None:
        """The `spark-submit` process, None in cluster mode."""
        return None if self.pid is None else ProcessRef(self.host, self.pid, self.started)

    def as_dict(self) -> dict[str, Any]:
        """Return it as it stands in Consul."""
        return asdict(self)

    @property
    def log_hint(self) -> str:
        """Where to read the driver's log, for people."""
        if self.log:
            return self.log
        if self.application.startswith("application_"):
            return f"yarn logs -applicationId {self.application}"
        return f"kubectl logs {self.application}" if self.application else ""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any] | None) -> Submission | None:
        """Read what stands in Consul; None for nothing, and for what another program left there."""
        if not value:
            return None
        try:
            return _NOTE.validate_python(value)
        except ValidationError as error:
            log.warning("what is noted in Consul as submitted is not understood (%s): %s", error, dict(value))
            return None


_NOTE = TypeAdapter(Submission)


def consumer_settings(
    cluster: ClusterSettings, consumer: str, incarnation: str, connections: Connections
) -> ConsumerSettings:
    """Return all settings of a job. Holds secrets. Raises `ConnectionSettingsError`."""
    of = cluster.consumers
    bind, advertise, port = of.place_of(consumer)
    pages = connections.status_pages(cluster.status)
    return ConsumerSettings(
        cluster=cluster.name,
        consumer=consumer,
        incarnation=incarnation,
        consul_service=cluster.consul_service,
        consul_prefix=cluster.consul_prefix,
        zookeeper=connections.zookeeper(of.zookeeper or cluster.zookeeper),
        consul=connections.consul(of.consul or cluster.consul),
        kafka=connections.kafka(of.kafka or cluster.kafka),
        handler=of.handler,
        handler_options=of.handler_options,
        handlers=of.handlers,
        metadata=of.metadata_of(consumer),
        bind=bind,
        advertise=advertise,
        port=port,
        trigger_interval=of.trigger_interval,
        max_records_per_batch=of.max_records_per_batch,
        target_batch_time=of.target_batch_time,
        max_bytes_per_batch=of.max_bytes_per_batch,
        max_read_ahead=of.max_read_ahead,
        max_rate=of.max_rate,
        state=of.state,
        state_folder=of.state_folder,
        source_options=of.source_options,
        check_interval=of.check_interval,
        fencing=cluster.fencing,
        on_poison=of.on_poison,
        max_batch_time=of.max_batch_time,
        dead_letter_topic=of.dead_letter_topic or "",
        graceful_timeout=of.graceful_timeout,
        # With a delay the partitions are to wait for a consumer that comes back, not to be given to others first.
        **({"hand_over": 0.0} if cluster.rebalance_delay > 0 else {}),
        status_token=pages.token,
        status_tls=pages.tls,
    )


def application() -> str:
    """Return the path of the job that `spark-submit` runs."""
    return os.environ.get(APPLICATION) or str(files(job) / "consume.py")


def log_path(cluster: str, consumer: str, incarnation: str) -> Path:
    """Return where the output of one incarnation's driver goes: below Airflow's log folder."""
    base = Path(conf.get("logging", "base_log_folder")) / "muster"
    return base / cluster / consumer / f"{incarnation}.log"


def prune_logs(folder: Path) -> None:
    """Delete the logs of a consumer's old incarnations, so that there are `KEPT_LOGS` with the next one."""
    written = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in written[KEPT_LOGS - 1 :]:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.1").unlink(missing_ok=True)


# What follows uses private members of the provider's hook, all of them listed in tests/dags/test_submission.py. Its
# public ways run `spark-submit` to its end, with the settings on the command line.


def make_hook(operator: SparkSubmitOperator, conn_id: str) -> SparkSubmitHook:
    """Make the Spark provider's hook. Raises `SubmissionError` if the connection is not as it wants it."""
    master = CONNECTIONS.fields(conn_id).host or ""
    if master.startswith("k8s") and find_spec("airflow.providers.cncf") is None:
        raise SubmissionError(
            f"Spark master {master}: the Spark provider wants Airflow's Kubernetes provider beside it; install "
            "apache-airflow-providers-cncf-kubernetes on Airflow's workers"
        )
    operator._conn_id = conn_id
    try:
        return operator._get_hook()
    except (AirflowException, ValueError, RuntimeError) as error:
        raise SubmissionError(f"Airflow connection {conn_id!r}: {error}; correct it") from error


def is_cluster_mode(hook: SparkSubmitHook) -> bool:
    """Tell whether the driver runs in the cluster rather than on this machine."""
    return bool(hook._connection["deploy_mode"] == "cluster")


def submit_detached(
    hook: SparkSubmitHook, settings: ConsumerSettings, path: str, log_file: Path
) -> tuple[Submission, subprocess.Popen[bytes]]:
    """Start the driver on this machine in a session of its own, its output going to `log_file`.

    The operator's `env_vars` are added to its environment.

    Raises `SubmissionError` if `spark-submit` or the application is missing, the connection does not make a call, or
    the driver would end with the pod of this task.
    """
    if os.environ.get(_POD_OF_A_TASK):
        raise SubmissionError(
            "this task has a pod of its own (KubernetesExecutor), and a driver in client mode ends with it; set "
            "'deploy-mode' to 'cluster' in the Spark connection, or another executor for the cluster's consumers "
            "(airflow: {consumers: {executor: CeleryExecutor}})"
        )
    settings = settings.model_copy(update={"log_file": str(log_file)})
    environment = _environment(hook) | _texts(hook._env_vars) | settings.to_environment()
    try:
        command = hook._build_spark_submit_command(_existing(path))
    except (AirflowException, ValueError) as error:
        raise SubmissionError(
            f"spark-submit cannot be called as the Spark connection has it: {error}"
        ) from error
    binary = shutil.which(command[0], path=environment["PATH"])
    if binary is None:
        raise SubmissionError(
            f"{command[0]} is neither on the PATH nor beside {sys.executable}; install pyspark, or put Spark's bin "
            "folder on the PATH of Airflow's workers"
        )
    log_file.parent.mkdir(parents=True, exist_ok=True)
    prune_logs(log_file.parent)
    with log_file.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - the command is the Spark provider's own
            [binary, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_ignore_sigterm,  # noqa: PLW1509 - one system call, no lock can be held
        )
    found = ProcessRef.of(this_host(), process.pid)
    started = found.started if found else 0.0
    note = Submission(
        settings.incarnation, this_host(), started, str(log_file), pid=process.pid, started=started
    )
    return note, process


def submit_to_cluster(hook: SparkSubmitHook, settings: ConsumerSettings, path: str, now: float) -> Submission:
    """Hand the job to YARN or Kubernetes and return as soon as it is accepted. `now` is in epoch seconds.

    The settings hold secrets, so they travel in a properties file that only this user can read, not on the command
    line, and with them the operator's `env_vars`, which go to the driver. On YARN `spark-submit` has these too, as
    the hook does it (`HADOOP_CONF_DIR` and the like), beside what it needs itself. Raises `SubmissionError` for a
    cluster that takes no Python drivers.
    """
    master = hook._connection["master"]
    yarn = "yarn" in master
    if yarn:
        prefix, wait = "spark.yarn.appMasterEnv.", "spark.yarn.submit.waitAppCompletion"
    elif "k8s" in master:
        prefix, wait = "spark.kubernetes.driverEnv.", "spark.kubernetes.submission.waitAppCompletion"
        hook._track_driver_via_k8s_api = True  # else the hook expects the job's exit code in its output
    else:
        raise SubmissionError(
            f"Spark master {master} takes no Python drivers in cluster mode; set 'deploy-mode' to 'client' in the "
            "Spark connection"
        )
    variables = _texts(hook._env_vars)
    for_driver = variables | settings.to_environment(encoded=True)
    properties = {wait: "false", "spark.redaction.regex": _REDACTED} | _texts(hook._conf)
    properties |= {f"{prefix}{key}": value for key, value in for_driver.items()}
    environment = os.environ | _spark_home() | (variables if yarn else {})
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="muster-", suffix=".conf") as file:
        file.writelines(f"{key}={_property(value)}\n" for key, value in properties.items())
        file.flush()
        hook._properties_file = file.name
        hook._env_vars = (
            None  # the hook would put them on the command line, or run spark-submit with them alone
        )
        hook.submit(_existing(path), env=environment)
    submitted = hook._yarn_application_id or hook._kubernetes_driver_pod or ""
    return Submission(settings.incarnation, "", now, application=submitted)


def _texts(values: Mapping[Any, Any] | None) -> dict[str, str]:
    return {str(key): str(value) for key, value in (values or {}).items()}


def _property(value: str) -> str:
    """Write a value as it stands in a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _environment(hook: SparkSubmitHook) -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_AIRFLOWS_OWN)}
    environment |= _spark_home()
    if "spark.pyspark.python" not in (hook._conf or {}):
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
    return environment


def _spark_home() -> dict[str, str]:
    """Find `spark-submit` and what it runs: what is installed, else what the Python that runs Airflow has.

    PySpark's own `spark-submit` asks some `python3` for its place otherwise, which need not have it.
    """
    beside = str(Path(sys.executable).parent)
    found = {"PATH": os.pathsep.join(filter(None, [os.environ.get("PATH"), beside]))}
    binary = shutil.which("spark-submit", path=found["PATH"])
    package = find_spec("pyspark")
    if (
        "SPARK_HOME" not in os.environ
        and binary
        and str(Path(binary).parent) == beside
        and package
        and package.origin
    ):
        found["SPARK_HOME"] = str(Path(package.origin).parent)
    return found


def _existing(path: str) -> str:
    if "://" not in path and not Path(path).is_file():
        raise SubmissionError(
            f"there is no application {path}; correct the environment variable {APPLICATION}, or unset it: the "
            "package has one"
        )
    return path
