// The Iceberg REST catalog: tables, and SQL over them.
import { call, pages, rest } from "./api.js";

const BIG_ID = /("(?:[\w-]*snapshot-id)"\s*:\s*)(\d{16,})/g;

/** JSON with ids of snapshots as text: they have 64 bits. */
const exact = (text) => JSON.parse(text.replace(BIG_ID, '$1"$2"'));

const NAMESPACE_SEPARATOR = "\x1f";

/** The key of a table in `streamsByTable`. */
export const keyOf = ({ namespace, name }) => `${namespace}${NAMESPACE_SEPARATOR}${name}`;

/** A table's name for people. */
export const shownName = ({ namespace, name }) => `${namespace.replaceAll(NAMESPACE_SEPARATOR, ".")}.${name}`;

const below = (namespace, name) =>
  `/namespaces/${encodeURIComponent(namespace)}/tables${name === undefined ? "" : `/${encodeURIComponent(name)}`}`;

export const catalog = (path, signal) => call("catalog", "GET", path, undefined, signal, exact);

/** All tables that the person may see, as {namespace, name}; those without a first compaction are among them. */
export async function tables(signal) {
  const { namespaces } = await catalog("/v1/live/namespaces", signal);
  return (await Promise.all(namespaces.map((parts) => tablesIn(parts.join(NAMESPACE_SEPARATOR), signal)))).flat();
}

/** The tables of one namespace; none if it does not exist. */
export async function tablesIn(namespace, signal) {
  try {
    const { identifiers } = await catalog(`/v1/live${below(namespace)}`, signal);
    return identifiers.map(({ name }) => ({ namespace, name }));
  } catch (error) {
    if (error.status !== 404) throw error;
    return [];
  }
}

/** The table's metadata; null: it has no commit yet. Throws `ApiError` if it does not exist or is hidden. */
export async function table(namespace, name, signal) {
  try {
    return (await catalog(`/v1${below(namespace, name)}`, signal)).metadata;
  } catch (error) {
    if (error.status !== 404) throw error;
    await catalog(`/v1/live${below(namespace, name)}`, signal);
    return null;
  }
}

/** The namespace of a stream's table. */
export const namespaceOf = ({ configs }) => (configs["table.namespace"] || "streams").replaceAll(".", NAMESPACE_SEPARATOR);

const NAME_CUT_LENGTH = 246;

/**
 * The table of a stream, as {namespace, name}. `known` has the `keyOf` each table of its namespace.
 *
 * If a deleted stream of the same name has left its table, the stream's own table has digits of the stream's id after its name.
 */
export function tableOf(stream, known) {
  const namespace = namespaceOf(stream);
  const name = stream.configs["table.name"] || stream.name.replaceAll(".", "_");
  const own = { namespace, name: `${name.slice(0, NAME_CUT_LENGTH)}_${(stream.id || "").slice(0, 8)}` };
  return known.has(keyOf(own)) ? own : { namespace, name };
}

/** Streams by the `keyOf` their table, which is one of `known`; without rights on the admin API, by the default names. */
export async function streamsByTable(known, signal) {
  let streams;
  try {
    streams = await pages("/v1/streams", "streams", {}, signal);
  } catch (error) {
    if (!error.isDenied) throw error;
    const answer = await rest("GET", "/topics", undefined, signal);
    streams = answer.data.map((topic) => ({ name: topic.topic_name, configs: {} }));
  }
  const keys = new Set(known.map(keyOf));
  return new Map(streams.map((stream) => [keyOf(tableOf(stream, keys)), stream.name]));
}

const send = (statement, isLive, signal) => call("catalog", "POST", "/v1/sql", { statement, is_live: isLive }, signal);

let warm = null;

/** Let the catalog load its engine, which takes seconds, while the person still types: once per tab, by a statement that reads nothing. */
export function warmUp() {
  warm ??= send("select 1", false).catch(() => (warm = null)); // the person's own statement will show what is wrong
}

/** Run one SELECT: {columns: [{name, type}], rows, is_truncated, elapsed_ms}. A person may have one place: it waits for `warmUp` here. */
export async function query(statement, isLive, signal) {
  await warm;
  return send(statement, isLive, signal);
}

/** A name for a statement, quoted. */
export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
