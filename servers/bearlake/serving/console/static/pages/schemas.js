// The subjects of the schema registry; and one subject: its versions, what changed between two, and a check of a new schema.
import { html, useMemo, useState } from "../lib.js";
import { call, facts, useData } from "../api.js";
import { plural, pretty, shell } from "../format.js";
import { Badge, Choice, CommandLine, Field, Heading, Loaded, Problem, Table, Text, href, useAction } from "../parts.js";
import { differences } from "../differences.js";

const get = (path, signal) => call("registry", "GET", path, undefined, signal);
const pathOf = (subject) => `/subjects/${encodeURIComponent(subject)}`;

export function Schemas() {
  const state = useData((signal) => get("/subjects", signal), [], 10_000);
  const [search, setSearch] = useState("");
  const shown = useMemo(
    () => (state.data || []).filter((name) => name.toLowerCase().includes(search.trim().toLowerCase())),
    [state.data, search],
  );
  const columns = [{ title: "Subject", isHead: true, show: (name) => html`<a href=${href("schemas", name)}>${name}</a>` }];
  return html`
    <${Heading} title="Schemas" lead=${state.data && plural(state.data.length, "subject")} />
    <div class="filters">
      <${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="part of a name" />
      <p role="status" class="hint">${search && `${plural(shown.length, "subject")} found`}</p>
    </div>
    <${Loaded} state=${state}>
      ${() => html`<${Table}
        caption="Subjects" columns=${columns} rows=${shown} rowKey=${(name) => name}
        empty=${search ? "No subject has this in its name." : "The registry has no schemas yet."}
      />`}
    <//>
    <${CommandLine} text=${`curl ${facts.urls.registry || ""}/subjects`} />
  `;
}

async function load(subject, signal) {
  const path = pathOf(subject);
  const [numbers, config] = await Promise.all([
    get(`${path}/versions`, signal),
    get(`/config/${encodeURIComponent(subject)}?defaultToGlobal=true`, signal).catch(() => null),
  ]);
  const versions = await Promise.all(numbers.slice(-50).map((number) => get(`${path}/versions/${number}`, signal)));
  return { versions, level: config?.compatibilityLevel };
}

export function Subject({ name }) {
  const state = useData((signal) => load(name, signal), [name]);
  return html`
    <${Heading} title=${name} lead=${html`<a href=${href("schemas")}>Schemas</a>`} />
    <${Loaded} state=${state}>
      ${({ versions, level }) => html`<${Versions} name=${name} versions=${versions} level=${level} />`}
    <//>
  `;
}

function Versions({ name, versions, level }) {
  const newest = versions.at(-1);
  const [chosen, setChosen] = useState(String(newest.version));
  const [other, setOther] = useState(String(versions.at(-2)?.version ?? ""));
  const find = (number) => versions.find((version) => String(version.version) === number);
  const version = find(chosen);
  const former = find(other);
  const options = versions.map(({ version: number }) => [String(number), `version ${number}`]);
  const lines = former && former !== version ? differences(pretty(former.schema), pretty(version.schema)) : null;
  return html`
    <p>
      <${Badge} tone="">${version.schemaType || "AVRO"}<//> schema ${version.id},
      ${level ? ` checked by the rule ${level}` : " rule unknown"}
    </p>
    <div class="filters">
      <${Choice} label="Show" value=${chosen} change=${setChosen} options=${options} />
      <${Choice} label="Compared with" value=${other} change=${setOther} options=${[["", "nothing"], ...options]} />
    </div>
    ${lines === null
      ? html`<pre class="schema" tabindex="0">${pretty(version.schema)}</pre>`
      : html`<pre class="schema" tabindex="0" aria-label=${`Version ${chosen} compared with ${other}: + added, - removed`}>${lines.map(
          ([mark, text]) => html`<span class=${{ "+": "added", "-": "removed", " ": "" }[mark]}>${`${mark} ${text}\n`}</span>`,
        )}</pre>`}
    <${Check} name=${name} type=${version.schemaType || "AVRO"} first=${newest.schema} />
    <${CommandLine} text=${`curl ${facts.urls.registry || ""}${pathOf(name)}/versions/${chosen}`} />
  `;
}

function Check({ name, type, first }) {
  const [text, setText] = useState(pretty(first));
  const body = { schema: text, schemaType: type };
  const check = useAction(() => call("registry", "POST", `/compatibility${pathOf(name)}/versions/latest?verbose=true`, body));
  const submit = (event) => {
    event.preventDefault();
    check.run();
  };
  const result = check.result;
  return html`<section aria-labelledby="check">
    <h2 id="check">Would a new version be accepted?</h2>
    <form class="card" onSubmit=${submit}>
      <${Field} label="New schema">
        ${(id) => html`<textarea id=${id} rows="8" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>`}
      <//>
      <div class="buttons"><button type="submit" disabled=${check.isBusy}>Check against the newest version</button></div>
      <${Problem} error=${check.error} />
      <div role="status">
        ${result &&
        html`<div class="notice ${result.is_compatible ? "good" : "bad"}">
          <strong>${result.is_compatible ? "It would be accepted." : "It would be refused."}</strong>
          ${(result.messages || []).map((message) => html`<p>${message}</p>`)}
        </div>`}
      </div>
      <${CommandLine} text=${`curl -H 'Content-Type: application/json' -d ${shell(JSON.stringify(body))} '${facts.urls.registry || ""}/compatibility${pathOf(name)}/versions/latest?verbose=true'`} />
    </form>
  </section>`;
}
