"""Secrets of local servers, in files that only their owner can read, because environments are for more eyes."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_secret(path: Path, text: str) -> None:
    """Write a file that no other user can read, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def kept_password(path: Path) -> str:
    """Return the password in `path`, made up when it is first asked for."""
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(18))
    return path.read_text(encoding="utf-8")
