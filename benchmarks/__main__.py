"""`python -m benchmarks NAME OPTION...`: one of the benchmarks, or `report` of the last run of each."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    *(
        "airflow_growth",
        "airflow_share",
        "assignors",
        "failover",
        "fencing",
        "many_clusters",
        "report",
        "scale",
        "state",
    ),
    *("throughput", "throughput_profile"),
)

if __name__ == "__main__":
    name = "".join(sys.argv[1:2])
    if name not in NAMES:
        sys.exit(f"usage: python -m benchmarks NAME OPTION..., where NAME is one of {', '.join(NAMES)}")
    import_module(f"benchmarks.{name}").main(sys.argv[2:], prog_name=f"python -m benchmarks {name}")
