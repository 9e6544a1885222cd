// A stream's records as they arrive: start, partition, filters, pause; a row opens the whole record.
import { kafkaOption, registryOption } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { bytes, count, plural, pretty, shell, time } from "../format.js";
import { CommandLine, Choice, Problem, Text, useSettled } from "../parts.js";
import { KEPT_COUNT, follow, headerText, kept, matcher, startOf } from "../reader.js";

const STARTS = [
  ["newest", "the newest records"],
  ["new", "new records only"],
  ["beginning", "the beginning"],
  ["time", "a time"],
];
const DRAW_MS = 200;

const nameOf = (record) => `${record.partition_id}:${record.offset}`;
const newestFirst = (one, other) => other.timestamp_ms - one.timestamp_ms || other.offset - one.offset;

const NOTHING = { records: [], readCount: 0, behind: 0, error: null, isLoading: true };

/** Read records into a bounded list of those that match, newest first. After a pause, it goes on where it was. */
function useRecords(name, first, matches, isPaused) {
  const [state, setState] = useState(NOTHING);
  const reached = useRef({});
  useEffect(() => {
    if (isPaused) return undefined;
    const control = new AbortController();
    const isNew = reached.current.first !== first || reached.current.matches !== matches;
    if (isNew) {
      reached.current = { first, matches, places: null };
      setState(NOTHING);
    }
    let waiting = [];
    let [readCount, behind, timer, error, isLoading] = [0, 0, null, null, reached.current.places === null];
    const draw = () => {
      timer = null;
      const [arrived, count] = [waiting, readCount];
      [waiting, readCount] = [[], 0];
      setState((before) => ({
        records: arrived.length ? [...arrived, ...before.records].sort(newestFirst).slice(0, KEPT_COUNT) : before.records,
        readCount: before.readCount + count,
        behind,
        error,
        isLoading,
      }));
    };
    const tell = (answer) => {
      error = answer.error || null;
      if (!error) {
        readCount += answer.records.length;
        behind = answer.behind;
        isLoading = false;
        reached.current.places = answer.places;
        waiting = [...waiting, ...answer.records.filter(matches).map(kept)].sort(newestFirst).slice(0, KEPT_COUNT);
      }
      timer ??= setTimeout(draw, DRAW_MS);
    };
    follow(name, first, tell, control.signal, reached.current.places).catch((failure) => {
      if (failure.name !== "AbortError") setState((before) => ({ ...before, error: failure }));
    });
    return () => {
      control.abort();
      clearTimeout(timer);
      draw();
    };
  }, [name, first, matches, isPaused]);
  return state;
}

function Part({ title, part }) {
  if (part === null) return html`<h3>${title}</h3><p class="hint">none</p>`;
  return html`
    <h3>${title} <small>${part.type}${part.schema_id === undefined ? "" : `, schema ${part.schema_id}`}, ${bytes(part.size)}</small></h3>
    ${part.problem && html`<p class="notice bad">Not decoded: ${part.problem}</p>`}
    ${part.isCut && html`<p class="notice warn">The page shows the first ${count(part.text.length)} characters. The command below reads the whole record.</p>`}
    <pre tabindex="0">${pretty(part.text)}</pre>
  `;
}

function Whole({ record, columnCount }) {
  return html`<tr class="whole">
    <td colspan=${columnCount}>
      <p class="hint">Partition ${record.partition_id}, offset ${count(record.offset)}, ${time(record.timestamp_ms)}</p>
      <${Part} title="Key" part=${record.key} />
      <${Part} title="Value" part=${record.value} />
      <h3>Headers${record.headerCount > record.headers.length ? ` (the first ${record.headers.length} of ${count(record.headerCount)})` : ""}</h3>
      ${record.headers.length === 0
        ? html`<p class="hint">none</p>`
        : html`<ul class="headers">${record.headers.map((item) => html`<li><code>${item.name}</code> = <code>${headerText(item.value)}</code></li>`)}</ul>`}
    </td>
  </tr>`;
}

function Row({ record, isOpen, toggle }) {
  const shown = (part) => (part === null ? html`<em>none</em>` : part.text.slice(0, 300));
  return html`<tbody>
    <tr class=${isOpen ? "open" : ""}>
      <td class="number">${time(record.timestamp_ms)}</td>
      <td class="number">${record.partition_id}</td>
      <th scope="row" class="number">
        <button type="button" class="plain" aria-expanded=${isOpen} aria-label=${`Record ${record.offset} of partition ${record.partition_id}`} onClick=${toggle}>
          ${count(record.offset)}
        </button>
      </th>
      <td class="text">${shown(record.key)}</td>
      <td class="text value">${shown(record.value)}</td>
    </tr>
    ${isOpen && html`<${Whole} record=${record} columnCount="5" />`}
  </tbody>`;
}

export function Tail({ name, partitionCount }) {
  const [from, setFrom] = useState({ start: "newest", partition: partitionCount > 1000 ? "0" : "", timeMs: Date.now() });
  const [filters, setFilters] = useState({ key: "", value: "", header: "" });
  const [isPaused, setPaused] = useState(false);
  const [open, setOpen] = useState(null);
  const first = useMemo(() => startOf(from), [from]);
  const settled = useSettled(filters);
  const matches = useMemo(() => matcher(settled), [settled]);
  const { records, readCount, behind, error, isLoading } = useRecords(name, first, matches, isPaused);
  const isFiltered = Object.values(filters).some(Boolean);
  const all = partitionCount > 1000 ? [] : [["", "all"]];
  const partitions = [...all, ...Array.from({ length: partitionCount }, (_, at) => [String(at), String(at)])];
  const change = (field) => (value) => setFilters((before) => ({ ...before, [field]: value }));
  const progress = behind > 0 ? `${count(behind)} to go` : isPaused ? "paused" : "waiting for new ones";
  return html`
    <h2 class="hidden">Records</h2>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="Read from" value=${from.start} change=${(start) => setFrom({ ...from, start })} options=${STARTS} />
      ${from.start === "time" &&
      html`<${Text} label="Time" type="datetime-local" step="1" change=${(value) => value && setFrom({ ...from, timeMs: Date.parse(value) })} />`}
      <${Choice} label="Partition" value=${from.partition} change=${(partition) => setFrom({ ...from, partition })} options=${partitions} />
      <${Text} label="Key contains" type="search" value=${filters.key} change=${change("key")} autocomplete="off" />
      <${Text} label="Value contains" type="search" value=${filters.value} change=${change("value")} autocomplete="off" />
      <${Text} label="Header contains" type="search" value=${filters.header} change=${change("header")} placeholder="name=value" autocomplete="off" />
      <button type="button" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
    </form>
    <p class="hint" role="status">
      ${plural(readCount, "record")} read, ${isFiltered ? `${count(records.length)} match` : `${count(records.length)} shown`}${records.length === KEPT_COUNT ? ` (the newest ${KEPT_COUNT})` : ""}, ${progress}.
    </p>
    <${Problem} error=${error} />
    ${records.length === 0
      ? html`<p class="empty">${isLoading && !error ? "Loading …" : readCount === 0 ? "No records yet. They appear here as soon as somebody writes them." : "No record matches."}</p>`
      : html`<div class="scroll" tabindex="0" role="group" aria-label="Records">
          <table class="records">
            <caption class="hidden">Records, newest first</caption>
            <thead>
              <tr>
                <th scope="col" class="number">Time</th>
                <th scope="col" class="number">Partition</th>
                <th scope="col" class="number">Offset</th>
                <th scope="col">Key</th>
                <th scope="col">Value</th>
              </tr>
            </thead>
            ${records.map(
              (record) => html`<${Row}
                key=${nameOf(record)} record=${record} isOpen=${open === nameOf(record)}
                toggle=${() => setOpen(open === nameOf(record) ? null : nameOf(record))}
              />`,
            )}
          </table>
        </div>`}
    <${CommandLine} text=${commandOf(name, from, filters, records)} />
  `;
}

/** The command that shows the same; `records` are those on the page. */
function commandOf(name, from, filters, records) {
  const words = ["bearlake", "consume", shell(name)];
  const starts = { beginning: ["--from-beginning"], newest: ["--offset", "-100"], time: ["--offset", `s@${from.timeMs}`], new: [] };
  words.push(...starts[from.start]);
  if (from.partition !== "") words.push("--partition", from.partition);
  if (filters.key) words.push("--filter-key", shell(escaped(filters.key)));
  if (/^[^=]+=/.test(filters.header)) words.push("--filter-header", shell(filters.header));
  if (filters.value) words.push("--filter-value", shell(escaped(filters.value)));
  const hasSchemas = records.some(({ key, value }) => [key, value].some((part) => part?.schema_id !== undefined));
  if (hasSchemas) words.push("--schemas");
  return words.join(" ") + kafkaOption() + (hasSchemas ? registryOption() : "");
}

/** A text as a regular expression that ignores case, as the filters here do. */
const escaped = (text) => `(?i)${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`;
