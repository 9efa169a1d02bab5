"""Every command that needs ZooKeeper and Consul alone does what was asked, ends with its code, and prints JSON.

How commands end where something is wrong is in `tests/unit/test_cli_outcomes.py`; those that need Kafka have their
successes in `test_seeks.py`, `test_dead_letters.py`, `test_import_offsets.py` and the tests of state.
"""

from __future__ import annotations

import json

from muster.commands.table import COMMANDS
from tests.support.site import Site, site

__all__ = ["site"]

NEEDS_KAFKA = {
    *("seek", "cancel-seek", "import-offsets", "replay-deadletters"),
    *("retry-record", "skip-record", "dead-letter-record"),
    *("standing-answer", "end-standing-answer"),
}
DONE = (
    "plan",
    "status",
    "history",
    "isolate b",
    "restore b",
    "drain b",
    "undrain b",
    "pin t 0 a",
    "unpin t 0",
    "exclude a u",
    "include a u",
    "unsubscribe u",
    "subscribe u",
    "assignor range",
    "assignor --clear",
    "pause-consumption t",
    "resume-consumption t",
    "rebalance",
    "pause",
    "resume",
)
"""In this order, which undoes each."""


def test_commands_that_are_done_end_with_0_and_print_json(site: Site) -> None:
    assert COMMANDS.keys() == NEEDS_KAFKA | {typed.split()[0] for typed in DONE} & COMMANDS.keys()
    for typed in DONE:
        command, *arguments = typed.split()
        reason = ["--reason", "release"] if command in COMMANDS else []
        done = site.ask(*arguments, *reason, "--json", command=command)
        assert (typed, done.returncode, done.stderr) == (typed, 0, "")
        assert json.loads(done.stdout)


def test_assignor_that_fails_ends_with_4(site: Site) -> None:
    (site.folder / "broken_assignor.py").write_text("def assign(*_):\n    raise ValueError('no idea')\n")
    site.write(assignor="broken_assignor.assign")
    done = site.run("--json")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no idea" in done.stderr


def test_check_that_finds_something_ends_with_5(site: Site) -> None:
    assert site.ask("--check", "--json", command="status").returncode == 0
    assert site.ask("b", "--reason", "it is slow", command="isolate").returncode == 0
    done = site.ask("--check", "--json", command="status")
    assert done.returncode == 5
    assert "it is slow" in done.stdout
