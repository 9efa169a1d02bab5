"""Python packages that the environment does not have, for tests that fetch them once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from devstack.cache import cache_dir, locked


def fetched(lock: Path) -> Path:
    """A folder in the cache with the packages of `lock`, which has versions and hashes; to be put on the PYTHONPATH.

    The folder has the name of `lock`, which therefore has a version in it.
    """
    folder = cache_dir() / lock.stem
    with locked(lock.stem):
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            install = ["-m", "uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
            where = ["--python", sys.executable, "--target", str(partial)]
            subprocess.run([sys.executable, *install, *where, "--requirement", str(lock)], check=True)
            partial.rename(folder)
    return folder
