// SQL over the tables: one SELECT, its result as a table and as a plot. An address may bring a statement; only a person runs it.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { facts } from "../api.js";
import { query, warmUp } from "../catalog.js";
import { count, duration, shell } from "../format.js";
import { Plot, heights, kindFor, places } from "../plot.js";
import { Choice, CommandLine, Field, Heading, Problem, Table, useAction } from "../parts.js";
import { NoCatalog } from "./tables.js";

const EXAMPLE = "select _partition_id, count(*) as records, max(_timestamp) as newest\nfrom STREAM group by 1 order by 1";
const CELL_LENGTH = 400;

function cell(value) {
  if (value === null) return html`<em>null</em>`;
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > CELL_LENGTH ? `${text.slice(0, CELL_LENGTH)} …` : text;
}

function Result({ result }) {
  const [below, tall] = [places(result.columns), heights(result.columns)];
  const [place, setPlace] = useState(below[0]?.name || "");
  const [height, setHeight] = useState(tall.find((column) => column.name !== below[0]?.name)?.name || "");
  const [kind, setKind] = useState(kindFor(result.columns, place));
  const columns = result.columns.map((column, at) => ({
    title: html`${column.name} <small>${column.type.toLowerCase()}</small>`,
    isNumber: tall.includes(column),
    show: (row) => cell(row[at]),
  }));
  const rows = useMemo(() => result.rows.map((row, index) => Object.assign([...row], { index })), [result]);
  const names = (found) => found.map((column) => [column.name, column.name]);
  return html`<div>
    <p class="hint" role="status">
      ${count(result.rows.length)} ${result.rows.length === 1 ? "row" : "rows"}${result.is_truncated ? ", further rows left out" : ""}, ${duration(result.elapsed_ms)}.
    </p>
    ${height && result.rows.length > 1 &&
    html`<section aria-labelledby="plot">
      <h2 id="plot">Plot</h2>
      <div class="filters">
        <${Choice} label="Height" value=${height} change=${setHeight} options=${names(tall)} />
        <${Choice} label="By" value=${place} change=${setPlace} options=${names(below)} />
        <${Choice} label="As" value=${kind} change=${setKind} options=${[["line", "a line"], ["bar", "bars"]]} />
      </div>
      <${Plot} result=${result} place=${place} height=${height} kind=${kind} />
    </section>`}
    <section aria-labelledby="rows">
      <h2 id="rows">Rows</h2>
      <${Table} caption="Rows" columns=${columns} rows=${rows} rowKey=${(row) => row.index} empty="The statement has no rows." />
    </section>
  </div>`;
}

export function Sql({ given = "" }) {
  const [statement, setStatement] = useState(given || EXAMPLE);
  const [isLive, setLive] = useState(true);
  const run = useAction(() => query(statement, isLive));
  const number = useRef(0);
  useEffect(() => {
    if (given) setStatement(given);
  }, [given]);
  useEffect(() => {
    if (facts.urls.catalog) warmUp();
  }, []);
  const start = (event) => {
    event?.preventDefault();
    if (run.isBusy) return;
    number.current += 1;
    run.run();
  };
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start(event);
  };
  const flags = isLive ? "" : " --compacted";
  return html`
    <${Heading} title="SQL" lead="One SELECT over the streams; each is a table of the same name" />
    ${facts.urls.catalog
      ? html`<div>
          <form class="card" onSubmit=${start}>
            <${Field} label="Statement" hint="Ctrl+Enter runs it. Names with dots or dashes need quotes.">
              ${(id) => html`<textarea id=${id} rows="5" spellcheck="false" maxlength="16384" value=${statement} onInput=${(event) => setStatement(event.target.value)} onKeyDown=${key}></textarea>`}
            <//>
            <label class="check">
              <input type="checkbox" checked=${isLive} onChange=${(event) => setLive(event.target.checked)} />
              with every acknowledged record, not only those that compaction has put into the tables
            </label>
            <div class="buttons"><button type="submit" class="main" disabled=${run.isBusy}>${run.isBusy ? "Running …" : "Run"}</button></div>
            <${CommandLine} text=${`bearlake sql${flags} ${shell(statement)}`} />
          </form>
          <${Problem} error=${run.error} />
          ${run.result && html`<${Result} key=${number.current} result=${run.result} />`}
        </div>`
      : html`<${NoCatalog} />`}
  `;
}
