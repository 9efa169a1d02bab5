"""Muster in Airflow, where the package is on the path but not installed: see `muster.airflow.plugin`.

Airflow finds an installed package by itself, and reports a plugin that it finds twice as an error.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="muster"):
    from muster.airflow.plugin import MusterPlugin  # noqa: F401 - Airflow looks for it
