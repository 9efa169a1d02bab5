# Drivers and executors in Kubernetes: Spark's own image has no Python that Muster runs on, so its Spark is taken into one
# that has:
#
#   make wheel
#   docker build --file containers/spark.Dockerfile --tag registry.example/spark-muster:1.0.0 .
ARG SPARK_VERSION=4.2.0
ARG PYTHON_VERSION=3.13
FROM apache/spark:${SPARK_VERSION} AS spark

FROM python:${PYTHON_VERSION}-slim-bookworm
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=spark /opt/spark /opt/spark
COPY --from=spark /opt/entrypoint.sh /opt/entrypoint.sh
ENV SPARK_HOME=/opt/spark PATH="/opt/spark/bin:${PATH}" PYSPARK_PYTHON=/usr/local/bin/python3

# The wheel, and your handler's package beside it. PySpark comes with Spark.
COPY dist/muster_kafka-*.whl requirements.txt /tmp/muster/
RUN grep -oE '^[A-Za-z0-9_.-]+==[^ ]+' /tmp/muster/requirements.txt > /tmp/muster/pinned.txt \
 && pip install --no-cache-dir --constraint /tmp/muster/pinned.txt /tmp/muster/muster_kafka-*.whl pandas pyarrow \
 && rm -rf /tmp/muster

RUN useradd --uid 185 --gid 0 --create-home spark
USER 185
WORKDIR /opt/spark/work-dir
ENTRYPOINT ["/opt/entrypoint.sh"]
