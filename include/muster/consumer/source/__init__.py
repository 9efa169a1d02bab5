"""The planning of batches: which offsets the connector in Spark's JVM reads next."""
