#!/usr/bin/env bash
# Starts Kafka as the upstream image does: every variable KAFKA_SOME_NAME is the setting some.name; storage is formatted once.
set -euo pipefail
settings=/tmp/server.properties
: > "$settings"
while IFS='=' read -r name value; do
  echo "$(tr 'A-Z_' 'a-z.' <<< "${name#KAFKA_}")=$value" >> "$settings"
done < <(env | grep '^KAFKA_' | grep -v '^KAFKA_HEAP_OPTS=')
java=(java ${KAFKA_HEAP_OPTS:-} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*')
if [ ! -e "$KAFKA_LOG_DIRS/meta.properties" ]; then
  "${java[@]}" kafka.tools.StorageTool format -t "$CLUSTER_ID" -c "$settings"
fi
exec "${java[@]}" kafka.Kafka "$settings"
