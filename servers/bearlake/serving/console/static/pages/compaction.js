// Compaction: what waits, tasks that are open with a button that tries a quarantined one again, a timeline, the last commits.
import { html, useRef } from "../lib.js";
import { adminOption, call, pages, useData } from "../api.js";
import { bytes, count, duration, plural, time } from "../format.js";
import { chosenLanes, lanesOf } from "../lanes.js";
import { widthFor } from "../plot.js";
import { Badge, CommandLine, Figure, Heading, Loaded, Problem, Table, href, useAction } from "../parts.js";

const EVERY_MS = 1_000;
const SPAN_MS = 120_000;
const LANE_COUNT_MAX = 40;
const TONES = { running: "good", waiting: "", quarantined: "bad" };

async function load(signal) {
  const [backlog, tasks, commits] = await Promise.all([
    call("admin", "GET", "/v1/compaction/backlog?limit=200", undefined, signal),
    pages("/v1/compaction/tasks", "tasks", { limit: 1000 }, signal, 3),
    call("admin", "GET", "/v1/compaction/commits?limit=200", undefined, signal),
  ]);
  return { backlog, tasks, commits };
}

// What the page has seen of tasks outlives it, so that the timeline goes on when somebody comes back.
const seen = new Map();
let commitMs = null;
const commitTimes = [];

/** Note which tasks are open now; those of the span stay, with when they began and were last seen. */
function note(data, nowMs) {
  for (const task of data.tasks) {
    const known = seen.get(task.id);
    const states = known ? known.states : [];
    if (states.at(-1)?.state !== task.state) states.push({ state: task.state, fromMs: known ? nowMs : nowMs - task.age_ms });
    seen.set(task.id, { id: task.id, kind: task.kind, stream: task.stream, startMs: known?.startMs ?? nowMs - task.age_ms, lastMs: nowMs, states });
  }
  for (const [id, task] of seen) if (task.lastMs < nowMs - SPAN_MS) seen.delete(id);
  if (commitMs !== null && data.commits.last_commit_ms > commitMs) commitTimes.push(nowMs);
  commitMs = data.commits.last_commit_ms;
  while (commitTimes.length && commitTimes[0] < nowMs - SPAN_MS) commitTimes.shift();
}

function Timeline({ data, nowMs }) {
  const noted = useRef(null);
  if (noted.current !== data) {
    note(data, nowMs);
    noted.current = data;
  }
  const byStart = (first, second) => first.startMs - second.startMs;
  const lanes = chosenLanes(lanesOf([...seen.values()].sort(byStart)), LANE_COUNT_MAX);
  const tasks = lanes.flatMap((lane) => lane.tasks).sort(byStart);
  const width = widthFor(800);
  const left = Math.min(180, width * 0.4);
  const lane = 18;
  const nameLength = Math.floor(left / 6.4);
  const height = Math.max(lanes.length, 1) * lane + 26;
  const x = (ms) => left + Math.max(0, 1 - (nowMs - ms) / SPAN_MS) * (width - left);
  const ticks = width < 500 ? [0, 60, 120] : [0, 30, 60, 90, 120];
  const text = `${plural(tasks.length, "task")} in the last ${SPAN_MS / 60_000} minutes: ${tasks.map((task) => `${task.kind} of ${task.stream} ${task.states.at(-1).state}`).slice(-5).join(", ")}`;
  return html`<figure class="timeline">
    <svg viewBox="0 0 ${width} ${height}" role="img" aria-label=${text}>
      ${ticks.map((seconds) => {
        const at = x(nowMs - seconds * 1000);
        return html`<g class="tick"><line x1=${at} x2=${at} y1="0" y2=${height - 18} /><text x=${at} y=${height - 4} text-anchor=${seconds === 0 ? "end" : "middle"}>${seconds === 0 ? "now" : `−${seconds} s`}</text></g>`;
      })}
      ${commitTimes.map((ms) => html`<line class="commit" x1=${x(ms)} x2=${x(ms)} y1="0" y2=${height - 18}><title>commit at ${time(ms, false)}</title></line>`)}
      ${lanes.map(({ name, tasks: own }, at) => html`<g>
        <text class="lane" x=${left - 8} y=${at * lane + 13} text-anchor="end">${name.slice(0, nameLength)}</text>
        ${own.flatMap((task) =>
          task.states.map(({ state, fromMs }, index) => {
            const toMs = task.states[index + 1]?.fromMs ?? task.lastMs;
            const [from, to] = [x(fromMs), x(toMs)];
            return html`<rect class="bar ${state}" x=${from} y=${at * lane + 3} width=${Math.max(3, to - from)} height=${lane - 6} rx="3"><title>task ${task.id}, ${state}</title></rect>`;
          }),
        )}
      </g>`)}
      ${lanes.length === 0 && html`<text class="lane" x=${left + 8} y="13">no task in this time</text>`}
    </svg>
    <figcaption class="hint">
      Tasks since this page was opened, at most two minutes:
      ${Object.keys(TONES).map((state) => html` <span class="dot ${state}"></span> ${state}`)}. A dashed line is a commit of a table. A task of
      less than ${EVERY_MS / 1000}${"\u00a0"}s may be missing.
    </figcaption>
  </figure>`;
}

const streamLink = (row) => (row.stream ? html`<a href=${href("streams", row.stream)}>${row.stream}</a>` : "deleted");

const BACKLOG_COLUMNS = [
  { title: "Stream", isHead: true, show: streamLink },
  { title: "Records", isNumber: true, show: (row) => count(row.record_count) },
  { title: "Size", isNumber: true, show: (row) => bytes(row.size_bytes) },
  { title: "Partitions", isNumber: true, show: (row) => count(row.partition_count) },
  { title: "Table is behind by", isNumber: true, show: (row) => duration(row.age_ms) },
];

const COMMIT_COLUMNS = [
  { title: "Stream", isHead: true, show: streamLink },
  { title: "Last commit", isNumber: true, show: (row) => time(row.last_commit_ms) },
  { title: "Commits", isNumber: true, show: (row) => count(row.commit_count) },
];

function Retry({ task, done }) {
  const retry = useAction(async () => {
    await call("admin", "POST", `/v1/compaction/tasks/${task.id}/retry`);
    done();
  });
  return html`<button type="button" disabled=${retry.isBusy} aria-label=${`Try task ${task.id} again`} onClick=${() => retry.run()}>Try again</button><${Problem} error=${retry.error} />`;
}

export function Compaction() {
  const state = useData(load, [], EVERY_MS);
  const quarantined = (state.data?.tasks || []).filter((task) => task.state === "quarantined");
  const taskColumns = [
    { title: "Task", isHead: true, isNumber: true, show: (row) => row.id },
    { title: "Kind", show: (row) => row.kind },
    { title: "Stream", show: streamLink },
    { title: "State", show: (row) => html`<${Badge} tone=${TONES[row.state]}>${row.state}<//>` },
    { title: "Records", isNumber: true, show: (row) => count(row.record_count) },
    { title: "Size", isNumber: true, show: (row) => bytes(row.size_bytes) },
    { title: "Age", isNumber: true, show: (row) => duration(row.age_ms) },
    { title: "Failed", isNumber: true, show: (row) => count(row.attempt_count) },
    { title: "Worker", isNumber: true, show: (row) => row.node_id ?? "–" },
    {
      title: "Error",
      show: (row) => html`${row.error ? html`<span class="error">${row.error}</span>` : "–"} ${row.state === "quarantined" && html`<${Retry} task=${row} done=${state.again} />`}`,
    },
  ];
  return html`
    <${Heading} title="Compaction" lead="From the log into the files of tables" />
    <${Loaded} state=${state}>
      ${(data) => html`
        <dl class="figures">
          <${Figure} label="Records that wait" value=${count(data.backlog.record_count)} note=${bytes(data.backlog.size_bytes)} />
          <${Figure} label="Streams that wait" value=${count(data.backlog.stream_count)} />
          <${Figure} label="Tables behind by" value=${duration(data.backlog.age_ms)} note="the oldest record" />
          <${Figure} label="Open tasks" value=${count(data.tasks.length)} />
          <${Figure} label="Quarantined" value=${count(data.backlog.quarantined_count)} tone=${data.backlog.quarantined_count ? "bad" : ""} />
          <${Figure} label="Commits" value=${count(data.commits.commit_count)} note=${data.commits.last_commit_ms ? `last ${time(data.commits.last_commit_ms, false)}` : "none yet"} />
        </dl>
        <section aria-labelledby="timeline"><h2 id="timeline">Timeline</h2><${Timeline} data=${data} nowMs=${state.atMs} /></section>
        <section aria-labelledby="tasks">
          <h2 id="tasks">Open tasks</h2>
          <${Table} caption="Open tasks" columns=${taskColumns} rows=${data.tasks} rowKey=${(row) => row.id} empty="No task is open." />
          ${quarantined.length > 0 && html`<${CommandLine} label="To try one again" text=${`bearlake compaction retry ${quarantined[0].id}${adminOption()}`} />`}
        </section>
        <section aria-labelledby="backlog">
          <h2 id="backlog">Backlog</h2>
          <${Table} caption="Backlog by stream" columns=${BACKLOG_COLUMNS} rows=${data.backlog.streams} rowKey=${(row) => row.stream} empty="Nothing waits: the tables are up to date." />
          <${CommandLine} text=${`bearlake compaction backlog${adminOption()}`} />
        </section>
        <section aria-labelledby="commits">
          <h2 id="commits">Last commits</h2>
          <${Table} caption="Last commits by stream" columns=${COMMIT_COLUMNS} rows=${data.commits.streams} rowKey=${(row) => row.stream} empty="No table has a commit yet." />
        </section>
      `}
    <//>
  `;
}
