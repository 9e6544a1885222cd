// Commands about groups, by the tool of Apache Kafka.
import { facts } from "./api.js";
import { shell } from "./format.js";

const tool = () => `kafka-consumer-groups.sh --bootstrap-server ${facts.kafka || "127.0.0.1:9092"}`;

export const listCommand = () => `${tool()} --all-groups --describe`;

export const describeCommand = (group) => `${tool()} --group ${shell(group)} --describe`;

/** The command that resets offsets; `isReal` false: it only shows what would move. */
export function resetCommand(group, body, isReal) {
  const partitions = body.partition_ids ? `:${body.partition_ids.join(",")}` : "";
  const targets = {
    earliest: () => "--to-earliest",
    latest: () => "--to-latest",
    offset: () => `--to-offset ${body.offset}`,
    shift: () => `--shift-by ${body.shift}`,
    timestamp: () => `--to-datetime ${new Date(body.timestamp_ms).toISOString()}`,
  };
  const topic = shell(`${body.topic_name || "STREAM"}${partitions}`);
  return `${tool()} --group ${shell(group)} --topic ${topic} --reset-offsets ${targets[body.to]()} ${isReal ? "--execute" : "--dry-run"}`;
}
