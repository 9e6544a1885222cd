// The settings of the server behind the console: value, unit, source, meaning.
import { html, useMemo, useState } from "../lib.js";
import { call, facts, useData } from "../api.js";
import { plural } from "../format.js";
import { Badge, CommandLine, Heading, Loaded, Table, Text } from "../parts.js";

const shown = (value) => (value === "" || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));

const COLUMNS = [
  { title: "Setting", isHead: true, show: (row) => html`<code>${row.setting}</code>` },
  {
    title: "Value",
    show: (row) => html`<code>${shown(row.value)}</code>${row.unit && row.unit !== "count" && shown(row.value) !== "–" ? ` ${row.unit}` : ""}`,
  },
  { title: "Default", show: (row) => html`<code>${shown(row.default)}</code>` },
  { title: "From", show: (row) => html`<${Badge} tone=${row.source === "default" ? "" : "good"}>${row.source}<//>` },
  { title: "Meaning", isProse: true, show: (row) => row.doc },
];

export function Settings() {
  const state = useData((signal) => call("admin", "GET", "/v1/config", undefined, signal), []);
  const [search, setSearch] = useState("");
  const [isChangedOnly, setChangedOnly] = useState(false);
  const rows = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return (state.data?.settings || []).filter(
      (row) =>
        (!isChangedOnly || row.source !== "default") &&
        (row.setting.toLowerCase().includes(wanted) || row.doc.toLowerCase().includes(wanted)),
    );
  }, [state.data, search, isChangedOnly]);
  return html`
    <${Heading} title="Settings" lead=${`of the server at ${facts.urls.admin}; they are read when it starts`} />
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="name or meaning" />
      <label class="check">
        <input type="checkbox" checked=${isChangedOnly} onChange=${(event) => setChangedOnly(event.target.checked)} />
        only those that somebody set
      </label>
      <p role="status" class="hint">${state.data && `${plural(rows.length, "setting")} shown`}</p>
    </div>
    <${Loaded} state=${state}>
      ${() => html`<${Table} caption="Settings" columns=${COLUMNS} rows=${rows} rowKey=${(row) => row.setting} empty="No setting matches." step=${100} />`}
    <//>
    <${CommandLine} text="bearlake config show" />
  `;
}
