// One consumer group: members, lag by partition in records and in time, and a reset of its offsets with a preview.
import { html, useMemo, useState } from "../lib.js";
import { ApiError, rest, useData } from "../api.js";
import { count, duration, plural } from "../format.js";
import { Choice, CommandLine, Dialog, Figure, Heading, Loaded, Problem, Table, Text, href, useAction } from "../parts.js";
import { describeCommand, resetCommand } from "../groupcommands.js";
import { StateBadge } from "./groups.js";

const AGED_COUNT = 20;
const pathOf = (name) => `/consumer-groups/${encodeURIComponent(name)}`;

async function load(name, signal) {
  const path = pathOf(name);
  const [group, members, lags] = await Promise.all([
    rest("GET", path, undefined, signal),
    rest("GET", `${path}/consumers`, undefined, signal),
    rest("GET", `${path}/lags`, undefined, signal),
  ]);
  const rows = lags.data.map((row) => ({ ...row, key: `${row.topic_name}:${row.partition_id}` }));
  return { group, members: members.data, rows, ages: await ages(rows, signal) };
}

/** How old the next record to read is (ms), of the partitions with the largest lag; others are left out. */
async function ages(rows, signal) {
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

const MEMBER_COLUMNS = [
  { title: "Member", isHead: true, show: (row) => row.consumer_id },
  { title: "Client", show: (row) => row.client_id },
  { title: "Instance", show: (row) => row.instance_id || "–" },
  { title: "Partitions", isNumber: true, show: (row) => count(row.partitionCount) },
];

export function Group({ name }) {
  const state = useData((signal) => load(name, signal), [name], 5_000);
  const [isResetting, setResetting] = useState(false);
  const lagColumns = [
    { title: "Stream", isHead: true, show: (row) => html`<a href=${href("streams", row.topic_name)}>${row.topic_name}</a>` },
    { title: "Partition", isNumber: true, show: (row) => row.partition_id },
    { title: "Committed", isNumber: true, show: (row) => count(row.current_offset) },
    { title: "End", isNumber: true, show: (row) => count(row.log_end_offset) },
    { title: "Lag (records)", isNumber: true, show: (row) => count(row.lag) },
    { title: "Lag (time)", isNumber: true, show: (row) => (row.lag === 0 ? "0 s" : duration(state.data?.ages.get(row.key))) },
    { title: "Member", show: (row) => row.client_id || "–" },
  ];
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("groups")}>Groups</a>`}>
      <button type="button" onClick=${() => setResetting(true)}>Reset offsets …</button>
    <//>
    <${Loaded} state=${state}>
      ${({ group, members, rows, ages: found }) => {
        const counts = new Map();
        rows.forEach((row) => counts.set(row.consumer_id, (counts.get(row.consumer_id) || 0) + 1));
        const shown = members.map((member) => ({ ...member, partitionCount: counts.get(member.consumer_id) || 0 }));
        const worst = Math.max(0, ...[...found.values()].filter((age) => age !== null));
        const lag = rows.reduce((sum, row) => sum + row.lag, 0);
        return html`
          <dl class="figures">
            <${Figure} label="State" value=${html`<${StateBadge} state=${group.state} />`} note=${(group.type || "").toLowerCase()} />
            <${Figure} label="Members" value=${count(members.length)} />
            <${Figure} label="Lag" value=${count(lag)} note="records" />
            <${Figure} label="Lag in time" value=${lag === 0 ? "0 s" : duration(worst)} note="age of the oldest record that is next" />
          </dl>
          <section aria-labelledby="lags">
            <h2 id="lags">Lag by partition</h2>
            <${Table} caption="Lag by partition" columns=${lagColumns} rows=${rows} rowKey=${(row) => row.key} empty="The group has committed no offsets." />
          </section>
          <section aria-labelledby="members">
            <h2 id="members">Members</h2>
            <${Table} caption="Members" columns=${MEMBER_COLUMNS} rows=${shown} rowKey=${(row) => row.consumer_id} empty="The group has no members." />
          </section>
          ${isResetting &&
          html`<${Reset} name=${name} rows=${rows} memberCount=${members.length} done=${state.again} close=${() => setResetting(false)} />`}
        `;
      }}
    <//>
    <${CommandLine} text=${describeCommand(name)} />
  `;
}

const TARGETS = [
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

function Reset({ name, rows, memberCount, done, close }) {
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
  const ask = (isReal) => rest("POST", `${pathOf(name)}/offsets:reset`, { ...body, validate_only: !isReal });
  const preview = useAction(async () => ({ asked, rows: (await ask(false)).data }));
  const apply = useAction(async () => ({ asked, rows: (await ask(true)).data }));
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
      ${memberCount > 0 && html`<p class="notice warn">The group has ${plural(memberCount, "member")}. Stop its consumers first: a reset is refused meanwhile.</p>`}
      <div class="grid">
        ${topics.length > 0
          ? html`<${Choice} label="Stream" value=${topic} change=${setTopic} options=${topics.map((one) => [one, one])} />`
          : html`<${Text} label="Stream" value=${topic} change=${setTopic} required />`}
        <${Choice} label="Partition" value=${partition} change=${setPartition} options=${[["", "all"], ...partitions.map((one) => [one, one])]} />
        <${Choice} label="Move to" value=${to} change=${setTo} options=${TARGETS} />
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
      <${CommandLine} text=${resetCommand(name, body, isCurrent)} />
    </form>
  <//>`;
}
