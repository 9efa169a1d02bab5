"""What people may do to a cluster by hand, as one table of commands (`muster.commands.table`).

A command checks the names that it is given against what there is, writes an override to Consul with actor, moment and
reason, and returns what it did. Nothing here knows Airflow, click or HTTP: the DAGs with their forms, the command
line, the HTTP API and the page are made from the table. A new command is an action (`muster.commands.actions`) and an
entry.
"""
