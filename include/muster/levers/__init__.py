"""What people may do to a cluster by hand: isolate, restore, pin, unpin, exclude, include; pause, resume, rebalance,
another assignor; subscribe and unsubscribe topics.

Each lever checks the names it is given against what there is, writes to Consul who decided it, when and why, and
returns what it did. None of it knows Airflow, so DAGs, a command line and a dashboard pull the same levers.
"""
