"""Real local servers for development, tests and the demo: Kafka, ZooKeeper, Consul and Airflow.

No containers: the servers run as plain processes, each in a session of its own, on 127.0.0.1 only.
`python -m devstack up` keeps them running after the command; the tests start their own, which end with them.
"""
