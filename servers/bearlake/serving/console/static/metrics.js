// Metrics of the server behind the console: read every few seconds, kept for some minutes, as rates and quantiles.
import { call } from "./api.js";

export const EVERY_MS = 2_000;
const KEPT_COUNT = 120;
const REQUESTS = [
  "bearlake_kafka_requests_total", "bearlake_pulsar_commands_total", "bearlake_pulsar_http_requests_total",
  "bearlake_rest_requests_total", "bearlake_registry_requests_total", "bearlake_catalog_requests_total", "bearlake_grpc_calls_total",
];
const CONNECTIONS = [
  "bearlake_kafka_open_connections", "bearlake_pulsar_open_connections", "bearlake_pulsar_http_open_connections",
  "bearlake_rest_open_connections", "bearlake_registry_open_connections", "bearlake_catalog_open_connections", "bearlake_grpc_open_connections",
];
const DAY_S = 86_400;
/** Prices of 1,000 requests to the object store, in any currency: examples, as in `bearlake top`. */
export const PRICES = { put: 0.005, get: 0.0004 };

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Parse Prometheus' text format: samples by name, each {labels, value}. */
export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const labels = Object.fromEntries([...(found[2] || "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
    if (!samples.has(found[1])) samples.set(found[1], []);
    samples.get(found[1]).push({ labels, value: Number(found[3]) });
  }
  return samples;
}

const total = (page, name, wanted = {}) =>
  (page.get(name) || [])
    .filter(({ labels }) => Object.entries(wanted).every(([label, value]) => labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);

/** What a counter grew by; a server that started anew counts from zero. */
const grown = (before, after, name, wanted) => {
  const [old, now] = [total(before, name, wanted), total(after, name, wanted)];
  return now >= old ? now - old : now;
};

/** The quantile of a histogram between two pages, in ms; null without an observation. */
export function quantileMs(before, after, name, part, wanted = {}) {
  const counts = new Map();
  for (const [page, sign] of [[after, 1], [before, -1]]) {
    for (const { labels, value } of page.get(`${name}_bucket`) || []) {
      if (!Object.entries(wanted).every(([label, text]) => labels[label] === text)) continue;
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      counts.set(bound, (counts.get(bound) || 0) + sign * value);
    }
  }
  const bounds = [...counts.keys()].sort((one, other) => one - other);
  const all = counts.get(Infinity) || 0;
  if (all <= 0) return null;
  let [lowBound, lowCount] = [0, 0];
  for (const bound of bounds) {
    const reached = counts.get(bound);
    if (reached >= part * all) {
      if (bound === Infinity) return lowBound * 1000;
      const share = reached === lowCount ? 1 : (part * all - lowCount) / (reached - lowCount);
      return (lowBound + share * (bound - lowBound)) * 1000;
    }
    [lowBound, lowCount] = [bound, reached];
  }
  return null;
}

/** The figures of the time between two pages. */
export function figures(before, after, seconds) {
  const rate = (names, wanted) => [names].flat().reduce((sum, name) => sum + grown(before, after, name, wanted), 0) / seconds;
  const calls = (operation) => rate("bearlake_objects_calls_total", { operation });
  const [puts, gets] = [calls("put") + calls("list"), calls("read") + calls("size")];
  return {
    recordsPerS: rate("bearlake_append_records_total"),
    writtenPerS: rate("bearlake_append_bytes_total"),
    readPerS: rate("bearlake_fetch_bytes_total"),
    requestsPerS: rate(REQUESTS),
    commitMs: quantileMs(before, after, "bearlake_log_commit_seconds", 0.99),
    appendMs: quantileMs(before, after, "bearlake_append_seconds", 0.99),
    putMs: quantileMs(before, after, "bearlake_objects_operation_seconds", 0.99, { operation: "put" }),
    puts,
    gets,
    pricePerDay: ((puts * PRICES.put + gets * PRICES.get) / 1000) * DAY_S,
    memoryBytes: total(after, "process_resident_memory_bytes"),
    connections: CONNECTIONS.reduce((sum, name) => sum + total(after, name), 0),
    calls: total(after, "bearlake_grpc_open_calls"),
  };
}

// The readings outlive the page that shows them, so that charts go on when somebody comes back.
const kept = { last: null, lastMs: 0, figures: [] };

/** Read the metrics once; returns the figures of the last intervals, oldest first. */
export async function read(signal) {
  const nowMs = performance.now();
  if (kept.last !== null && nowMs - kept.lastMs < EVERY_MS / 2) return kept.figures;
  const page = parse(await call("admin", "GET", "/metrics", undefined, signal));
  const atMs = performance.now();
  if (kept.last !== null && atMs - kept.lastMs < 10 * EVERY_MS) {
    kept.figures = [...kept.figures, figures(kept.last, page, (atMs - kept.lastMs) / 1000)].slice(-KEPT_COUNT);
  }
  kept.last = page;
  kept.lastMs = atMs;
  return kept.figures;
}
