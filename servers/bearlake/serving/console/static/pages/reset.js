// A dialog that moves the offsets of a group or subscription in one stream: first what would move, then the move.
import { html, useMemo, useState } from "../lib.js";
import { rest } from "../api.js";
import { count, plural } from "../format.js";
import { Choice, CommandLine, Dialog, Problem, Table, Text, useAction } from "../parts.js";
import { resetCommand } from "../groupcommands.js";

export const TARGETS = [
  ["earliest", "the first record"],
  ["latest", "the end"],
  ["timestamp", "a time"],
  ["offset", "an offset"],
  ["shift", "so many records forward (or, with a minus, back)"],
];

const PREVIEW_COLUMNS = [
  { title: "Partition", isHead: true, isNumber: true, show: (row) => row.partition_id },
  { title: "Committed now", isNumber: true, show: (row) => count(row.current_offset) },
  { title: "Moves to", isNumber: true, show: (row) => html`<strong>${count(row.new_offset)}</strong>` },
  { title: "Lag now", isNumber: true, show: (row) => count(row.current_lag) },
  { title: "Lag then", isNumber: true, show: (row) => count(row.new_lag) },
];

/** The dialog of a group of the REST API at `path`. */
export function GroupReset({ name, path, rows, targets, memberCount, done, close }) {
  const ask = async (body, isReal) =>
    (await rest("POST", `${path}/offsets:reset`, { ...body, validate_only: !isReal })).data;
  return html`<${Reset}
    name=${name} rows=${rows} targets=${targets} ask=${ask} commandOf=${(body, isReal) => resetCommand(name, body, isReal)}
    warning=${memberCount > 0 && `The group has ${plural(memberCount, "member")}. Stop its consumers first: a reset is refused meanwhile.`}
    done=${done} close=${close}
  />`;
}

/**
 * `rows` have topic_name and partition_id; `targets` as `TARGETS`; `warning` is shown above the form.
 *
 * `ask(body, isReal)` returns the rows of the preview, or those that have moved; `commandOf(body, isReal)` the command that does the same.
 */
export function Reset({ name, rows, targets = TARGETS, warning, ask, commandOf, done, close }) {
  const topics = useMemo(() => [...new Set(rows.map((row) => row.topic_name))], []);
  const [topic, setTopic] = useState(topics[0] || "");
  const [to, setTo] = useState("earliest");
  const [partition, setPartition] = useState("");
  const [number, setNumber] = useState("0");
  const [moment, setMoment] = useState("");
  const body = {
    topic_name: topic, to,
    ...(partition === "" ? {} : { partition_ids: [Number(partition)] }),
    ...(to === "offset" || to === "shift" ? { [to]: Number(number) } : {}),
    ...(to === "timestamp" ? { timestamp_ms: moment ? Date.parse(moment) : 0 } : {}),
  };
  const asked = JSON.stringify(body);
  const preview = useAction(async () => ({ asked, rows: await ask(body, false) }));
  const apply = useAction(async () => ({ asked, rows: await ask(body, true) }));
  const isCurrent = preview.result !== null && preview.result.asked === asked;
  const partitions = rows.filter((row) => row.topic_name === topic).map((row) => String(row.partition_id));
  const show = (event) => {
    event.preventDefault();
    preview.run();
  };
  const run = async () => {
    if (await apply.run()) done();
  };
  return html`<${Dialog} title=${`Reset offsets of ${name}`} close=${close}>
    <form onSubmit=${show}>
      ${warning && html`<p class="notice warn">${warning}</p>`}
      <div class="grid">
        ${topics.length > 0
          ? html`<${Choice} label="Stream" value=${topic} change=${setTopic} options=${topics.map((one) => [one, one])} />`
          : html`<${Text} label="Stream" value=${topic} change=${setTopic} required />`}
        <${Choice} label="Partition" value=${partition} change=${setPartition} options=${[["", "all"], ...partitions.map((one) => [one, one])]} />
        <${Choice} label="Move to" value=${to} change=${setTo} options=${targets} />
        ${(to === "offset" || to === "shift") &&
        html`<${Text} label=${to === "offset" ? "Offset" : "Records"} type="number" value=${number} change=${setNumber} required />`}
        ${to === "timestamp" && html`<${Text} label="Time" type="datetime-local" step="1" value=${moment} change=${setMoment} required />`}
      </div>
      <div class="buttons">
        <button type="submit" class=${isCurrent ? "" : "main"} disabled=${preview.isBusy}>Show what would move</button>
        <button type="button" class="bad" disabled=${!isCurrent || apply.isBusy || apply.result?.asked === asked} onClick=${run}>Reset the offsets</button>
      </div>
      <${Problem} error=${preview.error || apply.error} />
      <div role="status">${apply.result?.asked === asked && html`<p class="notice good">The offsets of ${plural(apply.result.rows.length, "partition")} were reset.</p>`}</div>
      ${isCurrent && html`<${Table} caption="What would move" columns=${PREVIEW_COLUMNS} rows=${preview.result.rows} rowKey=${(row) => row.partition_id} empty="Nothing would move." />`}
      <${CommandLine} text=${commandOf(body, isCurrent)} />
    </form>
  <//>`;
}
