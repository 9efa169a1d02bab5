"""The Python streaming data source that reads the partitions the agent holds."""
