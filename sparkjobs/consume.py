"""A consumer, for `spark-submit sparkjobs/consume.py`; its settings are in the environment (MUSTER_CONSUMER)."""

from muster.consumer.main import main

if __name__ == "__main__":
    main()
