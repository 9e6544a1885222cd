// Consumer groups: their state, and how many records each has still to read.
import { html, useMemo, useState } from "../lib.js";
import { pages, rest, useData } from "../api.js";
import { count, plural } from "../format.js";
import { Badge, CommandLine, Heading, Loaded, Table, Text, href } from "../parts.js";
import { listCommand } from "../groupcommands.js";

const TONES = { STABLE: "good", EMPTY: "", DEAD: "bad" };

/** Groups by REST, which shows what the person may see, with their lag by the admin API where the person may use that. */
async function load(signal) {
  const [listed, lags] = await Promise.all([
    rest("GET", "/consumer-groups", undefined, signal),
    pages("/v1/groups", "groups", { limit: 1000 }, signal).catch((error) => {
      if (!error.isDenied) throw error;
      return null;
    }),
  ]);
  const byName = new Map((lags || []).map((row) => [row.group, row]));
  return {
    hasLag: lags !== null,
    groups: listed.data.filter((group) => group.type !== "SHARE").map((group) => ({
      name: group.consumer_group_id, state: group.state, type: group.type, assignor: group.partition_assignor,
      ...(byName.get(group.consumer_group_id) || {}),
    })),
  };
}

export const stateWord = (state) => state.toLowerCase().replaceAll("_", " ");

export function StateBadge({ state }) {
  return html`<${Badge} tone=${TONES[state] ?? "warn"}>${stateWord(state)}<//>`;
}

const KINDS = [
  ["groups", "Consumer groups"],
  ["share-groups", "Share groups"],
  ["subscriptions", "Pulsar subscriptions"],
];

/** Links to the three kinds of readers. */
export function GroupTabs({ now }) {
  return html`<nav class="tabs" aria-label="Kinds of groups">
    <ul>
      ${KINDS.map(([word, title]) => html`<li><a href=${href(word)} aria-current=${now === word ? "page" : null}>${title}</a></li>`)}
    </ul>
  </nav>`;
}

export function Groups() {
  const state = useData(load, [], 5_000);
  const [search, setSearch] = useState("");
  const shown = useMemo(
    () =>
      (state.data?.groups || [])
        .filter((group) => group.name.toLowerCase().includes(search.trim().toLowerCase()))
        .sort((one, other) => (other.lag ?? 0) - (one.lag ?? 0) || (one.name < other.name ? -1 : 1)),
    [state.data, search],
  );
  const columns = [
    { title: "Group", isHead: true, show: (row) => html`<a href=${href("groups", row.name)}>${row.name || "(empty name)"}</a>` },
    { title: "State", show: (row) => html`<${StateBadge} state=${row.state} />` },
    { title: "Protocol", show: (row) => (row.type || "").toLowerCase() },
    ...(state.data?.hasLag
      ? [
          { title: "Lag (records)", isNumber: true, show: (row) => count(row.lag) },
          { title: "Partitions", isNumber: true, show: (row) => count(row.partition_count) },
          {
            title: "By stream",
            show: (row) => (row.streams || []).slice(0, 4).map(({ stream, lag }) => `${stream} ${count(lag)}`).join(" · ") || "–",
          },
        ]
      : []),
  ];
  return html`
    <${Heading} title="Groups" lead=${state.data && plural(state.data.groups.length, "consumer group")} />
    <${GroupTabs} now="groups" />
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="part of a name" />
      <p role="status" class="hint">${search && `${plural(shown.length, "group")} found`}</p>
    </div>
    <${Loaded} state=${state}>
      ${() => html`<${Table}
        caption="Consumer groups" columns=${columns} rows=${shown} rowKey=${(row) => row.name}
        empty=${search ? "No group has this in its name." : "No consumer group has committed an offset yet."}
      />`}
    <//>
    <${CommandLine} text=${listCommand()} />
  `;
}
