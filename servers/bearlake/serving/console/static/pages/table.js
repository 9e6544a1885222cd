// One table: snapshots, files, freshness, columns, and the records whose values do not fit (dead letters).
import { html } from "../lib.js";
import { call, facts, useData } from "../api.js";
import { keyOf, query, quoted, shownName, streamsByTable, table, tablesIn } from "../catalog.js";
import { bytes, count, duration, plural, shell, time } from "../format.js";
import { CommandLine, Figure, Heading, Loaded, Problem, Table, href, useAction } from "../parts.js";
import { NoCatalog } from "./tables.js";

const SNAPSHOT_COUNT = 50;

async function load(namespace, name, signal) {
  const [metadata, known] = await Promise.all([table(namespace, name, signal), tablesIn(namespace, signal)]);
  const streams = await streamsByTable(known, signal);
  const stream = streams.get(keyOf({ namespace, name }));
  return { metadata, stream, ageMs: stream === undefined ? null : await ageOf(stream, signal) };
}

/** How far the table is behind (ms), by the admin API; null: not known. */
async function ageOf(stream, signal) {
  try {
    const backlog = await call("admin", "GET", `/v1/compaction/backlog?limit=1&streams=${encodeURIComponent(stream)}`, undefined, signal);
    return backlog.streams.find((row) => row.stream === stream)?.age_ms ?? 0;
  } catch (error) {
    if (!error.isDenied && error.status !== 400) throw error;
    return null;
  }
}

const SNAPSHOT_COLUMNS = [
  { title: "Snapshot", isHead: true, show: (row) => html`<code>${row["snapshot-id"]}</code>` },
  { title: "Committed", isNumber: true, show: (row) => time(row["timestamp-ms"]) },
  { title: "Operation", show: (row) => row.summary?.operation || "–" },
  { title: "Records added", isNumber: true, show: (row) => count(Number(row.summary?.["added-records"] ?? 0)) },
  { title: "Files added", isNumber: true, show: (row) => count(Number(row.summary?.["added-data-files"] ?? 0)) },
  { title: "Files deleted", isNumber: true, show: (row) => count(Number(row.summary?.["deleted-data-files"] ?? 0)) },
  { title: "Records in all", isNumber: true, show: (row) => count(Number(row.summary?.["total-records"])) },
];

const FIELD_COLUMNS = [
  { title: "Column", isHead: true, show: (row) => html`<code>${row.name}</code>` },
  { title: "Type", show: (row) => (typeof row.type === "string" ? row.type : row.type.type) },
  { title: "Field id", isNumber: true, show: (row) => row.id },
  { title: "Meaning", show: (row) => row.doc || "–" },
];

/** As `bearlake table errors`: of a row whose value and key both have no columns, `_error` names both. */
const ERRORS = (stream) => `select code, count(*) as records, max(_timestamp) as newest, arg_max(_error, _timestamp) as example from (
select split_part(_error, ':', 1) as code, _timestamp, _error from ${quoted(stream)} where _error is not null
union all
select regexp_extract(_error, '; (KEY_[A-Z_]+):', 1) as code, _timestamp, _error from ${quoted(stream)} where regexp_matches(_error, '; KEY_[A-Z_]+:')
) group by 1 order by 2 desc, 1`;
const ROWS = (stream) => `select _partition_id, _offset, _timestamp, _error, decode(_value) as value
from ${quoted(stream)} where _error is not null order by _timestamp desc limit 100`;

function DeadLetters({ stream }) {
  const look = useAction(() => query(ERRORS(stream), true));
  const columns = (found) => found.columns.map((column, at) => ({ title: column.name, isHead: at === 0, isNumber: column.name === "records", show: (row) => String(row[at] ?? "–") }));
  return html`<section aria-labelledby="errors">
    <h2 id="errors">Dead letters</h2>
    <p class="hint">Records whose values do not fit the columns of their schema. Each is in the table with the reason in <code>_error</code>, and consumers get it as it was written.</p>
    <div class="buttons">
      <button type="button" disabled=${look.isBusy} onClick=${() => look.run()}>${look.isBusy ? "Counting …" : "Count them"}</button>
      <a class="button" href=${href("sql", ROWS(stream))}>Show them with SQL</a>
    </div>
    <${Problem} error=${look.error} />
    <div role="status">
      ${look.result &&
      html`<${Table} caption="Dead letters by reason" columns=${columns(look.result)} rows=${look.result.rows} rowKey=${(row) => row[0]} empty="Every value fits: there are no dead letters." />`}
    </div>
    <${CommandLine} text=${`bearlake table errors ${shell(stream)}`} />
  </section>`;
}

function Whole({ metadata, stream, ageMs }) {
  const snapshots = [...(metadata?.snapshots || [])].reverse();
  const current = snapshots.find((one) => one["snapshot-id"] === metadata["current-snapshot-id"]);
  const schema = metadata?.schemas.find((one) => one["schema-id"] === metadata["current-schema-id"]);
  const total = (name) => (current?.summary?.[name] === undefined ? null : Number(current.summary[name]));
  const files = total("total-data-files");
  return html`
    <dl class="figures">
      <${Figure} label="Behind by" value=${duration(ageMs)} note="the oldest record that waits" />
      <${Figure} label="Records" value=${count(total("total-records"))} note="in files of the table" />
      <${Figure} label="Files" value=${count(files)} note=${files ? `${bytes(total("total-files-size") / files)} each` : ""} />
      <${Figure} label="Size" value=${bytes(total("total-files-size"))} />
      <${Figure} label="Snapshots" value=${count(snapshots.length)} note=${current ? `last ${time(current["timestamp-ms"])}` : "none yet"} />
    </dl>
    ${metadata === null && html`<p class="empty">The table has no commit yet. SQL shows its records from the log.</p>`}
    ${stream && html`<div class="buttons"><a class="button main" href=${href("sql", `select * from ${quoted(stream)} order by _timestamp desc limit 20`)}>Query it</a></div>`}
    <section aria-labelledby="snapshots">
      <h2 id="snapshots">Last commits</h2>
      <${Table} caption="Snapshots, newest first" columns=${SNAPSHOT_COLUMNS} rows=${snapshots} step=${SNAPSHOT_COUNT} rowKey=${(row) => row["snapshot-id"]} empty="No snapshot yet." />
    </section>
    ${stream && schema?.fields.some((field) => field.name === "_error") && html`<${DeadLetters} stream=${stream} />`}
    ${schema &&
    html`<section aria-labelledby="columns">
      <h2 id="columns">Columns</h2>
      <${Table} caption="Columns" columns=${FIELD_COLUMNS} rows=${schema.fields} rowKey=${(row) => row.id} />
      <p class="hint">Location: <code>${metadata.location}</code></p>
    </section>`}
    <${CommandLine} text=${`bearlake table describe ${shell(stream || "STREAM")}`} />
  `;
}

export function TablePage({ namespace, name }) {
  const isThere = Boolean(facts.urls.catalog);
  const state = useData(async (signal) => (isThere ? load(namespace, name, signal) : {}), [namespace, name], 10_000);
  const lead = html`<a href=${href("tables")}>Tables</a>${state.data?.stream ? html` · of <a href=${href("streams", state.data.stream)}>${state.data.stream}</a>` : ""}${state.data?.metadata ? ` · ${plural(state.data.metadata.snapshots?.length ?? 0, "snapshot")}` : ""}`;
  return html`
    <${Heading} title=${shownName({ namespace, name })} lead=${lead} />
    ${isThere
      ? html`<${Loaded} state=${state}>${(data) => html`<div><${Whole} ...${data} /></div>`}<//>`
      : html`<${NoCatalog} />`}
  `;
}
