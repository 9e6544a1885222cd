// Pulsar's HTTP API: the topics of streams, and what it says about their subscriptions.
import { call } from "./api.js";

const TOKEN = /(\.\.)(?=\.{3}[0-9a-f]|[^.])|\.{3}([0-9a-f]{2})|([A-Za-z0-9_.-])/gy;

/** The topic of a stream as [tenant, namespace, topic]; null: the stream's name means nothing in Pulsar. */
export function topicOf(stream) {
  if (!stream.includes("..")) return ["public", "default", stream];
  const parts = [[]];
  let at = 0;
  for (const [token, separator, escaped, plain] of stream.matchAll(TOKEN)) {
    at += token.length;
    if (separator) parts.push([]);
    else parts.at(-1).push(escaped ? parseInt(escaped, 16) : plain.charCodeAt(0));
  }
  if (at !== stream.length || parts.length !== 3) return null;
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    return parts.map((octets) => decoder.decode(new Uint8Array(octets)));
  } catch {
    return null;
  }
}

const pathOf = (stream) => `/admin/v2/persistent/${topicOf(stream).map(encodeURIComponent).join("/")}`;

const pulsar = (method, path, body, signal) => call("pulsar", method, path, body, signal);

/** The names of a stream's subscriptions. */
export const subscriptionsOf = (stream, signal) => pulsar("GET", `${pathOf(stream)}/subscriptions`, undefined, signal);

/** Statistics and positions of a stream's partitions: {isPartitioned, stats, partitions: [{stats, internal}]}, by index. */
export async function statisticsOf(stream, signal) {
  const path = pathOf(stream);
  const { partitions: count } = await pulsar("GET", `${path}/partitions`, undefined, signal);
  const word = count > 0 ? "partitioned-" : "";
  const [stats, internal] = await Promise.all([
    pulsar("GET", `${path}/${word}stats`, undefined, signal),
    pulsar("GET", `${path}/${word}internalStats`, undefined, signal),
  ]);
  if (count === 0) return { isPartitioned: false, stats, partitions: [{ stats, internal }] };
  const byIndex = (found) => new Map(Object.entries(found).map(([name, one]) => [Number(name.slice(name.lastIndexOf("-") + 1)), one]));
  const [allStats, allInternal] = [byIndex(stats.partitions), byIndex(internal.partitions)];
  const partitions = Array.from({ length: count }, (_, index) => ({ stats: allStats.get(index), internal: allInternal.get(index) }));
  return { isPartitioned: true, stats, partitions };
}
