// A stream's configuration: each value with its meaning and where it comes from, and a dialog that changes one.
import { html, useMemo, useState } from "../lib.js";
import { adminOption, rest, useData } from "../api.js";
import { plural, shell } from "../format.js";
import { Badge, CommandLine, Dialog, Loaded, Problem, Table, Text, useAction } from "../parts.js";

const NO_EFFECT = /accepted for compatibility/i;

export function Configs({ name }) {
  const path = `/topics/${encodeURIComponent(name)}/configs`;
  const state = useData(async (signal) => (await rest("GET", path, undefined, signal)).data, [name]);
  const [search, setSearch] = useState("");
  const [changed, setChanged] = useState(null);
  const rows = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    const rank = (row) => (row.is_default ? (NO_EFFECT.test(row.documentation || "") ? 2 : 1) : 0);
    return (state.data || [])
      .filter((row) => `${row.name} ${row.documentation || ""}`.toLowerCase().includes(wanted))
      .sort((one, other) => rank(one) - rank(other) || (one.name < other.name ? -1 : 1));
  }, [state.data, search]);
  const columns = [
    { title: "Name", isHead: true, show: (row) => html`<code>${row.name}</code>` },
    { title: "Value", show: (row) => html`<code>${row.value || "–"}</code>` },
    { title: "Source", show: (row) => (row.is_default ? "default" : html`<${Badge} tone="good">this stream<//>`) },
    { title: "Meaning", isProse: true, show: (row) => row.documentation || "" },
    {
      title: "Change",
      show: (row) => html`<button type="button" class="plain" aria-label=${`Change ${row.name}`} onClick=${() => setChanged(row)}>Change</button>`,
    },
  ];
  return html`
    <h2>Configuration</h2>
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="name or meaning" />
      <p class="hint" role="status">${search && `${plural(rows.length, "value")} found`}</p>
    </div>
    <${Loaded} state=${state}>
      ${() => html`<${Table} caption="Configuration" columns=${columns} rows=${rows} rowKey=${(row) => row.name} />`}
    <//>
    ${changed &&
    html`<${Change} name=${name} path=${path} config=${changed} close=${() => setChanged(null)} done=${state.again} />`}
  `;
}

function Change({ name, path, config, close, done }) {
  const [value, setValue] = useState(config.value ?? "");
  const one = `${path}/${encodeURIComponent(config.name)}`;
  const change = useAction((isReset) => (isReset ? rest("DELETE", one) : rest("PUT", one, { value })));
  const run = async (event, isReset) => {
    event.preventDefault();
    const dialog = event.target.closest("dialog");
    if (await change.run(isReset)) {
      done();
      dialog.close();
    }
  };
  return html`<${Dialog} title=${config.name} close=${close}>
    <form onSubmit=${(event) => run(event, false)}>
      <p>${config.documentation}</p>
      <${Text} label="Value" value=${value} change=${setValue} autocomplete="off" />
      <${Problem} error=${change.error} />
      <div class="buttons">
        <button type="submit" class="main" disabled=${change.isBusy}>Set</button>
        ${!config.is_default &&
        html`<button type="button" disabled=${change.isBusy} onClick=${(event) => run(event, true)}>Reset to the default</button>`}
      </div>
      <${CommandLine} text=${`bearlake stream alter ${shell(name)} --set ${shell(`${config.name}=${value}`)}${adminOption()}`} />
      ${!config.is_default &&
      html`<${CommandLine} label="To reset it" text=${`bearlake stream alter ${shell(name)} --unset ${config.name}${adminOption()}`} />`}
    </form>
  <//>`;
}
