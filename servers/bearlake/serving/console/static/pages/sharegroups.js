// Share groups: the list, and one group with its members, its lag and a reset of its offsets.
import { html, useMemo, useState } from "../lib.js";
import { rest, useData } from "../api.js";
import { count, plural } from "../format.js";
import { CommandLine, Figure, Heading, Loaded, Table, Text, href } from "../parts.js";
import { describeCommand, listCommand } from "../groupcommands.js";
import { GroupTabs, StateBadge } from "./groups.js";
import { LagFigures, Lags, loadGroup } from "./lag.js";
import { GroupReset, TARGETS } from "./reset.js";

const pathOf = (name) => `/share-groups/${encodeURIComponent(name)}`;
const SHARE_TARGETS = TARGETS.filter(([to]) => to !== "shift");

const COLUMNS = [
  { title: "Group", isHead: true, show: (row) => html`<a href=${href("share-groups", row.share_group_id)}>${row.share_group_id}</a>` },
  { title: "State", show: (row) => html`<${StateBadge} state=${row.state} />` },
  { title: "Members", isNumber: true, show: (row) => count(row.consumer_count) },
  { title: "Partitions of members", isNumber: true, show: (row) => count(row.partition_count) },
];

export function ShareGroups() {
  const state = useData(async (signal) => (await rest("GET", "/share-groups", undefined, signal)).data, [], 5_000);
  const [search, setSearch] = useState("");
  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return (state.data || []).filter((group) => group.share_group_id.toLowerCase().includes(wanted));
  }, [state.data, search]);
  return html`
    <${Heading} title="Share groups" lead=${state.data && plural(state.data.length, "share group")} />
    <${GroupTabs} now="share-groups" />
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="part of a name" />
      <p role="status" class="hint">${search && `${plural(shown.length, "group")} found`}</p>
    </div>
    <${Loaded} state=${state}>
      ${() => html`<${Table}
        caption="Share groups" columns=${COLUMNS} rows=${shown} rowKey=${(row) => row.share_group_id}
        empty=${search ? "No group has this in its name." : "No share group has subscribed yet."}
      />`}
    <//>
    <${CommandLine} text=${listCommand()} />
  `;
}

const MEMBER_COLUMNS = [
  { title: "Member", isHead: true, show: (row) => row.consumer_id },
  { title: "Client", show: (row) => row.client_id },
  { title: "Host", show: (row) => row.client_host.replace(/^\//, "") },
  { title: "Streams", show: (row) => row.topic_names.join(" · ") },
  { title: "Partitions", isNumber: true, show: (row) => count(row.partition_count) },
];

export function ShareGroup({ name }) {
  const state = useData((signal) => loadGroup(pathOf(name), signal), [name], 5_000);
  const [isResetting, setResetting] = useState(false);
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("share-groups")}>Share groups</a>`}>
      ${state.data && html`<button type="button" onClick=${() => setResetting(true)}>Reset offsets …</button>`}
    <//>
    <${Loaded} state=${state}>
      ${({ group, members, rows, ages: found }) => html`
        <dl class="figures">
          <${Figure} label="State" value=${html`<${StateBadge} state=${group.state} />`} note="share group" />
          <${Figure} label="Members" value=${count(members.length)} />
          <${LagFigures} rows=${rows} found=${found} />
        </dl>
        <${Lags} rows=${rows} found=${found} empty="The group has no offsets yet." />
        <section aria-labelledby="members">
          <h2 id="members">Members</h2>
          <${Table} caption="Members" columns=${MEMBER_COLUMNS} rows=${members} rowKey=${(row) => row.consumer_id} empty="The group has no members." />
        </section>
        ${isResetting &&
        html`<${GroupReset}
          name=${name} path=${pathOf(name)} rows=${rows} targets=${SHARE_TARGETS} memberCount=${members.length}
          done=${state.again} close=${() => setResetting(false)}
        />`}
      `}
    <//>
    <${CommandLine} text=${describeCommand(name)} />
  `;
}
