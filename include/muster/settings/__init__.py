"""Everything a person sets: clusters, connections, and what a consumer is started with."""
