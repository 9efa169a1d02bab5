"""What went wrong in a handler or in Spark, in one line for people: an error's class and its message."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

_MESSAGE = r".*(?:\n(?!\s*(?:at |\.\.\. |Caused by: |Driver stacktrace:|Traceback |SQLSTATE: |$)).+)*"
"""The rest of an error's first line, and further lines of its message: such as a database's detail."""
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<error>\S" + _MESSAGE + ")")
_WRAPPED = (
    r".*Lost task \S+ in stage .*? executor \S+\): |\[STREAM_FAILED\] Query .*? terminated with exception: "
)
"""What Spark puts before the error of a task, or of a query."""
_JAVA = re.compile(
    rf"^(?:{_WRAPPED}|: |Caused by: )?(?P<error>(?:[a-z_]\w*\.)+[A-Z][\w.$]*(?:: {_MESSAGE})?)$", re.MULTILINE
)
DEATH = "Python worker exited unexpectedly"
"""Spark's words, around an error of Java's about a connection."""
LONGEST = 500
"""Characters of an error."""


def cause(error: BaseException) -> str:
    """Say what went wrong, in one line: what Python raised in a task or a query; without that, of the errors of Java
    that Spark strings together, the innermost one with a message."""
    text = str(error)
    if isinstance(error, PySparkException | Py4JError):
        if isinstance(error, StreamingQueryException):
            text = text.partition("=== Streaming Query ===")[0] or text
        found = [each["error"] for each in _PYTHON.finditer(text)]
        if not found:
            java = [each["error"] for each in _JAVA.finditer(text)]
            found = [each for each in java if ": " in each] or java
            found = [each for each in found if DEATH in each] or found
        if found:
            return _line(found[-1])
        text = re.sub(f"^(?:{_WRAPPED})", "", text.strip()).partition("\n")[0]
    return _line(": ".join(filter(None, (type(error).__name__, text))))


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST]
