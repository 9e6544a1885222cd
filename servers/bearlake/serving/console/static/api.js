// Requests to the public APIs through the console's server, with the login of this page.
//
// The login stays in the page's memory: a new page begins without one. 64-bit numbers that matter are text in the answers.
import { useEffect, useState } from "./lib.js";

let authorization = "";
let userName = "";
let loginCount = 0;
const watchers = new Set();

/** A refused or failed request; `status` 0: the console itself did not answer. */
export class ApiError extends Error {
  constructor(status, message, api) {
    super(message);
    this.status = status;
    this.api = api;
  }

  /** Whether the person lacks the right, or has not logged in. */
  get isDenied() {
    return this.status === 401 || this.status === 403;
  }
}

/** Log in with a password or a token; "" as the value logs out. */
export function logIn(value, name) {
  authorization = value;
  userName = name;
  loginCount += 1;
  clusterId = null;
  watchers.forEach((watch) => watch(loginCount));
}

export const basic = (user, password) =>
  `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`)))}`;

/** Who is logged in: a name, or "" for nobody. The component is drawn again after each login. */
export function useLogin() {
  const [number, setNumber] = useState(loginCount);
  useEffect(() => {
    watchers.add(setNumber);
    return () => watchers.delete(setNumber);
  }, []);
  return { name: userName, number };
}

/** Send one request; return its JSON (or text). Throws `ApiError`, and AbortError if `signal` ends it. */
export async function call(api, method, path, body, signal, read = firstOf) {
  const headers = { Accept: "application/json, text/plain" };
  if (authorization) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const url = api === "console" ? `api/console${path}` : `api/${api}${path}`;
  let response;
  let text;
  try {
    const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    response = await fetch(url, { method, headers, body: sent, signal, credentials: "omit", cache: "no-store" });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The console's server does not answer.", api);
  }
  const isJson = (response.headers.get("Content-Type") || "").includes("json");
  const answer = isJson && text ? read(text) : text;
  if (!response.ok) throw new ApiError(response.status, messageOf(answer, response), api);
  return answer;
}

/** The JSON of an answer; of a stream of reports (one JSON text per line) the first. */
function firstOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return JSON.parse(text.split("\n")[0]);
  }
}

function messageOf(answer, response) {
  if (answer && typeof answer === "object") return answer.detail || answer.error?.message || answer.message || answer.reason || answer.title || response.statusText;
  return String(answer || response.statusText).slice(0, 300);
}

/** All items of a list that comes in pages, at most `most` pages; `isCut` of the answer: there are more. */
export async function pages(path, items, query, signal, most = 20) {
  const found = [];
  let after = null;
  for (let page = 0; page < most; page += 1) {
    const parameters = new URLSearchParams(query);
    if (after !== null) parameters.set("after", after);
    const answer = await call("admin", "GET", `${path}?${parameters}`, undefined, signal);
    found.push(...answer[items]);
    after = answer.next;
    if (after === null || after === undefined) break;
  }
  found.isCut = after !== null && after !== undefined;
  return found;
}

let clusterId = null;

/** The path of the cluster in the REST API. */
export async function cluster(signal) {
  if (clusterId === null) {
    const answer = await call("rest", "GET", "/v3/clusters", undefined, signal);
    clusterId = answer.data[0].cluster_id;
  }
  return `/v3/clusters/${encodeURIComponent(clusterId)}`;
}

/** The same path, once it is known. */
export const clusterPath = () => `/v3/clusters/${clusterId === null ? "ID" : encodeURIComponent(clusterId)}`;

/** Call the REST API below the cluster. */
export async function rest(method, path, body, signal) {
  return call("rest", method, (await cluster(signal)) + path, body, signal);
}

const LONG_COUNT = 2_000;
const LONG_PAUSE_MS = 30_000;

/** The pause between two loads of a list: a long one takes the servers and the page more time. */
export const pauseOf = (count, everyMs) => (count > LONG_COUNT ? Math.max(everyMs, LONG_PAUSE_MS) : everyMs);

/**
 * Load data now, after each login, when `deps` change, and every `everyMs` while the page can be seen; or `data.pauseMs` after it, if the
 * data has that.
 */
export function useData(load, deps, everyMs = 0) {
  const [state, setState] = useState({ data: undefined, error: null, atMs: 0 });
  const [round, setRound] = useState(0);
  const login = useLogin();
  useEffect(() => {
    const control = new AbortController();
    let timer;
    const run = async () => {
      let pauseMs = everyMs;
      try {
        if (!document.hidden || everyMs === 0) {
          const data = await load(control.signal);
          pauseMs = data?.pauseMs ?? everyMs;
          if (!control.signal.aborted) setState({ data, error: null, atMs: Date.now() });
        }
      } catch (error) {
        if (!control.signal.aborted) setState((before) => ({ ...before, error }));
      }
      if (everyMs && !control.signal.aborted) timer = setTimeout(run, pauseMs);
    };
    run();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [...deps, login.number, round]);
  return { ...state, again: () => setRound((number) => number + 1) };
}

/** The console's own facts: version and URLs of the APIs. */
export const facts = { version: "", urls: {}, is_default: {} };

export async function loadFacts() {
  try {
    Object.assign(facts, await call("console", "GET", ""));
  } catch {
    // The page shows what does not answer when it asks for more.
  }
}

/** Learn where Kafka clients connect, for the commands that a page shows. */
export function learn(servers) {
  facts.kafka = servers.map((server) => server.endpoints.kafka).find(Boolean) || facts.kafka;
}

/** The option of a command that finds the same Kafka servers: nothing for the default address. */
export function kafkaOption() {
  return facts.kafka && facts.kafka !== "127.0.0.1:9092" ? ` --bootstrap ${facts.kafka}` : "";
}

/** The options of a command that find the same admin API: nothing for the default one. */
export function adminOption() {
  return facts.is_default.admin === false ? ` --admin ${facts.urls.admin}` : "";
}

/** The option of a command that finds the same schema registry: nothing for the default one. */
export function registryOption() {
  return facts.is_default.registry === false ? ` --registry ${facts.urls.registry}` : "";
}
