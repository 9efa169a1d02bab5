"""The door to read a cluster: one reader, one state that follows from what it read, one cache, previews of plans.

The command line, the dashboard, the metrics and the doctor render `muster.cluster.state.ClusterState` and decide
nothing about a cluster themselves.
"""
