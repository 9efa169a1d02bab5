"""Muster: an external coordinator for Kafka consumption.

- `muster.core`: the pure part (model, wire format, assignors, planner, state machine). No I/O, no clock.
- `muster.edges`: ZooKeeper, Consul, Kafka and HTTP, one module each. They do I/O and decide nothing.
- `muster.settings`: the settings, connections and a consumer's own settings, validated.
- `muster.coordinator`: one run of the coordinator: core and edges put together, without Airflow.
- `muster.consumer`: the consumer job: agent and Spark source.
- `muster.doctor`: whether a cluster has every connection, right and version that it needs.
- `muster.dashboard`: the page in Airflow, and the API behind it.
- `muster.handlers`: handlers that come with Muster.
- `muster.airflow`: operator, trigger and task functions, the only part that imports Airflow.
"""

__version__ = "1.0.0"
