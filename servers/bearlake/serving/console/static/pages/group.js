// One consumer group: members, lag by partition in records and in time, and a reset of its offsets with a preview.
import { html, useState } from "../lib.js";
import { useData } from "../api.js";
import { count } from "../format.js";
import { CommandLine, Figure, Heading, Loaded, Table, href } from "../parts.js";
import { describeCommand } from "../groupcommands.js";
import { StateBadge } from "./groups.js";
import { LagFigures, Lags, loadGroup } from "./lag.js";
import { GroupReset } from "./reset.js";

const pathOf = (name) => `/consumer-groups/${encodeURIComponent(name)}`;
const MEMBER_COLUMNS = [
  { title: "Member", isHead: true, show: (row) => row.consumer_id },
  { title: "Client", show: (row) => row.client_id },
  { title: "Instance", show: (row) => row.instance_id || "–" },
  { title: "Partitions", isNumber: true, show: (row) => count(row.partitionCount) },
];

export function Group({ name }) {
  const state = useData((signal) => loadGroup(pathOf(name), signal), [name], 5_000);
  const [isResetting, setResetting] = useState(false);
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("groups")}>Groups</a>`}>
      ${state.data && html`<button type="button" onClick=${() => setResetting(true)}>Reset offsets …</button>`}
    <//>
    <${Loaded} state=${state}>
      ${({ group, members, rows, ages: found }) => {
        const counts = new Map();
        rows.forEach((row) => counts.set(row.consumer_id, (counts.get(row.consumer_id) || 0) + 1));
        const shown = members.map((member) => ({ ...member, partitionCount: counts.get(member.consumer_id) || 0 }));
        return html`
          <dl class="figures">
            <${Figure} label="State" value=${html`<${StateBadge} state=${group.state} />`} note=${(group.type || "").toLowerCase()} />
            <${Figure} label="Members" value=${count(members.length)} />
            <${LagFigures} rows=${rows} found=${found} />
          </dl>
          <${Lags}
            rows=${rows} found=${found} more=${[{ title: "Member", show: (row) => row.client_id || "–" }]}
            empty="The group has committed no offsets."
          />
          <section aria-labelledby="members">
            <h2 id="members">Members</h2>
            <${Table} caption="Members" columns=${MEMBER_COLUMNS} rows=${shown} rowKey=${(row) => row.consumer_id} empty="The group has no members." />
          </section>
          ${isResetting &&
          html`<${GroupReset} name=${name} path=${pathOf(name)} rows=${rows} memberCount=${members.length} done=${state.again} close=${() => setResetting(false)} />`}
        `;
      }}
    <//>
    <${CommandLine} text=${describeCommand(name)} />
  `;
}
