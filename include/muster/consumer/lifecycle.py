"""When the consumer ends: asked to by signal or request, by the death of a loop, or because its JVM is gone.

The end in order is the caller's business (`muster.consumer.main`); here is what starts it, and what ends the
process when there is nothing left to do in order.

A loop is a thread that shows it is alive: it calls `beat` at least every `limit` seconds; one that is later than that
is stuck. One that ends with an exception cannot be trusted to come back by itself, so the consumer then closes what
it has and exits.

Under `spark-submit` the JVM is the driver script's parent. When it dies, nothing tells the script, which would
live on as an orphan that is registered but reads nothing. And a SIGTERM that is meant for the job often goes to
the JVM, whose own way to end is to stop Spark in the middle of a batch; so the JVM is made to pass it on.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Beat = Callable[[], None]
"""What a loop calls to show that it is alive."""

ORPHANED = 70
"""Exit code of a driver whose JVM is gone."""
LOOK = 0.25
"""Seconds between two looks at the JVM."""


class Ending:
    """Whether and why the consumer is to end. The first reason counts, a failure prevails over a request."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self.reason = ""
        self.exit_code = 0
        self.replaced = False

    def ask(self, reason: str, exit_code: int = 0, replaced: bool = False) -> None:
        """Ask for the end in order."""
        # No log here: signal handlers call this, and may have interrupted the log's own lock.
        with self._lock:
            self.exit_code = self.exit_code or exit_code
            self.replaced = self.replaced or replaced
            self.reason = self.reason or reason
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def wait(self) -> None:
        """Wait until the end is asked for. Signals are handled meanwhile."""
        while not self._asked.wait(0.5):
            pass


class Loop:
    """One named thread that runs `body(beat)` until that returns.

    `limit` is in seconds. When `body` raises, `ending` is asked for.
    """

    def __init__(self, name: str, body: Callable[[Beat], None], limit: float, ending: Ending) -> None:
        self.name = name
        self._body = body
        self._limit = limit
        self._ending = ending
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"muster-{name}", daemon=True)

    def start(self) -> None:
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """Show that the loop is alive."""
        self._last = time.monotonic()

    def trouble(self) -> str | None:
        """Say what is wrong with this loop, None if nothing."""
        if not self._thread.is_alive():
            return f"loop {self.name!r} has ended"
        late = time.monotonic() - self._last
        return f"loop {self.name!r} has been stuck for {late:.0f} s" if late > self._limit else None

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the thread's end; returns whether it ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._body(self.beat)
        except Exception as error:
            log.exception("loop %r died", self.name)
            self._ending.ask(f"loop {self.name!r} died of {type(error).__name__}: {error}", exit_code=1)


def end_on_signals(ending: Ending) -> None:
    """Make SIGTERM and SIGINT to this process ask for the end in order. To be called in the main thread."""

    def handle(number: int, _frame: FrameType | None) -> None:
        # In a thread, because the main thread may hold the very lock that `ask` needs.
        name = signal.Signals(number).name
        threading.Thread(target=ending.ask, args=(f"{name} received",), daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


class _JvmSignalHandler:
    """What the JVM calls when it gets a signal; a Python object behind a Java interface."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending

    def handle(self, received: Any) -> None:
        """Ask for the end instead of letting the JVM stop Spark at once."""
        self._ending.ask(f"SIG{received.getName()} received by the JVM")

    class Java:
        """For py4j."""

        implements = ("sun.misc.SignalHandler",)


def end_on_jvm_signals(spark: SparkSession, ending: Ending) -> None:
    """Make SIGTERM and SIGINT to the driver's JVM ask for the end in order. The JVM ends with this process."""
    gateway = spark.sparkContext._gateway
    if gateway is None:
        raise RuntimeError(
            "this Spark session has no JVM of its own; consumers need Spark classic, not Connect"
        )
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    handler = _JvmSignalHandler(ending)
    signals = gateway.jvm.sun.misc.Signal
    for name in ("TERM", "INT"):
        signals.handle(signals(name), handler)


def exit_with_jvm() -> Callable[[], None]:
    """End this process at once after its JVM, until the function that is returned is called.

    A handler's thread may still write to a sink, and only the end of the process is certain to end that. So it does
    not deregister: nothing listens at its address any more, which Consul and the coordinator take for gone at once.
    Where the query notices first and the handler is idle, the end in order may be through before this.
    """
    gone, off = _jvm_death(), threading.Event()

    def watch() -> None:
        while not off.wait(LOOK):
            if gone():
                log.error("the JVM is gone; exiting")
                os._exit(ORPHANED)

    threading.Thread(target=watch, name="muster-orphan-guard", daemon=True).start()
    return off.set


def _jvm_death() -> Callable[[], bool]:
    """Return what tells whether the JVM is gone: the parent under `spark-submit`, else the child."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        parent = os.getppid()
        return lambda: os.getppid() != parent

    def child_gone() -> bool:
        from pyspark import SparkContext  # noqa: PLC0415  not there before Spark has started

        process = getattr(SparkContext._gateway, "proc", None)
        return isinstance(process, subprocess.Popen) and process.poll() is not None

    return child_gone


def exit_after(seconds: float, exit_code: int) -> None:
    """End this process in `seconds`, whatever its threads are doing then."""
    timer = threading.Timer(seconds, os._exit, args=(exit_code,))
    timer.daemon = True
    timer.start()
