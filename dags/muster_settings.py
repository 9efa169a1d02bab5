"""Shows what is wrong in clusters.yaml as an import error of this file (Airflow lists those on top of its DAG page).

It defines no DAG. A cluster with a mistake has none of its DAGs brought up to date, and all others go on.
"""

from muster.settings.clusters import SettingsError, load_clusters

if _errors := load_clusters().errors:
    raise SettingsError("\n".join(_errors.values()))
