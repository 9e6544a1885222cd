// The list of streams: search, size, rate, partitions, retention, table; and a dialog that creates one.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { adminOption, call, pages, pauseOf, rest, useData } from "../api.js";
import { bytes, count, duration, plural, shell, short } from "../format.js";
import { CommandLine, Dialog, Heading, Loaded, Problem, Table, Text, href, useAction, useSettled } from "../parts.js";

const DAY_MS = 86_400_000;
const RETENTION_DEFAULT_MS = 7 * DAY_MS;

const EVERY_MS = 5_000;

/**
 * All streams with their usage; without rights on the admin API, the names and partitions that REST shows.
 *
 * Of more streams than the page can hold, those whose names begin with `prefix`.
 */
async function load(prefix, signal) {
  try {
    const [streams, backlog] = await Promise.all([
      pages("/v1/streams", "streams", { usage: "true", ...(prefix ? { prefix } : {}) }, signal),
      call("admin", "GET", "/v1/compaction/backlog?limit=1000", undefined, signal),
    ]);
    const waiting = new Map(backlog.streams.map((row) => [row.stream, row]));
    const shown = streams.map((stream) => ({ ...stream, waiting: waiting.get(stream.name) }));
    return { streams: shown, isWhole: true, isCut: streams.isCut, pauseMs: pauseOf(shown.length, EVERY_MS), atMs: performance.now() };
  } catch (error) {
    if (!error.isDenied) throw error;
    const answer = await rest("GET", "/topics", undefined, signal);
    const shown = answer.data.map((topic) => ({ name: topic.topic_name, partition_count: topic.partitions_count, configs: {} }));
    return { streams: shown, isWhole: false, isCut: false, pauseMs: pauseOf(shown.length, EVERY_MS), atMs: performance.now() };
  }
}

/** Records per second since the reading before. */
function useRates(data) {
  const former = useRef(null);
  const rates = useRef(new Map());
  if (data && former.current !== data) {
    const before = former.current;
    if (before) {
      const seconds = Math.max((data.atMs - before.atMs) / 1000, 0.1);
      const counts = new Map(before.streams.map((stream) => [stream.id, stream.record_count]));
      rates.current = new Map(
        data.streams.map((stream) => [stream.id, Math.max(0, stream.record_count - counts.get(stream.id)) / seconds]),
      );
    }
    former.current = data;
  }
  return rates.current;
}

function retention(configs) {
  if ((configs["cleanup.policy"] || "delete") === "compact") return "newest of each key";
  const ms = Number(configs["retention.ms"] ?? RETENTION_DEFAULT_MS);
  const size = Number(configs["retention.bytes"] ?? -1);
  const parts = [ms >= 0 ? duration(ms) : null, size >= 0 ? `${bytes(size)} a partition` : null].filter(Boolean);
  return parts.length ? parts.join(", ") : "for ever";
}

const table = (stream) =>
  stream.waiting ? `behind by ${duration(stream.waiting.age_ms)}` : stream.record_count ? "up to date" : "–";

export function Streams() {
  const [search, setSearch] = useState("");
  const [prefix, setPrefix] = useState("");
  const state = useData((signal) => load(prefix, signal), [prefix], EVERY_MS);
  const rates = useRates(state.data);
  const isCut = Boolean(state.data?.isCut) || prefix !== "";
  const settled = useSettled(search.trim());
  useEffect(() => {
    if (isCut) setPrefix(settled);
  }, [settled, isCut]);
  const [isCreating, setCreating] = useState(false);
  const columns = [
    { title: "Stream", isHead: true, show: (row) => html`<a href=${href("streams", row.name)}>${row.name}</a>` },
    { title: "Partitions", isNumber: true, show: (row) => count(row.partition_count) },
    ...(state.data?.isWhole
      ? [
          { title: "Records", isNumber: true, show: (row) => count(row.record_count) },
          { title: "Size", isNumber: true, show: (row) => bytes(row.size_bytes) },
          { title: "Rate", isNumber: true, show: (row) => (rates.has(row.id) ? short(rates.get(row.id), "/s") : "–") },
          { title: "Kept", show: (row) => retention(row.configs) },
          { title: "Table", show: table },
        ]
      : []),
  ];
  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return (state.data?.streams || []).filter((stream) => stream.name.toLowerCase().includes(wanted));
  }, [state.data, search]);
  return html`
    <${Heading} title="Streams" lead=${state.data && plural(state.data.streams.length, "stream")}>
      <button type="button" class="main" onClick=${() => setCreating(true)}>Create a stream</button>
    <//>
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="part of a name" />
      <p role="status" class="hint">${state.data?.isCut ? `The first ${count(state.data.streams.length)} streams. Search for the beginning of a name to see others.` : search && `${plural(shown.length, "stream")} found`}</p>
    </div>
    <${Loaded} state=${state}>
      ${() => html`<${Table}
        caption="Streams" columns=${columns} rows=${shown} rowKey=${(row) => row.name}
        empty=${search ? "No stream has this in its name." : "There are no streams yet: create one, or produce to a name."}
      />`}
    <//>
    <${CommandLine} text=${`bearlake stream list${adminOption()}`} />
    ${isCreating && html`<${Create} close=${() => setCreating(false)} />`}
  `;
}

function Create({ close }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const create = useAction(() =>
    rest("POST", "/topics", { topic_name: name, partitions_count: Number(partitions), configs: [] }),
  );
  const submit = async (event) => {
    event.preventDefault();
    if (await create.run()) location.hash = href("streams", name);
  };
  return html`<${Dialog} title="Create a stream" close=${close}>
    <form onSubmit=${submit}>
      <${Text} label="Name" value=${name} change=${setName} required maxlength="249" pattern="[A-Za-z0-9._\\-]+" hint="letters, digits, . _ and -" autocomplete="off" />
      <${Text} label="Partitions" type="number" min="1" max="10000" value=${partitions} change=${setPartitions} required />
      <${Problem} error=${create.error} />
      <div class="buttons"><button type="submit" class="main" disabled=${create.isBusy}>Create</button></div>
      <${CommandLine} text=${`bearlake stream create ${shell(name || "NAME")} --partitions ${partitions || 1}${adminOption()}`} />
    </form>
  <//>`;
}
