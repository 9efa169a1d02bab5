"""What Airflow loads as it starts, from the folder `config` of its home: see `muster.airflow.preload`."""

import logging

try:
    from muster.airflow.preload import preload

    preload()
except Exception:
    # Without Muster, or with a broken one, Airflow starts as well.
    logging.getLogger(__name__).exception("Muster's modules are not loaded beforehand; each task loads them")
