// A form that writes one record, through REST with the rights of the person.
import { html, useState } from "../lib.js";
import { clusterPath, facts, kafkaOption, rest } from "../api.js";
import { count, shell, time } from "../format.js";
import { Choice, CommandLine, Field, Problem, Text, href, useAction } from "../parts.js";

const FORMATS = [
  ["STRING", "Text"],
  ["JSON", "JSON"],
  ["BINARY", "Base64"],
  ["SCHEMA", "JSON, by the newest schema of the stream"],
  ["NULL", "No value (deletes the key)"],
];

const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

/** Lines of NAME=VALUE as headers. Throws an Error that names a line without a name. */
export function headersOf(text) {
  return text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`Header ${line}: expected NAME=VALUE`);
      return { name: line.slice(0, at).trim(), value: line.slice(at + 1) };
    });
}

/** The body of a request: JSON text, in which JSON that the person typed stays as it was typed (64-bit numbers). */
export function bodyOf({ format, key, value, partition, headers }) {
  const fields = [];
  if (partition !== "") fields.push(`"partition_id": ${Number(partition)}`);
  if (key !== "") fields.push(`"key": ${JSON.stringify({ type: "STRING", data: key })}`);
  if (format === "JSON" || format === "SCHEMA") {
    try {
      JSON.parse(value);
    } catch (error) {
      throw new Error(`The value is not JSON: ${error.message}`);
    }
    fields.push(`"value": {${format === "JSON" ? '"type": "JSON"' : '"schema_version": "latest"'}, "data": ${value}}`);
  } else if (format !== "NULL") {
    fields.push(`"value": ${JSON.stringify({ type: format, data: value })}`);
  }
  const given = headersOf(headers).map((header) => ({ name: header.name, value: base64(header.value) }));
  if (given.length) fields.push(`"headers": ${JSON.stringify(given)}`);
  return `{${fields.join(", ")}}`;
}

/** The command that writes the same record; where `bearlake produce` cannot, a request to REST. */
function commandOf(name, record) {
  const { format, key, value, partition, headers } = record;
  if (format === "BINARY" || format === "SCHEMA") {
    let body = "…";
    try {
      body = bodyOf(record);
    } catch {
      // The form shows what is wrong when it is sent.
    }
    const url = `${facts.urls.rest || ""}${clusterPath()}/topics/${encodeURIComponent(name)}/records`;
    return `curl -H 'Content-Type: application/json' -d ${shell(body)} ${shell(url)}`;
  }
  const words = ["bearlake", "produce", shell(name)];
  if (key !== "") words.push("--key", shell(key));
  if (partition !== "") words.push("--partition", partition);
  for (const line of headers.split("\n").filter((text) => text.trim())) words.push("--header", shell(line));
  if (format === "NULL") return `echo | ${words.join(" ")} --null${kafkaOption()}`;
  if (value.includes("\n")) return `printf %s ${shell(value)} | ${words.join(" ")} --delimiter '\\0'${kafkaOption()}`;
  return `echo ${shell(value)} | ${words.join(" ")}${kafkaOption()}`;
}

export function Produce({ name, partitionCount }) {
  const [record, setRecord] = useState({ format: "STRING", key: "", value: "", partition: "", headers: "" });
  const change = (field) => (text) => setRecord((before) => ({ ...before, [field]: text }));
  const send = useAction(async () => {
    const report = await rest("POST", `/topics/${encodeURIComponent(name)}/records`, bodyOf(record));
    if (report.error_code !== 200) throw new Error(report.message);
    return report;
  });
  const submit = (event) => {
    event.preventDefault();
    send.run();
  };
  const partitions = [["", "by the key, or any"], ...Array.from({ length: Math.min(partitionCount, 1000) }, (_, at) => [String(at), String(at)])];
  return html`
    <h2>Write one record</h2>
    <form class="card" onSubmit=${submit}>
      <div class="grid">
        <${Text} label="Key" value=${record.key} change=${change("key")} hint="text; empty: no key" autocomplete="off" />
        <${Choice} label="Partition" value=${record.partition} change=${change("partition")} options=${partitions} />
        <${Choice} label="Value is" value=${record.format} change=${change("format")} options=${FORMATS} />
      </div>
      ${record.format !== "NULL" &&
      html`<${Field} label="Value">
        ${(id) => html`<textarea id=${id} rows="6" spellcheck="false" value=${record.value} onInput=${(event) => change("value")(event.target.value)}></textarea>`}
      <//>`}
      <${Field} label="Headers" hint="one NAME=VALUE a line">
        ${(id) => html`<textarea id=${id} rows="2" spellcheck="false" value=${record.headers} onInput=${(event) => change("headers")(event.target.value)}></textarea>`}
      <//>
      <div class="buttons"><button type="submit" class="main" disabled=${send.isBusy}>Write the record</button></div>
      <${Problem} error=${send.error} />
      <div role="status">
        ${send.result &&
        html`<p class="notice good">
          Stored: partition ${send.result.partition_id}, offset ${count(send.result.offset)}, ${time(Date.parse(send.result.timestamp))}.${" "}
          <a href=${href("streams", name, "records")}>Show the records</a>
        </p>`}
      </div>
      <${CommandLine} text=${commandOf(name, record)} />
    </form>
  `;
}
