// The tables of streams: how far each is behind, and its last commit.
import { html, useMemo, useState } from "../lib.js";
import { call, facts, useData } from "../api.js";
import { keyOf, shownName, streamsByTable, tables } from "../catalog.js";
import { count, duration, plural, time } from "../format.js";
import { CommandLine, Heading, Loaded, Table, Text, href } from "../parts.js";

async function load(signal) {
  const [found, freshness] = await Promise.all([tables(signal), fresh(signal)]);
  const streams = await streamsByTable(found, signal);
  const rows = found.map((row) => {
    const stream = streams.get(keyOf(row));
    return { ...row, stream, waiting: freshness?.backlog.get(stream), commit: freshness?.commits.get(stream) };
  });
  return { rows, hasFreshness: freshness !== null };
}

/** Backlog and commits by stream, by the admin API; null without rights on it. */
async function fresh(signal) {
  try {
    const [backlog, commits] = await Promise.all([
      call("admin", "GET", "/v1/compaction/backlog?limit=1000", undefined, signal),
      call("admin", "GET", "/v1/compaction/commits?limit=1000", undefined, signal),
    ]);
    const byStream = (rows) => new Map(rows.map((row) => [row.stream, row]));
    return { backlog: byStream(backlog.streams), commits: byStream(commits.streams) };
  } catch (error) {
    if (!error.isDenied) throw error;
    return null;
  }
}

export const NoCatalog = () =>
  html`<p class="empty">This console knows no Iceberg REST catalog (<code>console.catalog_url</code>).</p>`;

export function Tables() {
  const isThere = Boolean(facts.urls.catalog);
  const state = useData(async (signal) => (isThere ? load(signal) : { rows: [], hasFreshness: false }), [], 5_000);
  const [search, setSearch] = useState("");
  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return (state.data?.rows || []).filter((row) => shownName(row).toLowerCase().includes(wanted));
  }, [state.data, search]);
  const columns = [
    { title: "Table", isHead: true, show: (row) => html`<a href=${href("tables", row.namespace, row.name)}>${shownName(row)}</a>` },
    { title: "Stream", show: (row) => (row.stream ? html`<a href=${href("streams", row.stream)}>${row.stream}</a>` : "–") },
    ...(state.data?.hasFreshness
      ? [
          { title: "Behind by", isNumber: true, show: (row) => (row.stream === undefined ? "–" : row.waiting ? duration(row.waiting.age_ms) : "0 s") },
          { title: "Records that wait", isNumber: true, show: (row) => (row.stream === undefined ? "–" : count(row.waiting?.record_count ?? 0)) },
          { title: "Last commit", isNumber: true, show: (row) => time(row.commit?.last_commit_ms) },
          { title: "Commits", isNumber: true, show: (row) => count(row.commit?.commit_count) },
        ]
      : []),
  ];
  return html`
    <${Heading} title="Tables" lead=${state.data && plural(state.data.rows.length, "table")} />
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="part of a name" />
      <p role="status" class="hint">${search && `${plural(shown.length, "table")} found`}</p>
    </div>
    ${isThere
      ? html`<${Loaded} state=${state}>
          ${() => html`<${Table}
            caption="Tables" columns=${columns} rows=${shown} rowKey=${shownName}
            empty=${search ? "No table has this in its name." : "There are no tables yet: each stream gets one."}
          />`}
        <//>`
      : html`<${NoCatalog} />`}
    <${CommandLine} text="bearlake table describe STREAM" />
  `;
}
