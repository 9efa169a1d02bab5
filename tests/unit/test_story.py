"""How a story begins and ends, whatever happens in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devstack.demo.needs import Needs
from devstack.demo.story import play
from devstack.errors import DevstackError

NEEDS = Needs("The story", 1, 0.0, 0.0)


@dataclass
class Verdict:
    good: bool = True
    last_line: str = "story: ended"


@dataclass
class NoServers:
    """A stack without servers, which notes when it is stopped."""

    folder: Path
    stopped: list[bool] = field(default_factory=list)

    def down(self) -> None:
        self.stopped.append(self.folder.exists())


def played(tmp_path: Path, tell: Any, keep: bool = False) -> tuple[int, NoServers]:
    """Play a story; its exit code, and its stack."""
    folder = tmp_path / "story"
    stack = NoServers(folder)
    return play(folder, NEEDS, lambda _: stack, tell, keep), stack  # type: ignore[arg-type,return-value]


def test_story_begins_with_an_empty_folder_and_stops_its_stack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "story").mkdir()
    (tmp_path / "story" / "old").touch()
    code, stack = played(tmp_path, lambda _: Verdict())
    assert (code, stack.stopped) == (0, [True, False]), "what is there is stopped before its folder goes"
    assert capsys.readouterr().out.splitlines()[-1] == "story: ended"


def test_story_with_a_bad_verdict_ends_with_exit_code_1(tmp_path: Path) -> None:
    assert played(tmp_path, lambda _: Verdict(good=False))[0] == 1


@pytest.mark.parametrize("keep", [False, True])
def test_story_that_fails_stops_its_stack_and_names_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keep: bool
) -> None:
    def fails(_: object) -> Verdict:
        raise DevstackError("Kafka is away")

    code, stack = played(tmp_path, fails, keep)
    assert (code, len(stack.stopped)) == (1, 2)
    assert "Error: Kafka is away" in capsys.readouterr().out
