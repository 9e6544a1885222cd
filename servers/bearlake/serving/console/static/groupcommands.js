// Commands about consumer groups and share groups.
import { facts } from "./api.js";
import { shell } from "./format.js";

/** The option of a command that finds the same REST server: nothing for the default one. */
export const restOption = () => (facts.is_default.rest === false ? ` --rest ${facts.urls.rest}` : "");

export const listCommand = () => `bearlake group list${restOption()}`;

export const describeCommand = (group) => `bearlake group describe ${shell(group)}${restOption()}`;

/** The command that resets offsets; `isReal` false: it only shows what would move. */
export function resetCommand(group, body, isReal) {
  const partitions = (body.partition_ids || []).map((index) => ` --partition ${index}`).join("");
  const words = `${shell(group)} --stream ${shell(body.topic_name || "STREAM")}${partitions} --to ${targetOf(body)}`;
  return `bearlake group reset ${words}${isReal ? " --execute" : ""}${restOption()}`;
}

function targetOf(body) {
  if (body.to === "offset" || body.to === "shift") return `${body.to}:${body[body.to]}`;
  if (body.to === "timestamp") return `time:${new Date(body.timestamp_ms).toISOString()}`;
  return body.to;
}
