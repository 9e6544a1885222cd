// Access: what a principal may do to a resource and why, the rules, and the users.
import { html, useMemo, useState } from "../lib.js";
import { call, facts, pages, useData } from "../api.js";
import { count, plural, shell } from "../format.js";
import { Badge, Choice, CommandLine, Dialog, Heading, Loaded, Problem, Table, Text, useAction } from "../parts.js";

const KINDS = ["Topic", "Group", "Cluster", "TransactionalId", "Subject", "Namespace"];
const OPERATIONS = ["All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "IdempotentWrite"];
const CLUSTER = "kafka-cluster";
const options = (words) => words.map((word) => [word, word]);

async function load(signal) {
  const [rules, users] = await Promise.all([
    pages("/v1/access", "rules", {}, signal),
    pages("/v1/users", "users", {}, signal),
  ]);
  return { rules, users };
}

const ruleKey = (rule) => JSON.stringify(rule);
const resourceOf = (rule) => `${rule.resource}:${rule.name}`;

function RuleResource({ rule }) {
  return html`${resourceOf(rule)}${rule.pattern === "Prefixed" ? " …" : ""}`;
}

const RULE_COLUMNS = [
  { title: "Permission", show: (row) => html`<${Badge} tone=${row.permission === "Allow" ? "good" : "bad"}>${row.permission}<//>` },
  { title: "Principal", isHead: true, show: (row) => row.principal },
  { title: "Operation", show: (row) => row.operation },
  { title: "Resource", show: (row) => html`<${RuleResource} rule=${row} />` },
  { title: "Host", show: (row) => row.host },
];

const USER_COLUMNS = [
  { title: "User", isHead: true, show: (row) => row.name },
  { title: "Mechanisms", show: (row) => row.credentials.map((one) => one.mechanism).join(" · ") },
  { title: "Rounds of hashing", isNumber: true, show: (row) => count(Math.max(...row.credentials.map((one) => one.iterations))) },
];

/** The command that creates a rule. */
function ruleCommand(rule) {
  const words = ["--principal", shell(rule.principal || "User:NAME"), "--operation", rule.operation, "--resource", shell(resourceOf(rule))];
  if (rule.host !== "*") words.push("--host", shell(rule.host));
  if (rule.pattern === "Prefixed") words.push("--prefixed");
  return `bearlake access ${rule.permission.toLowerCase()} ${words.join(" ")}`;
}

/** The request that deletes exactly this rule; the command line deletes all rules that its options select. */
const deleteCommand = (rule) =>
  `curl -X DELETE -H 'Content-Type: application/json' -d ${shell(JSON.stringify({ rules: [rule] }))} ${shell(`${facts.urls.admin}/v1/access`)}`;

function Decisions() {
  const [asked, setAsked] = useState({ principal: "User:", resource: "Topic", name: "", host: "" });
  const change = (field) => (value) => setAsked((before) => ({ ...before, [field]: value, ...(value === "Cluster" ? { name: CLUSTER } : {}) }));
  const decide = useAction(async () => {
    const parameters = new URLSearchParams(asked);
    return call("admin", "GET", `/v1/access/decisions?${parameters}`);
  });
  const submit = (event) => {
    event.preventDefault();
    decide.run();
  };
  const found = decide.result;
  return html`<section aria-labelledby="decisions">
    <h2 id="decisions">Who may what</h2>
    <form class="card" onSubmit=${submit}>
      <div class="grid">
        <${Text} label="Principal" value=${asked.principal} change=${change("principal")} required pattern="User:.+" hint="User:name" autocomplete="off" />
        <${Choice} label="Kind" value=${asked.resource} change=${change("resource")} options=${options(KINDS)} />
        <${Text} label="Name" value=${asked.name} change=${change("name")} required autocomplete="off" />
        <${Text} label="From address" value=${asked.host} change=${change("host")} hint="empty: any" autocomplete="off" />
      </div>
      <div class="buttons"><button type="submit" class="main" disabled=${decide.isBusy}>Show what is allowed</button></div>
      <${Problem} error=${decide.error} />
      <div role="status">${found && html`<${Decision} found=${found} />`}</div>
    </form>
  </section>`;
}

function Decision({ found }) {
  const allowed = Object.entries(found.operations).filter(([, may]) => may).map(([name]) => name);
  const reason = found.is_super_user
    ? "A super user: the settings allow everything (access.super_users)."
    : found.has_rules
      ? `${plural(found.rules.length, "rule")} for this principal.`
      : `No rule matches the resource: access.allow_if_no_rule decides.`;
  return html`<div>
    <p>
      ${allowed.length === 0
        ? html`<${Badge} tone="bad">nothing is allowed<//>`
        : allowed.map((name) => html`<${Badge} tone="good">${name}<//> `)}
    </p>
    <p class="hint">${reason}</p>
    ${found.rules.length > 0 && html`<${Table} caption="Rules that decide" columns=${RULE_COLUMNS} rows=${found.rules} rowKey=${ruleKey} />`}
  </div>`;
}

function Create({ close, done }) {
  const [rule, setRule] = useState({ resource: "Topic", name: "", pattern: "Literal", principal: "User:", host: "*", operation: "Read", permission: "Allow" });
  const change = (field) => (value) => setRule((before) => ({ ...before, [field]: value, ...(value === "Cluster" ? { name: CLUSTER } : {}) }));
  const create = useAction(() => call("admin", "POST", "/v1/access", { rules: [rule] }));
  const submit = async (event) => {
    event.preventDefault();
    const dialog = event.target.closest("dialog");
    if (await create.run()) {
      done();
      dialog.close();
    }
  };
  return html`<${Dialog} title="Create a rule" close=${close}>
    <form onSubmit=${submit}>
      <div class="grid">
        <${Choice} label="Permission" value=${rule.permission} change=${change("permission")} options=${options(["Allow", "Deny"])} />
        <${Text} label="Principal" value=${rule.principal} change=${change("principal")} required pattern="(User|Group):.+" hint="User:name, Group:name or User:*" autocomplete="off" />
        <${Choice} label="Operation" value=${rule.operation} change=${change("operation")} options=${options(OPERATIONS)} />
        <${Choice} label="Kind" value=${rule.resource} change=${change("resource")} options=${options(KINDS)} />
        <${Text} label="Name" value=${rule.name} change=${change("name")} required autocomplete="off" hint="* for all of the kind" />
        <${Choice} label="Name is" value=${rule.pattern} change=${change("pattern")} options=${[["Literal", "the whole name"], ["Prefixed", "its beginning"]]} />
        <${Text} label="Host" value=${rule.host} change=${change("host")} required autocomplete="off" hint="* or an address" />
      </div>
      <${Problem} error=${create.error} />
      <div class="buttons"><button type="submit" class="main" disabled=${create.isBusy}>Create the rule</button></div>
      <${CommandLine} text=${ruleCommand(rule)} />
    </form>
  <//>`;
}

function Delete({ rule, close, done }) {
  const remove = useAction(() => call("admin", "DELETE", "/v1/access", { rules: [rule] }));
  const submit = async (event) => {
    event.preventDefault();
    const dialog = event.target.closest("dialog");
    if (await remove.run()) {
      done();
      dialog.close();
    }
  };
  return html`<${Dialog} title="Delete a rule" close=${close}>
    <form onSubmit=${submit}>
      <p>${rule.permission} <strong>${rule.principal}</strong> to ${rule.operation} <strong><${RuleResource} rule=${rule} /></strong> from ${rule.host}.</p>
      <${Problem} error=${remove.error} />
      <div class="buttons"><button type="submit" class="bad" disabled=${remove.isBusy}>Delete the rule</button></div>
      <${CommandLine} text=${deleteCommand(rule)} />
    </form>
  <//>`;
}

export function Access() {
  const state = useData(load, [], 10_000);
  const [search, setSearch] = useState("");
  const [isCreating, setCreating] = useState(false);
  const [deleted, setDeleted] = useState(null);
  const rules = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return (state.data?.rules || []).filter((rule) => `${rule.principal} ${resourceOf(rule)} ${rule.operation}`.toLowerCase().includes(wanted));
  }, [state.data, search]);
  const columns = [
    ...RULE_COLUMNS,
    {
      title: "Delete",
      show: (row) => html`<button type="button" class="plain" aria-label=${`Delete the rule of ${row.principal} on ${resourceOf(row)}`} onClick=${() => setDeleted(row)}>Delete …</button>`,
    },
  ];
  return html`
    <${Heading} title="Access" lead=${state.data && `${plural(state.data.rules.length, "rule")}, ${plural(state.data.users.length, "user")}`}>
      <button type="button" class="main" onClick=${() => setCreating(true)}>Create a rule</button>
    <//>
    <${Decisions} />
    <section aria-labelledby="rules">
      <h2 id="rules">Rules</h2>
      <div class="filters"><${Text} label="Search" type="search" value=${search} change=${setSearch} placeholder="part of a rule" /></div>
      <${Loaded} state=${state}>
        ${() => html`<${Table} caption="Access rules" columns=${columns} rows=${rules} rowKey=${ruleKey} empty=${search ? "No rule matches." : "There are no rules: the settings decide (access.allow_if_no_rule)."} />`}
      <//>
      <${CommandLine} text="bearlake access list" />
    </section>
    <section aria-labelledby="users">
      <h2 id="users">Users</h2>
      ${state.data && html`<${Table} caption="Users" columns=${USER_COLUMNS} rows=${state.data.users} rowKey=${(row) => row.name} empty="There are no users with passwords." />`}
      <${CommandLine} label="Users and passwords are made on the command line" text="bearlake user create NAME" />
    </section>
    ${isCreating && html`<${Create} close=${() => setCreating(false)} done=${state.again} />`}
    ${deleted && html`<${Delete} rule=${deleted} close=${() => setDeleted(null)} done=${state.again} />`}
  `;
}
