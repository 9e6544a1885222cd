// Commands about groups.
import { facts } from "./api.js";
import { shell } from "./format.js";

const KAFKA = "127.0.0.1:9092";
const tool = (name) => `${name} --bootstrap-server ${facts.kafka || KAFKA}`;

/** The option of a command that finds the same REST server: nothing for the default one. */
export const restOption = () => (facts.is_default.rest === false ? ` --rest ${facts.urls.rest}` : "");

export const listCommand = () => `bearlake group list${restOption()}`;

export const describeCommand = (group) => `bearlake group describe ${shell(group)}${restOption()}`;

/** The command that resets offsets; `isReal` false: it only shows what would move. */
export function resetCommand(group, body, isReal) {
  if (body.to === "shift") {
    const topic = `${body.topic_name || "STREAM"}${body.partition_ids ? `:${body.partition_ids.join(",")}` : ""}`;
    const words = `--group ${shell(group)} --topic ${shell(topic)} --reset-offsets --shift-by ${body.shift}`;
    return `${tool("kafka-consumer-groups.sh")} ${words} ${isReal ? "--execute" : "--dry-run"}`;
  }
  const partitions = (body.partition_ids || []).map((index) => ` --partition ${index}`).join("");
  const words = `${shell(group)} --stream ${shell(body.topic_name || "STREAM")}${partitions} --to ${targetOf(body)}`;
  return `bearlake group reset ${words}${isReal ? " --execute" : ""}${restOption()}`;
}

function targetOf(body) {
  if (body.to === "offset") return `offset:${body.offset}`;
  if (body.to === "timestamp") return `time:${new Date(body.timestamp_ms).toISOString()}`;
  return body.to;
}

export const shareListCommand = () => `${tool("kafka-share-groups.sh")} --list`;

export const shareDescribeCommand = (group) => `${tool("kafka-share-groups.sh")} --group ${shell(group)} --describe`;

/** The command that resets a share group's offsets; Kafka's tool knows no single offset, nor single partitions. */
export function shareResetCommand(group, body, isReal) {
  if (body.to === "offset" || body.partition_ids) {
    const sent = JSON.stringify({ ...body, validate_only: !isReal });
    const path = `${facts.urls.rest || ""}/v3/clusters/${facts.clusterId || "ID"}/share-groups/${encodeURIComponent(group)}/offsets:reset`;
    return `curl -H 'Content-Type: application/json' -d ${shell(sent)} ${shell(path)}`;
  }
  const targets = {
    earliest: () => "--to-earliest",
    latest: () => "--to-latest",
    timestamp: () => `--to-datetime ${new Date(body.timestamp_ms).toISOString()}`,
  };
  const words = `--group ${shell(group)} --topic ${shell(body.topic_name || "STREAM")} --reset-offsets ${targets[body.to]()}`;
  return `${tool("kafka-share-groups.sh")} ${words} ${isReal ? "--execute" : "--dry-run"}`;
}
