// One consumer group: members, lag by partition in records and in time, and a reset of its offsets with a preview.
import { html, useState } from "../lib.js";
import { rest, useData } from "../api.js";
import { count, plural } from "../format.js";
import { CommandLine, Figure, Heading, Loaded, Table, href } from "../parts.js";
import { describeCommand, resetCommand } from "../groupcommands.js";
import { StateBadge } from "./groups.js";
import { LagFigures, Lags, ages, keyed } from "./lag.js";
import { Reset } from "./reset.js";

const pathOf = (name) => `/consumer-groups/${encodeURIComponent(name)}`;

async function load(name, signal) {
  const path = pathOf(name);
  const [group, members, lags] = await Promise.all([
    rest("GET", path, undefined, signal),
    rest("GET", `${path}/consumers`, undefined, signal),
    rest("GET", `${path}/lags`, undefined, signal),
  ]);
  const rows = keyed(lags.data);
  return { group, members: members.data, rows, ages: await ages(rows, signal) };
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
  const ask = async (body, isReal) =>
    (await rest("POST", `${pathOf(name)}/offsets:reset`, { ...body, validate_only: !isReal })).data;
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("groups")}>Groups</a>`}>
      <button type="button" onClick=${() => setResetting(true)}>Reset offsets …</button>
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
          html`<${Reset}
            name=${name} rows=${rows} ask=${ask} commandOf=${(body, isReal) => resetCommand(name, body, isReal)}
            warning=${members.length > 0 && `The group has ${plural(members.length, "member")}. Stop its consumers first: a reset is refused meanwhile.`}
            done=${state.again} close=${() => setResetting(false)}
          />`}
        `;
      }}
    <//>
    <${CommandLine} text=${describeCommand(name)} />
  `;
}
