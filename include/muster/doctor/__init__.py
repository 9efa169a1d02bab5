"""Whether a cluster has what it needs: every connection, right and version, and what to do where it has not.

One file a server; `muster.doctor.findings` says what a check comes to, `muster.doctor.examination` makes them all.
Nothing is changed: a right to write is asked for with a write that cannot succeed.
"""
