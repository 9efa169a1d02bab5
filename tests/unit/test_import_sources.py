"""Which sources of offsets may be named: none that lends rights which the person who names it does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.commands.audit import foreseen
from muster.commands.command import Actor, CommandError, Foreseen
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.settings.cluster_settings import ClusterSettings

ALLOWED = "has no connections here to import offsets with"
"""How the look at a source ends that may be named, without servers."""
HIDDEN = "hidden-words"


def refusal(own_rights: bool = False, allowed_imports: dict[str, Any] | None = None, **source: str) -> str:
    cluster = ClusterSettings.model_validate(
        {
            "name": "c",
            "consul_service": "c",
            "group_id": "g",
            "topics": ["t"],
            "consumers": {"handler": "a.b"},
            "allowed_imports": allowed_imports or {},
        }
    )
    target = Target(cluster, None, None, own_rights=own_rights)  # type: ignore[arg-type]
    with pytest.raises(CommandError) as refused:
        foreseen(COMMANDS["import-offsets"], target, Actor("ann", "r", 1.0), source)
    return str(refused.value)


def write_checkpoint(folder: Path, offsets: str = 'v1\n{}\n{"t":{"0":5}}') -> Path:
    for part, text in (("commits", "v1\n{}"), ("offsets", offsets)):
        (folder / part).mkdir(parents=True)
        (folder / part / "0").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "allowed" / "query").parent


def of_folder(allowed: Path, path: Path | str, own_rights: bool = False) -> str:
    return refusal(own_rights, {"checkpoints": [str(allowed)]}, checkpoint=str(path))


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"group": "", "checkpoint": ""},
        {"group": "a", "zookeeper_group": "b"},
        {"group": "a", "checkpoint": "/b"},
        {"zookeeper": "muster_zookeeper"},
    ],
)
def test_import_without_one_source_is_refused(source: dict[str, str]) -> None:
    assert refusal(**source) == "give one source: a group, a group in ZooKeeper, or a checkpoint"


def test_connection_without_its_group_is_refused() -> None:
    assert "is for a group in ZooKeeper; name that as well" in refusal(group="a", zookeeper="z")


def test_checkpoint_in_an_allowed_folder_is_read(allowed: Path) -> None:
    assert ALLOWED in of_folder(allowed, allowed / "query")
    assert ALLOWED in of_folder(allowed, allowed / "other" / ".." / "query")


def test_checkpoint_elsewhere_is_refused_whether_or_not_it_is_there(allowed: Path, tmp_path: Path) -> None:
    outside = write_checkpoint(tmp_path / "allowed-too")
    (allowed / "link").symlink_to(outside)
    (allowed / "loop").symlink_to(allowed / "loop" / "x")
    named = [outside, allowed / ".." / outside.name, allowed / "link", tmp_path / "missing", "/", "query"]
    words = {of_folder(allowed, path).replace(repr(str(path)), "PATH") for path in named}
    [said] = words
    assert said.startswith("PATH is not in a folder that 'allowed_imports.checkpoints' of cluster 'c' names")
    assert ALLOWED not in of_folder(allowed, allowed / "loop")
    assert "names in the settings: none" in refusal(checkpoint=str(allowed / "query"))
    assert ALLOWED in of_folder(allowed, outside, own_rights=True)


def test_file_that_a_checkpoint_links_to_is_not_read(allowed: Path, tmp_path: Path) -> None:
    outside = write_checkpoint(tmp_path / "outside") / "offsets" / "0"
    (allowed / "query" / "offsets" / "0").unlink()
    (allowed / "query" / "offsets" / "0").symlink_to(outside)
    said = of_folder(allowed, allowed / "query")
    assert "cannot be read as the checkpoint of a Spark query" in said
    assert "is no file in that folder" in said


@pytest.mark.parametrize("text", [HIDDEN, f"v1{HIDDEN}\n{{}}", f"v1\n{{}}\n{HIDDEN}", f"\n{HIDDEN}"])
def test_refusal_of_a_file_does_not_show_what_it_holds(allowed: Path, text: str) -> None:
    folder = write_checkpoint(allowed / "odd", text)
    said = of_folder(allowed, folder)
    assert str(folder / "offsets" / "0") in said
    assert HIDDEN not in said


def test_refusal_of_bytes_that_are_no_text_does_not_show_them(allowed: Path) -> None:
    (allowed / "query" / "offsets" / "0").write_bytes(b"\xfe\xff\x00")
    said = of_folder(allowed, allowed / "query")
    assert "expected Spark's offset log" in said
    assert "xfe" not in said


def test_connection_to_zookeeper_is_one_that_the_settings_allow() -> None:
    named = {"zookeeper": ["old"]}
    assert ALLOWED in refusal(allowed_imports=named, zookeeper_group="g", zookeeper="old")
    assert ALLOWED in refusal(allowed_imports=named, zookeeper_group="g", zookeeper="muster_zookeeper")
    assert ALLOWED in refusal(allowed_imports=named, zookeeper_group="g")
    said = refusal(allowed_imports=named, zookeeper_group="g", zookeeper="of_another_team")
    assert "connection 'of_another_team' is not one of those that 'allowed_imports.zookeeper'" in said
    assert "muster_zookeeper, old" in said
    assert ALLOWED in refusal(own_rights=True, zookeeper_group="g", zookeeper="of_another_team")


@pytest.mark.parametrize("group", ["..", ".", "a/b", "a b", "\u00e4"])
def test_group_in_zookeeper_is_no_path(group: str) -> None:
    assert "is no name of a consumer group of Kafka 0.8" in refusal(zookeeper_group=group)


def test_source_with_control_characters_is_refused() -> None:
    assert "has characters that cannot be shown" in refusal(group="a\x00b")
    assert "has characters that cannot be shown" in refusal(checkpoint="/a\x00b")
    assert "is blank; leave it empty, or name one" in refusal(group=" ")


def test_folders_that_are_allowed_are_absolute() -> None:
    with pytest.raises(ValueError, match="'data' is no absolute path"):
        refusal(allowed_imports={"checkpoints": ["data"]}, group="a")


def test_preview_names_the_first_partitions_and_counts_the_others() -> None:
    seen = Foreseen(tuple(f"p{n}" for n in range(40)), ("together",))
    assert seen.lines() == (*(f"p{n}" for n in range(30)), "and 10 more partition(s)", "together")
    assert seen.lines(None) == (*(f"p{n}" for n in range(40)), "together")
    assert Foreseen((), ("nothing",)).lines() == ("nothing",)
