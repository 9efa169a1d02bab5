"""`python -m muster.cli`: the same as `muster`."""

from __future__ import annotations

from muster.cli.main import main

main(prog_name="muster")
