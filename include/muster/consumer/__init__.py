"""The consumer job: the agent in the Spark driver, and the Spark source it steers."""
