// One stream: its records as they arrive, its partitions, its configuration, and a form to write one record.
import { html, useState } from "../lib.js";
import { adminOption, call, facts, pages, rest, useData } from "../api.js";
import { keyOf, namespaceOf, shownName, tableOf, tablesIn } from "../catalog.js";
import { bytes, count, plural, shell } from "../format.js";
import { CommandLine, Dialog, Figure, Heading, Loaded, Problem, Table, Text, href, useAction } from "../parts.js";
import { Configs } from "./configs.js";
import { Produce } from "./produce.js";
import { Tail } from "./tail.js";

const PARTS = [
  ["records", "Records"],
  ["partitions", "Partitions"],
  ["configuration", "Configuration"],
  ["produce", "Produce"],
];

const pathOf = (name) => `/topics/${encodeURIComponent(name)}`;

/** The stream and its partitions; without rights on the admin API, what REST shows. */
async function load(name, signal) {
  const topic = await rest("GET", pathOf(name), undefined, signal);
  const base = { name, partitionCount: topic.partitions_count };
  try {
    const path = `/v1/streams/${encodeURIComponent(name)}`;
    const [stream, partitions] = await Promise.all([
      call("admin", "GET", path, undefined, signal),
      pages(`${path}/partitions`, "partitions", {}, signal),
    ]);
    return { ...base, stream, partitions };
  } catch (error) {
    if (!error.isDenied) throw error;
    const answer = await rest("POST", `${pathOf(name)}/records:read`, { start: "latest", record_count_max: 1 }, signal);
    const partitions = answer.positions.map((row) => ({
      partition: row.partition_id, start_offset: row.start_offset, end_offset: row.end_offset,
    }));
    return { ...base, stream: null, partitions };
  }
}

const waiting = (row) => (row.compacted_offset === undefined ? undefined : Math.max(0, row.end_offset - Math.max(row.compacted_offset, row.start_offset)));

const PARTITION_COLUMNS = [
  { title: "Partition", isHead: true, isNumber: true, show: (row) => row.partition },
  { title: "Start offset", isNumber: true, show: (row) => count(row.start_offset) },
  { title: "Compacted up to", isNumber: true, show: (row) => count(row.compacted_offset) },
  { title: "End offset", isNumber: true, show: (row) => count(row.end_offset) },
  { title: "Records", isNumber: true, show: (row) => count(row.end_offset - row.start_offset) },
  { title: "Not in the table yet", isNumber: true, show: (row) => count(waiting(row)) },
  { title: "Size", isNumber: true, show: (row) => bytes(row.size_bytes) },
];

function Partitions({ name, rows }) {
  return html`
    <h2>Partitions</h2>
    <${Table} caption="Partitions" columns=${PARTITION_COLUMNS} rows=${rows} rowKey=${(row) => row.partition} />
    <${CommandLine} text=${`bearlake stream describe ${shell(name)}${adminOption()}`} />
  `;
}

const sum = (rows, value) => rows.reduce((total, row) => total + (value(row) ?? 0), 0);

/** The way to the stream's table; without rights on the admin API, or without a table, nothing. */
function TableLink({ stream }) {
  const isThere = Boolean(stream && stream.configs["table.enable"] !== "false" && facts.urls.catalog);
  const known = async (signal) => new Set(isThere ? (await tablesIn(namespaceOf(stream), signal)).map(keyOf) : []);
  const state = useData(known, [stream?.id]);
  if (!isThere || state.data === undefined) return "";
  const table = tableOf(stream, state.data);
  return html` · table <a href=${href("tables", table.namespace, table.name)}>${shownName(table)}</a>`;
}

export function Stream({ name, part }) {
  const state = useData((signal) => load(name, signal), [name], 5_000);
  const [isDeleting, setDeleting] = useState(false);
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("streams")}>Streams</a>${state.data && html` · ${plural(state.data.partitionCount, "partition")}<${TableLink} stream=${state.data.stream} />`}`}>
      <button type="button" onClick=${() => setDeleting(true)}>Delete …</button>
    <//>
    <nav class="tabs" aria-label="Parts of this stream">
      <ul>
        ${PARTS.map(
          ([word, title]) => html`<li><a href=${href("streams", name, word)} aria-current=${part === word ? "page" : null}>${title}</a></li>`,
        )}
      </ul>
    </nav>
    <${Loaded} state=${state}>
      ${({ stream, partitions, partitionCount }) => html`
        ${part !== "configuration" && html`<dl class="figures small">
          <${Figure} label="Records" value=${count(sum(partitions, (row) => row.end_offset - row.start_offset))} />
          ${stream && html`<${Figure} label="Size" value=${bytes(sum(partitions, (row) => row.size_bytes))} />`}
          ${stream && html`<${Figure} label="Not in the table yet" value=${count(sum(partitions, waiting))} note="records" />`}
        </dl>`}
        ${part === "records" && html`<${Tail} name=${name} partitionCount=${partitionCount} />`}
        ${part === "partitions" && html`<${Partitions} name=${name} rows=${partitions} />`}
        ${part === "configuration" && html`<${Configs} name=${name} />`}
        ${part === "produce" && html`<${Produce} name=${name} partitionCount=${partitionCount} />`}
      `}
    <//>
    ${isDeleting && html`<${Delete} name=${name} close=${() => setDeleting(false)} />`}
  `;
}

function Delete({ name, close }) {
  const [typed, setTyped] = useState("");
  const remove = useAction(() => rest("DELETE", pathOf(name)));
  const submit = async (event) => {
    event.preventDefault();
    if (await remove.run()) location.hash = href("streams");
  };
  return html`<${Dialog} title=${`Delete ${name}`} close=${close}>
    <form onSubmit=${submit}>
      <p>This deletes the stream with all of its records, for all clients. Nothing brings them back.</p>
      <${Text} label="Type the name of the stream" value=${typed} change=${setTyped} autocomplete="off" required />
      <${Problem} error=${remove.error} />
      <div class="buttons">
        <button type="submit" class="bad" disabled=${typed !== name || remove.isBusy}>Delete the stream</button>
      </div>
      <${CommandLine} text=${`bearlake stream delete ${shell(name)}${adminOption()}`} />
    </form>
  <//>`;
}
