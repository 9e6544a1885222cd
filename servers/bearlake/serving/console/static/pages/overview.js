// The overview: rates, latency, requests to the object store and their price, backlog of compaction, servers.
import { html } from "../lib.js";
import { adminOption, call, facts, learn, pages, useData } from "../api.js";
import { bytes, count, duration, plural, price, short } from "../format.js";
import { Badge, Chart, CommandLine, Figure, Heading, Loaded, Table, href } from "../parts.js";
import { EVERY_MS, PRICES, read } from "../metrics.js";

const SLOW_MS = 10_000;

async function loadState(signal) {
  const [servers, backlog, streams, groups] = await Promise.all([
    call("admin", "GET", "/v1/servers", undefined, signal),
    call("admin", "GET", "/v1/compaction/backlog?limit=5", undefined, signal),
    pages("/v1/streams", "streams", {}, signal),
    pages("/v1/groups", "groups", { limit: 1000 }, signal),
  ]);
  learn(servers.servers);
  return { servers: servers.servers, backlog, streams, groups };
}

const SERVER_COLUMNS = [
  { title: "Server", isHead: true, show: (row) => row.name },
  { title: "Node", isNumber: true, show: (row) => row.node_id },
  { title: "Zone", show: (row) => row.zone || "–" },
  { title: "State", show: (row) => html`<${Badge} tone=${row.is_draining ? "warn" : "good"}>${row.is_draining ? "draining" : "live"}<//>` },
  { title: "Heartbeat", isNumber: true, show: (row) => duration(row.heartbeat_age_ms) },
  { title: "Listens on", isProse: true, show: (row) => Object.entries(row.endpoints).map(([name, at]) => `${name}\u00a0${at}`).join(" · ") },
  { title: "Version", show: (row) => row.version },
];

function Rates({ series }) {
  const now = series.at(-1);
  const values = (key) => [...Array(Math.max(0, 60 - series.length)).fill(null), ...series.slice(-60).map((item) => item[key])];
  return html`
    <div class="charts">
      <${Chart} title="Records written" values=${values("recordsPerS")} show=${(value) => short(value, "/s")} />
      <${Chart} title="Bytes written" values=${values("writtenPerS")} show=${(value) => bytes(value, "/s")} />
      <${Chart} title="Bytes read" values=${values("readPerS")} show=${(value) => bytes(value, "/s")} />
      <${Chart} title="Client requests" values=${values("requestsPerS")} show=${(value) => short(value, "/s")} />
    </div>
    <dl class="figures">
      <${Figure} label="Append, p99" value=${duration(now?.appendMs)} note="to the answer, in the last 2 s" />
      <${Figure} label="Commit, p99" value=${duration(now?.commitMs)} note="metadata store" />
      <${Figure} label="Put, p99" value=${duration(now?.putMs)} note="object store" />
      <${Figure} label="Object requests" value=${now ? `${short(now.puts + now.gets, "/s")}` : "–"} note=${now ? `${short(now.puts, "/s")} put, ${short(now.gets, "/s")} read` : ""} />
      <${Figure} label="Price of requests" value=${price(now?.pricePerDay)} note=${`a day at this rate; ${PRICES.put} and ${PRICES.get} per 1,000`} />
      <${Figure} label="Memory" value=${bytes(now?.memoryBytes)} note=${now ? `${plural(now.connections, "connection")}, ${plural(now.calls, "gRPC call")}` : ""} />
    </dl>
  `;
}

export function Overview() {
  const rates = useData(read, [], EVERY_MS);
  const state = useData(loadState, [], 5_000);
  return html`
    <${Heading} title="Overview" lead=${state.data && `${plural(state.data.streams.length, "stream")}, ${plural(state.data.groups.length, "group")}, ${plural(state.data.servers.length, "server")}`} />
    <${Loaded} state=${state}>
      ${({ servers, backlog, streams, groups }) => html`
        <dl class="figures">
          <${Figure} label="Streams" value=${count(streams.length)} note=${html`<a href=${href("streams")}>all streams</a>`} />
          <${Figure} label="Partitions" value=${count(streams.reduce((sum, stream) => sum + stream.partition_count, 0))} />
          <${Figure}
            label="Lag of consumer groups" value=${count(groups.reduce((sum, group) => sum + group.lag, 0))}
            note=${html`records · <a href=${href("groups")}>${plural(groups.length, "group")}</a>`}
          />
          <${Figure}
            label="Tables are behind by" value=${duration(backlog.age_ms)} tone=${backlog.age_ms > SLOW_MS ? "warn" : ""}
            note=${html`${count(backlog.record_count)} records wait · <a href=${href("compaction")}>compaction</a>`}
          />
          <${Figure} label="Quarantined tasks" value=${count(backlog.quarantined_count)} tone=${backlog.quarantined_count ? "bad" : ""} />
        </dl>
        <section aria-labelledby="rates">
          <h2 id="rates">Rates ${servers.length > 1 && html`<small>of the server at ${facts.urls.admin}</small>`}</h2>
          <${Loaded} state=${rates}>${(series) => html`<${Rates} series=${series} />`}<//>
        </section>
        <section aria-labelledby="servers">
          <h2 id="servers">Servers</h2>
          <${Table} caption="Live servers" columns=${SERVER_COLUMNS} rows=${servers} rowKey=${(row) => row.node_id} />
        </section>
      `}
    <//>
    <${CommandLine} text=${`bearlake top${adminOption()}`} />
  `;
}
