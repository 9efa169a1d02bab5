"""What the supervisor of Spark's query says, and what it asks of the session."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyspark
import pytest
from py4j.protocol import Py4JError

from muster.consumer.agent import Agent
from muster.consumer.cause import cause
from muster.consumer.query import QuerySupervisor, failure_of, scratch_settings, unread_of
from muster.core.model import TopicAssignment
from muster.core.ownership import BatchPlan
from muster.sinks import Batch, RejectionRefusedError, SinkError


def test_cause_is_the_innermost_exception_of_a_java_trace() -> None:
    trace = (
        "An error occurred while calling o149.start.\n"
        ": java.util.concurrent.ExecutionException: java.io.IOException: outer\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "Caused by: java.io.IOException: no space left on device\n"
        "\t... 3 more\n"
    )
    assert cause(Py4JError(trace)) == "java.io.IOException: no space left on device"


def test_cause_is_pythons_exception_where_java_wraps_one() -> None:
    trace = (
        "An error occurred while calling o1.start.\n"
        ": org.apache.spark.SparkException: Job aborted\n"
        "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "handler.py", line 3, in process\n'
        "ValueError: no number\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)\n"
    )
    assert cause(Py4JError(trace)) == "ValueError: no number"


def _raised(error: BaseException, reason: BaseException | None) -> BaseException:
    try:
        raise error from reason
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    "error",
    [
        SinkError("table numbers was altered"),
        _raised(ValueError("no"), SinkError("table numbers was altered")),
        Py4JError(
            "Job aborted\nCaused by: org.apache.spark.api.python.PythonException: "
            'Traceback (most recent call last):\n  File "handler.py", line 3, in process\n'
            "muster.sinks.errors.SinkError: table numbers was altered\n"
        ),
        Py4JError("java.io.EOFException\n\tat muster.connector.TaskReader.next(TaskReader.java:1)\n"),
        Py4JError("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"),
        Py4JError("Job aborted: ExecutorLostFailure (executor 1 exited)\n"),
        Py4JError("java.lang.OutOfMemoryError: Java heap space\n"),
    ],
    ids=lambda error: str(error)[:30],
)
def test_sink_reading_and_death_are_no_records_fault(error: BaseException) -> None:
    assert not failure_of(error).of_record
    assert failure_of(error).death is any(each in str(error) for each in ("exited", "OutOfMemory"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no date"), "ValueError"),
        (
            Py4JError(": org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Zero.\n"),
            "DIVIDE_BY_ZERO",
        ),
    ],
)
def test_other_errors_may_be_a_records_fault(error: BaseException, kind: str) -> None:
    assert failure_of(error).of_record
    assert failure_of(error).kind == kind


def test_error_raised_from_itself_is_looked_at_once() -> None:
    error = ValueError("no number")
    assert failure_of(_raised(error, error)).of_record
    assert not unread_of(error)


def test_refused_rejection_holds_though_the_handler_catches_it() -> None:
    supervisor = QuerySupervisor.__new__(QuerySupervisor)
    batch = Batch({("t", 0): (0, 10)}, may_reject=lambda _: "too many")

    def process(_frame: object, given: Batch) -> None:
        with pytest.raises(RejectionRefusedError, match="too many"):
            given.reject([("t", 0, 5)], "no")

    supervisor._handler = process  # type: ignore[assignment]
    with pytest.raises(RejectionRefusedError, match="too many"):
        supervisor._call(None, batch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owners", "has_it"),
    [
        ({0: "me", 1: "other"}, True),
        ({0: "other", 1: "me"}, False),
        ({3: "me", 5: "other"}, True),
        ({0: None, 1: "me"}, False),
        ({}, False),
    ],
)
def test_batch_tells_who_has_the_lowest_partition(owners: dict[int, str | None], has_it: bool) -> None:
    supervisor = QuerySupervisor.__new__(QuerySupervisor)
    supervisor._agent, supervisor._tried, supervisor._states = Agent("me"), {}, None
    batch = supervisor._batch_of(BatchPlan(1, {"t": {1: (0, 5)}}))
    assert not batch.has_lowest("t"), "nothing is assigned yet"
    supervisor._agent.assigned("t", TopicAssignment("k:9092", "g", owners, epoch=1), zxid=1)
    assert batch.has_lowest("t") is has_it


def test_installed_spark_has_the_class_that_manages_files_of_checkpoints() -> None:
    name = scratch_settings(pyspark.__version__)["spark.sql.streaming.checkpointFileManagerClass"]
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(jar) as classes:
        assert f"{name.replace('.', '/')}.class" in classes.namelist()


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("3.5.7", "streaming"),
        ("4.0.1", "streaming"),
        ("4.1.1", "checkpointing"),
        ("4.2.0-SNAPSHOT", "checkpointing"),
    ],
)
def test_class_that_manages_files_of_checkpoints_is_looked_for_where_each_spark_has_it(
    version: str, package: str
) -> None:
    name = scratch_settings(version)["spark.sql.streaming.checkpointFileManagerClass"]
    assert name.split(".")[-2:] == [package, "FileSystemBasedCheckpointFileManager"]
