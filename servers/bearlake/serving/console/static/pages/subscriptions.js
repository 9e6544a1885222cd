// Pulsar subscriptions: those of the streams that a search finds, and one of them with consumers, lag and a reset.
import { html, useState } from "../lib.js";
import { facts, pauseOf, rest, useData } from "../api.js";
import { count, plural } from "../format.js";
import { Badge, CommandLine, Figure, Heading, Loaded, Table, Text, href, useSettled } from "../parts.js";
import { describeCommand, listCommand, resetCommand } from "../groupcommands.js";
import { statisticsOf, subscriptionsOf, topicOf } from "../pulsar.js";
import { GroupTabs } from "./groups.js";
import { LagFigures, Lags, ages, keyed } from "./lag.js";
import { Reset, TARGETS } from "./reset.js";

const STREAM_COUNT_MAX = 24;
const EVERY_MS = 10_000;
const AT_ONCE = 6;
const PULSAR_TARGETS = TARGETS.filter(([to]) => to !== "shift");
const TONES = { None: "" };

const ABSENT = html`<p class="empty">This console knows no HTTP API of Pulsar (<code>console.pulsar_url</code>).</p>`;

async function load(search, signal) {
  const wanted = search.trim().toLowerCase();
  const topics = (await rest("GET", "/topics", undefined, signal)).data.map((topic) => topic.topic_name);
  const matching = topics.filter((name) => name.toLowerCase().includes(wanted) && topicOf(name) !== null);
  const asked = matching.slice(0, STREAM_COUNT_MAX);
  const rows = [];
  for (let at = 0; at < asked.length; at += AT_ONCE) {
    const part = asked.slice(at, at + AT_ONCE);
    const found = await Promise.all(part.map((stream) => subscriptionsOf(stream, signal)));
    part.forEach((stream, index) => rows.push(...found[index].map((name) => ({ stream, name }))));
  }
  return { rows, askedCount: asked.length, streamCount: matching.length, pauseMs: pauseOf(topics.length, EVERY_MS) };
}

const COLUMNS = [
  { title: "Subscription", isHead: true, show: (row) => html`<a href=${href("subscriptions", row.stream, row.name)}>${row.name}</a>` },
  { title: "Stream", show: (row) => html`<a href=${href("streams", row.stream)}>${row.stream}</a>` },
  { title: "Topic", show: (row) => `persistent://${topicOf(row.stream).join("/")}` },
];

export function Subscriptions() {
  const [search, setSearch] = useState("");
  const settled = useSettled(search);
  const isThere = Boolean(facts.urls.pulsar);
  const state = useData(async (signal) => (isThere ? load(settled, signal) : { rows: [], askedCount: 0, streamCount: 0 }), [settled], EVERY_MS);
  return html`
    <${Heading} title="Pulsar subscriptions" lead=${state.data && plural(state.data.rows.length, "subscription")} />
    <${GroupTabs} now="subscriptions" />
    <div class="filters">
      <${Text} label="Stream" type="search" value=${search} change=${setSearch} placeholder="part of a stream's name" />
      <p role="status" class="hint">
        ${state.data && state.data.askedCount < state.data.streamCount &&
        `Subscriptions of the first ${state.data.askedCount} of ${plural(state.data.streamCount, "stream")}: name yours.`}
      </p>
    </div>
    ${isThere
      ? html`<${Loaded} state=${state}>
          ${({ rows }) => html`<${Table}
            caption="Subscriptions" columns=${COLUMNS} rows=${rows} rowKey=${(row) => `${row.stream}/${row.name}`}
            empty="These streams have no subscription."
          />`}
        <//>`
      : ABSENT}
    <${CommandLine} text=${listCommand()} />
  `;
}

/** What is shown of one subscription: its statistics, and where it is in each partition. */
async function loadOne(stream, name, signal) {
  const { isPartitioned, stats, partitions } = await statisticsOf(stream, signal);
  const subscription = stats.subscriptions[name];
  if (subscription === undefined) throw new Error(`Stream ${stream} has no subscription ${name}.`);
  const rows = keyed(
    partitions.flatMap(({ stats: own, internal }, index) => {
      const cursor = internal?.cursors[name];
      if (cursor === undefined) return [];
      const current = Number(cursor.markDeletePosition.split(":")[1]) + 1;
      const lag = own.subscriptions[name]?.msgBacklog ?? 0;
      return [{ topic_name: stream, partition_id: index, current_offset: current, log_end_offset: internal.entriesAddedCounter, lag }];
    }),
  );
  return { isPartitioned, subscription, rows, ages: await ages(rows, signal) };
}

const CONSUMER_COLUMNS = [
  { title: "Consumer", isHead: true, show: (row) => row.consumerName || "–" },
  { title: "Address", show: (row) => row.address || "–" },
  { title: "Client", show: (row) => row.clientVersion || "–" },
  { title: "Permits", isNumber: true, show: (row) => count(row.availablePermits) },
  { title: "Not acknowledged", isNumber: true, show: (row) => count(row.unackedMessages) },
];

export function Subscription({ stream, name }) {
  const state = useData((signal) => loadOne(stream, name, signal), [stream, name], 5_000);
  const [isResetting, setResetting] = useState(false);
  const path = `/topics/${encodeURIComponent(stream)}/subscriptions/${encodeURIComponent(name)}`;
  const ask = async (body, isReal) =>
    (await rest("POST", `${path}/offsets:reset`, { ...body, validate_only: !isReal })).data;
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("subscriptions")}>Pulsar subscriptions</a> · of <a href=${href("streams", stream)}>${stream}</a>`}>
      ${state.data && html`<button type="button" onClick=${() => setResetting(true)}>Reset the position …</button>`}
    <//>
    <${Loaded} state=${state}>
      ${(data) => html`
        <dl class="figures">
          <${Figure} label="Type" value=${html`<${Badge} tone=${TONES[data.subscription.type] ?? "good"}>${data.subscription.type === "None" ? "nobody reads" : data.subscription.type}<//>`} />
          <${Figure} label="Consumers" value=${count(data.subscription.consumers.length)} />
          <${LagFigures} rows=${data.rows} found=${data.ages} />
          <${Figure} label="Not acknowledged" value=${count(data.subscription.unackedMessages)} note="delivered messages" />
        </dl>
        <${Lags} rows=${data.rows} found=${data.ages} empty="The subscription has no position yet." />
        <section aria-labelledby="consumers">
          <h2 id="consumers">Consumers</h2>
          <${Table} caption="Consumers" columns=${CONSUMER_COLUMNS} rows=${data.subscription.consumers} rowKey=${(row) => `${row.consumerName} ${row.address}`} empty="The subscription has no consumers." />
        </section>
        ${isResetting &&
        html`<${Reset}
          name=${name} rows=${data.rows} targets=${PULSAR_TARGETS} ask=${ask}
          commandOf=${(body, isReal) => resetCommand(`${stream}/${name}`, body, isReal)}
          warning=${data.subscription.consumers.length > 0 && "Its consumers go on at the new position, and get messages again that lie behind it."}
          done=${state.again} close=${() => setResetting(false)}
        />`}
      `}
    <//>
    <${CommandLine} text=${describeCommand(`${stream}/${name}`)} />
  `;
}
