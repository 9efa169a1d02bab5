"""What Airflow is to do when the task of a consumer cannot go on.

- What stays wrong until a person corrects it (a setting, a connection, a handler that cannot be imported, an option
  that `spark-submit` does not know) fails the task for good, once: `AirflowFailException`.
- What may be over the next time (the consumer did not come up, Consul is out of reach) has the task scheduled again
  after a moment, as often as it takes. That is no new try: Airflow counts tries, and has no word for "always".
- Anything else, such as a task whose process was killed, is left to the task's retries, which are few.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException

from muster.airflow.submission import SubmissionError
from muster.edges.consul import ConsulError
from muster.settings.clusters import SettingsError
from muster.settings.connection_parsing import ConnectionSettingsError

log = logging.getLogger(__name__)

AGAIN = timedelta(seconds=6)
"""Until the task's next turn. Airflow's executor reports the end of a process up to 5 s late, and a task that was
scheduled again by then is taken for one that died."""

AGAIN_AFTER_FAILED_START = timedelta(seconds=30)
"""A consumer that does not even come up would keep the machine busy with starting JVMs."""

SETTINGS_REFUSED = 2
"""Exit code of `muster.consumer.main` for settings that cannot be used, and of Python for an application that is not
there."""

_REFUSED_BY_SPARK = (
    "Usage: spark-submit [options]",
    "org.apache.spark.deploy.SparkSubmit.error(",
    "org.apache.spark.deploy.SparkSubmitArguments.error(",
    "Could not create the Java Virtual Machine",
)
"""What `spark-submit` writes when it exits over its arguments, with the same code as for anything else."""


_COMPLAINTS = ("Error: ", "Exception in thread", "Invalid ")

SHOWN_OUTPUT = 500
"""Lines of a driver's log that are searched for what `spark-submit` refused; its usage text has 130."""


class ConsumerStartError(AirflowException):
    """A consumer did not come up; the message has the end of its driver's log."""


class ConsumerRefusedError(AirflowException):
    """A consumer cannot come up before something is corrected; the message has the end of its driver's log."""


def refusal(exit_code: int | None, output: str) -> str:
    """Say why a `spark-submit` that ended so would end so again; '' if it may not. `exit_code` None is unknown."""
    by_spark = exit_code not in (None, 0) and any(sign in output for sign in _REFUSED_BY_SPARK)
    if exit_code != SETTINGS_REFUSED and not by_spark:
        return ""
    complaints = (line for line in output.splitlines() if by_spark and line.startswith(_COMPLAINTS))
    said = next(complaints, "the end of its log says what to correct")
    return f"its driver exited with code {exit_code}: {said}"


def again(delay: timedelta = AGAIN) -> AirflowRescheduleException:
    """Return what has Airflow schedule the task again after `delay`, in the same try."""
    return AirflowRescheduleException(datetime.now(UTC) + delay)  # type: ignore[no-untyped-call]


@contextmanager
def for_good_or_again() -> Iterator[None]:
    """Turn the failures that are known into what Airflow is to do about them; see the module."""
    try:
        yield
    except (ConnectionSettingsError, SettingsError, SubmissionError, ConsumerRefusedError) as error:
        raise AirflowFailException(f"{error}\nThen clear this task.") from error
    except ConsumerStartError as error:
        log.error("%s\nIt is submitted again in %d s.", error, AGAIN_AFTER_FAILED_START.seconds)  # noqa: TRY400
        raise again(AGAIN_AFTER_FAILED_START) from error
    except ConsulError as error:
        log.error("%s\nThis task goes on in %d s.", error, AGAIN.seconds)  # noqa: TRY400
        raise again() from error
