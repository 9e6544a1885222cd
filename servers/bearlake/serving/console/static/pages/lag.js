// Lag by partition, in records and in time, of whatever reads: consumer groups, share groups, subscriptions.
import { html } from "../lib.js";
import { ApiError, rest } from "../api.js";
import { count, duration } from "../format.js";
import { Figure, Table, href } from "../parts.js";

const AGED_COUNT = 20;

/** Rows {topic_name, partition_id, current_offset, log_end_offset, lag} with a `key`. */
export const keyed = (rows) => rows.map((row) => ({ ...row, key: `${row.topic_name}:${row.partition_id}` }));

/** How old the next record to read is (ms) by key, of the partitions with the largest lag; others are left out. */
export async function ages(rows, signal) {
  const worst = rows.filter((row) => row.lag > 0).sort((one, other) => other.lag - one.lag).slice(0, AGED_COUNT);
  const found = await Promise.all(
    worst.map(async (row) => {
      const positions = [{ partition_id: row.partition_id, offset: row.current_offset }];
      const body = { positions, record_count_max: 1, bytes_max: 1 };
      const path = `/topics/${encodeURIComponent(row.topic_name)}/records:read`;
      try {
        const [record] = (await rest("POST", path, body, signal)).data;
        return [row.key, record ? Math.max(0, Date.now() - record.timestamp_ms) : null];
      } catch (error) {
        if (error instanceof ApiError) return [row.key, null];
        throw error;
      }
    }),
  );
  return new Map(found);
}

/** A group of the REST API at `path`: {group, members, rows, ages}. */
export async function loadGroup(path, signal) {
  const [group, members, lags] = await Promise.all([
    rest("GET", path, undefined, signal),
    rest("GET", `${path}/consumers`, undefined, signal),
    rest("GET", `${path}/lags`, undefined, signal),
  ]);
  const rows = keyed(lags.data);
  return { group, members: members.data, rows, ages: await ages(rows, signal) };
}

/** The total lag in records and the largest in time, as figures. */
export function LagFigures({ rows, found }) {
  const lag = rows.reduce((sum, row) => sum + row.lag, 0);
  const worst = Math.max(0, ...[...found.values()].filter((age) => age !== null));
  return html`
    <${Figure} label="Lag" value=${count(lag)} note="records" />
    <${Figure} label="Lag in time" value=${lag === 0 ? "0 s" : duration(worst)} note="age of the oldest record that is next" />
  `;
}

/** The table of partitions; `more` are further columns. */
export function Lags({ rows, found, more = [], empty }) {
  const columns = [
    { title: "Stream", isHead: true, show: (row) => html`<a href=${href("streams", row.topic_name)}>${row.topic_name}</a>` },
    { title: "Partition", isNumber: true, show: (row) => row.partition_id },
    { title: "Committed", isNumber: true, show: (row) => count(row.current_offset) },
    { title: "End", isNumber: true, show: (row) => count(row.log_end_offset) },
    { title: "Lag (records)", isNumber: true, show: (row) => count(row.lag) },
    { title: "Lag (time)", isNumber: true, show: (row) => (row.lag === 0 ? "0 s" : duration(found.get(row.key))) },
    ...more,
  ];
  return html`<section aria-labelledby="lags">
    <h2 id="lags">Lag by partition</h2>
    <${Table} caption="Lag by partition" columns=${columns} rows=${rows} rowKey=${(row) => row.key} empty=${empty} />
  </section>`;
}
