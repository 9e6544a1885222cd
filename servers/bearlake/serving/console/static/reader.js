// Reads a stream's records, request by request, from positions that the page keeps; and the filters on records.
import { rest } from "./api.js";

export const KEPT_COUNT = 500;
const WAIT_MS = 10_000;
const PAUSE_MS = 1_000;
const BATCH_COUNT = 500;
/** Statuses after which the next request may succeed: no answer, a quota, a server that is busy or stops. */
const PASSING = new Set([0, 429, 503]);

/** Where to start: a body for the first request. `start` is newest, new, beginning or time. */
export function startOf({ start, partition, timeMs }) {
  const words = { newest: "last", new: "latest", beginning: "earliest", time: "timestamp" };
  return {
    start: words[start],
    record_count_max: start === "newest" ? 100 : BATCH_COUNT,
    ...(partition === "" ? {} : { partition_ids: [Number(partition)] }),
    ...(start === "time" ? { timestamp_ms: timeMs } : {}),
  };
}

/** Characters of a key or value that the page keeps; a record may have megabytes, and the page keeps hundreds of records. */
export const PART_LENGTH_MAX = 65_536;
const HEADER_COUNT_MAX = 100;
const HEADER_LENGTH_MAX = 4_096;

/** The beginning of a text, as a text of its own: a plain slice would keep the whole in memory. */
const beginning = (whole, length) => JSON.parse(JSON.stringify(whole.slice(0, length)));

const bounded = (part) =>
  part === null || part.text.length <= PART_LENGTH_MAX
    ? part
    : { ...part, text: beginning(part.text, PART_LENGTH_MAX), isCut: true };

/** A record as the page keeps it. */
export const kept = (record) => ({
  ...record,
  key: bounded(record.key),
  value: bounded(record.value),
  headerCount: record.headers.length,
  headers: record.headers.slice(0, HEADER_COUNT_MAX).map((item) => ({
    name: item.name.length <= HEADER_LENGTH_MAX ? item.name : beginning(item.name, HEADER_LENGTH_MAX),
    value: item.value === null || item.value.length <= HEADER_LENGTH_MAX ? item.value : beginning(item.value, HEADER_LENGTH_MAX),
  })),
});

const text = (part) => (part === null ? "" : part.text);

export const headerText = (value) => {
  if (value === null) return "null";
  const octets = Uint8Array.from(atob(value.slice(0, value.length - (value.length % 4))), (letter) => letter.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(octets);
  } catch {
    return `base64 ${value}`;
  }
};

/** A test of one record by what the person typed: parts of key and value, and of a header as NAME or NAME=VALUE. */
export function matcher({ key, value, header }) {
  const [wantedKey, wantedValue, wantedHeader] = [key, value, header].map((word) => word.toLowerCase());
  return (record) =>
    text(record.key).toLowerCase().includes(wantedKey) &&
    text(record.value).toLowerCase().includes(wantedValue) &&
    (wantedHeader === "" ||
      record.headers.some((item) => `${item.name}=${headerText(item.value)}`.toLowerCase().includes(wantedHeader)));
}

/**
 * Read until `signal` ends it; `tell` gets each answer as {records, behind, places}, or {error} if the next request may succeed.
 *
 * `places` of an earlier answer: go on there, instead of the first request.
 *
 * One request runs at a time. A partition that had records goes to the end of the next request, so that none is kept waiting by others.
 */
export async function follow(name, first, tell, signal, reached = null) {
  const path = `/topics/${encodeURIComponent(name)}/records:read`;
  let places = reached;
  while (!signal.aborted) {
    let answer;
    try {
      answer = await next(path, first, places, signal);
    } catch (error) {
      if (!PASSING.has(error.status)) throw error;
      tell({ error });
      await pause(signal);
      continue;
    }
    if (signal.aborted) return;
    const busy = new Set(answer.data.map((record) => record.partition_id));
    const sorted = [...answer.positions].sort((one, other) => busy.has(one.partition_id) - busy.has(other.partition_id));
    places = sorted.map(({ partition_id, offset }) => ({ partition_id, offset }));
    const behind = sorted.reduce((sum, place) => sum + Math.max(0, place.end_offset - place.offset), 0);
    tell({ records: answer.data, behind, places });
    if (places.length === 0 || document.hidden) await pause(signal);
  }
}

/** The next answer; if retention has deleted what was to be read, from the first records that are left. */
async function next(path, first, places, signal) {
  if (places === null) return rest("POST", path, first, signal);
  try {
    return await rest("POST", path, { positions: places, record_count_max: BATCH_COUNT, wait_ms: WAIT_MS }, signal);
  } catch (error) {
    if (error.status !== 410) throw error;
    const partition_ids = places.map((place) => place.partition_id);
    return rest("POST", path, { start: "earliest", partition_ids, record_count_max: BATCH_COUNT }, signal);
  }
}

const pause = (signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, PAUSE_MS);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
