"""The command line `muster`: what a person asks and does without Airflow's pages.

It goes through the same core, edges and rules as the DAGs. Commands write their result to stdout and everything else
to stderr; `muster.cli.errors` has the exit codes.
"""
