"""A consumer, as `spark-submit` runs it; its settings are in the environment (MUSTER_CONSUMER)."""

from muster.consumer.main import main

if __name__ == "__main__":
    main()
