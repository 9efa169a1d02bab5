# Airflow with Muster, for the scheduler, DAG processor, triggerer, API server, workers, and drivers in client mode:
#
#   make wheel
#   docker build --file containers/airflow.Dockerfile --tag registry.example/airflow-muster:1.0.0 .
#
# It is built from the checkout, for the versions that are tested there (requirements.txt).
ARG AIRFLOW_VERSION=3.3.2
ARG PYTHON_VERSION=3.13
FROM apache/airflow:${AIRFLOW_VERSION}-python${PYTHON_VERSION}

# Drivers need a JVM. Leave it out where none run: with drivers in cluster mode.
USER root
RUN apt-get update \
 && apt-get install --yes --no-install-recommends default-jre-headless \
 && rm -rf /var/lib/apt/lists/*
USER airflow

# The wheel, and your handler's package beside it.
COPY --chown=airflow:0 dist/muster_kafka-*.whl requirements.txt /tmp/muster/
RUN grep -oE '^[A-Za-z0-9_.-]+==[^ ]+' /tmp/muster/requirements.txt > /tmp/muster/pinned.txt \
 && pip install --no-cache-dir --constraint /tmp/muster/pinned.txt \
      "$(ls /tmp/muster/muster_kafka-*.whl)[airflow,spark]" apache-airflow-providers-cncf-kubernetes \
 && rm -rf /tmp/muster

# The two DAG files; delete the example, the settings come from a volume (containers/values.yaml).
RUN muster init /opt/airflow && rm -r /opt/airflow/clusters.d
