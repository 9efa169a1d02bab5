"""Programs of Debian's, with an apt-get that writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from devstack import debian
from devstack.errors import DevstackError
from tests.support.debian_programs import needed

APT_GET = """#!/bin/sh
echo "$DEBIAN_FRONTEND $@" >> {record}
for last; do :; done
case "$*" in
  *update*) touch {lists}/archive_Packages; exit {update};;
  *install*) echo "E: Unable to locate package $last"; [ -e {lists}/archive_Packages ] || exit 100
    [ {install} = 0 ] && printf '#!/bin/sh\\n' > {programs}/{program} && chmod +x {programs}/{program}
    exit {install};;
esac
"""


class Machine:
    """A PATH with nothing but an apt-get of our own, which installs `program`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "programs"
        self.lists = folder / "lists"
        self.record = folder / "record"
        for made in (self.folder, self.lists):
            made.mkdir()
        self._shell = shutil.which("sh") or "/bin/sh"
        self._touch = shutil.which("touch") or "/usr/bin/touch"
        self._chmod = shutil.which("chmod") or "/usr/bin/chmod"
        monkeypatch.setenv("PATH", str(self.folder))
        monkeypatch.setenv("MUSTER_CACHE", str(folder / "cache"))
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.delenv("CI", raising=False)

    def apt_get(self, program: str = "promtool", update: int = 0, install: int = 0) -> None:
        for needed_by_it in (self._touch, self._chmod):
            (self.folder / Path(needed_by_it).name).symlink_to(needed_by_it)
        script = APT_GET.replace("#!/bin/sh\necho", f"#!{self._shell}\necho", 1)
        script = script.format(
            record=self.record,
            lists=self.lists,
            programs=self.folder,
            program=program,
            update=update,
            install=install,
        )
        self._executable("apt-get", script)

    def has(self, program: str) -> Path:
        return self._executable(program, "#!/bin/sh\n")

    @property
    def asked(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []

    def _executable(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_program_on_the_path_is_used(machine: Machine) -> None:
    machine.apt_get()
    here = [machine.has("chromium"), machine.has("chromedriver")]
    assert debian.ensure("chromium", "chromedriver", lists=machine.lists) == here
    assert machine.asked == []


def test_missing_program_is_installed_after_an_update_without_package_lists(
    machine: Machine,
) -> None:
    machine.apt_get()
    assert debian.ensure("promtool", lists=machine.lists) == [machine.folder / "promtool"]
    update, install = machine.asked
    assert update.startswith("noninteractive ")
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends prometheus")


def test_known_packages_are_installed_without_an_update(machine: Machine) -> None:
    machine.apt_get()
    (machine.lists / "archive_Packages.lz4").touch()
    (machine.lists / "archive_Packages").touch()
    debian.ensure("promtool", lists=machine.lists)
    assert [line.split()[4] for line in machine.asked] == ["install"]


def test_lists_that_are_too_old_are_updated_once(machine: Machine) -> None:
    machine.apt_get()
    (machine.lists / "old_Packages").touch()  # this apt-get installs only what the update has brought
    debian.ensure("promtool", lists=machine.lists)
    assert [line.split()[4] for line in machine.asked] == ["install", "update", "install"]


def test_a_failure_shows_what_apt_said_and_the_command(machine: Machine) -> None:
    machine.apt_get(install=100)
    with pytest.raises(DevstackError, match="Unable to locate package prometheus") as failure:
        debian.ensure("promtool", lists=machine.lists)
    assert "'apt-get -q -o DPkg::Lock::Timeout=120 install -y" in str(failure.value)


def test_an_update_that_fails_is_the_failure(machine: Machine) -> None:
    machine.apt_get(update=100)
    with pytest.raises(DevstackError, match="update' failed"):
        debian.ensure("promtool", lists=machine.lists)
    assert len(machine.asked) == 1


def test_a_package_without_the_program_is_an_error(machine: Machine) -> None:
    machine.apt_get(program="something-else")
    with pytest.raises(DevstackError, match="'promtool' is not on the PATH; look where 'dpkg -L prometheus'"):
        debian.ensure("promtool", lists=machine.lists)


def test_error_without_root_names_the_command(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.apt_get()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DevstackError, match=r"sudo apt-get install --no-install-recommends chromium$"):
        debian.ensure("chromium", lists=machine.lists)
    assert machine.asked == []


def test_installation_is_not_tried_without_apt(machine: Machine) -> None:
    with pytest.raises(
        DevstackError, match=r"'prometheus' and 'promtool' not found .*-recommends prometheus$"
    ):
        debian.ensure("prometheus", "promtool", lists=machine.lists)


def test_a_test_is_skipped_with_the_reason(machine: Machine) -> None:
    machine.apt_get()
    machine.has("chromium")
    with pytest.raises(pytest.skip.Exception, match=r"chromedriver not found .* chromium-driver$"):
        needed("chromium", "chromedriver")
    assert machine.asked == []


def test_program_is_installed_first_in_ci_and_what_cannot_be_is_the_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="'chromium' not found"):
        needed("chromium")
