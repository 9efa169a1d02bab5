"""I/O with ZooKeeper, Consul, Kafka and status pages, one module each. Edges decide nothing."""
