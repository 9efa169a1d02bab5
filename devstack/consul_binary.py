"""The Consul program: the one on the PATH, or built once from Go modules and kept in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from devstack.cache import cache_dir, locked, tool
from devstack.command import run_to_end
from devstack.errors import DevstackError
from devstack.progress import step

_MODULE = Path(__file__).parent
_OLDEST = (1, 16)
"""Older ones lack nothing that Muster calls, but are not tested with it."""


def consul_binary() -> Path:
    """Return the path of a Consul to run. Builds it if need be, which takes four to six minutes once.

    Raises `DevstackError` if Go is missing or the build fails.
    """
    if (found := shutil.which("consul")) and _version(found) >= _OLDEST:
        return Path(found)
    binary = cache_dir() / f"consul-{_required_version()}"
    if binary.exists():
        return binary
    with locked("consul"):
        if not binary.exists():
            _build(binary)
    return binary


def _required_version() -> str:
    found = re.search(
        r"^\s*github\.com/hashicorp/consul v(\S+)",
        (_MODULE / "go.mod").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    if found is None:
        raise DevstackError(
            f"{_MODULE / 'go.mod'} does not require github.com/hashicorp/consul; restore the file"
        )
    return found[1]


def _version(binary: str) -> tuple[int, ...]:
    """Return the version of a consul on the PATH, (0,) if it does not tell."""
    try:
        answer = subprocess.run(  # noqa: S603  found on the PATH on purpose
            [binary, "version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    found = re.match(r"Consul v(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _build(binary: Path) -> None:
    go = tool(
        "go",
        "to build Consul, because no 'consul' is on the PATH",
        "Go 1.25 or newer (https://go.dev/dl), or Consul 1.16 or newer",
    )
    partial = binary.with_suffix(".partial")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    packages = 0

    def count(line: str) -> None:
        nonlocal packages
        packages += 0 if line.startswith("go: ") else 1
        progress.note(f"{packages} packages, {line[:60]}")

    with step(
        f"Building {binary.name} from Go modules (once: four to six minutes, some 4 GB in Go's caches)"
    ) as progress:
        command = [go, "build", "-v", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(partial)]
        run_to_end(
            [*command, "github.com/hashicorp/consul"],
            "Go could not build Consul; check the network and 'go version'",
            note=count,
            env=environment,
            cwd=_MODULE,
        )
        progress.result = "built"
    partial.replace(binary)
