"""The environment of a shell in which nothing of an Airflow or of Muster is set."""

from __future__ import annotations

import os


def bare_shell(**variables: str) -> dict[str, str]:
    """This process's environment without the variables of Airflow and Muster, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "MUSTER"))}
    return kept | variables
