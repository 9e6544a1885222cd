// The parts that pages are made of: tables, figures, charts, dialogs, notices, command lines.
import { html, useEffect, useRef, useState } from "./lib.js";
import { useLogin } from "./api.js";

export const href = (...words) => `#/${words.map(encodeURIComponent).join("/")}`;

/** A page's heading, which gets the focus when the page opens, so that a screen reader reads it. */
export function Heading({ title, children, lead }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} – Bearlake console`;
    heading.current?.focus({ preventScroll: true });
  }, [title]);
  return html`<header class="heading">
    <div>
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      ${lead && html`<p class="lead">${lead}</p>`}
    </div>
    <div class="actions">${children}</div>
  </header>`;
}

const classOf = (column) => (column.isNumber ? "number" : column.isProse ? "prose" : "");

/** A table. `columns`: [{title, isHead, isNumber, isProse, show(row)}]; `rowKey(row)` names a row. Prose keeps a width that can be read. */
export function Table({ caption, columns, rows, rowKey, empty = "Nothing here.", step = 200 }) {
  const [shownCount, setShownCount] = useState(step);
  const shown = rows.slice(0, shownCount);
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  return html`<div>
    <div class="scroll" tabindex="0" role="group" aria-label=${caption}>
      <table>
        <caption class="hidden">${caption}</caption>
        <thead>
          <tr>
            ${columns.map((column) => html`<th scope="col" class=${classOf(column)}>${column.title}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${shown.map(
            (row) => html`<tr key=${rowKey(row)}>
              ${columns.map((column) =>
                column.isHead
                  ? html`<th scope="row" class=${classOf(column)}>${column.show(row)}</th>`
                  : html`<td class=${classOf(column)}>${column.show(row)}</td>`,
              )}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${rows.length > shownCount &&
    html`<p class="more">
      ${shownCount.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown.
      <button type="button" onClick=${() => setShownCount(shownCount + step)}>Show more</button>
    </p>`}
  </div>`;
}

/** A figure with its name. */
export function Figure({ label, value, note, tone = "" }) {
  return html`<div class="figure ${tone}">
    <dt>${label}</dt>
    <dd><strong>${value}</strong>${note && html`<span class="note">${note}</span>`}</dd>
  </div>`;
}

/** A line with an area below it. `values` are oldest first; null is a gap at the beginning. */
export function Chart({ title, values, show, width = 320, height = 72 }) {
  const known = values.filter((value) => value !== null);
  const largest = Math.max(...known, 1e-9);
  const last = known.at(-1);
  const step = width / Math.max(values.length - 1, 1);
  const points = values
    .map((value, at) => (value === null ? null : [at * step, height - 2 - (value / largest) * (height - 6)]))
    .filter(Boolean);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const area = points.length ? `${points[0][0].toFixed(1)},${height} ${line} ${points.at(-1)[0].toFixed(1)},${height}` : "";
  const text = known.length ? `${title}: now ${show(last)}, highest ${show(largest)}` : `${title}: no figures yet`;
  return html`<figure class="chart">
    <figcaption>
      <span>${title}</span><strong>${known.length ? show(last) : "–"}</strong>
    </figcaption>
    <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${text}>
      ${points.length > 1 && html`<polygon class="area" points=${area} /><polyline class="line" points=${line} />`}
    </svg>
  </figure>`;
}

/** What could not be shown, and what to do about it. */
export function Problem({ error }) {
  if (!error) return null;
  const needsLogin = error.status === 401;
  const title = needsLogin ? "Log in to see this" : error.status === 403 ? "Not allowed" : "This does not work";
  return html`<div class="notice ${needsLogin ? "" : "bad"}" role="alert">
    <strong>${title}</strong>
    <p>${error.message}</p>
    ${needsLogin && html`<button type="button" onClick=${() => window.dispatchEvent(new Event("bearlake-login"))}>Log in</button>`}
  </div>`;
}

// Components return one element, not a list: the library puts a list's new elements in the wrong place when the list changes.

/** Show data, or that it is being loaded, or the problem; old data stays beside a new problem. */
export function Loaded({ state, children }) {
  return html`<div>
    <${Problem} error=${state.error} />
    ${state.data === undefined
      ? !state.error && html`<p class="loading" role="status">Loading …</p>`
      : children(state.data)}
  </div>`;
}

/** The command that does the same. */
export function CommandLine({ text, label = "The same on the command line" }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      setCopied(false);
    }
  };
  return html`<div class="command">
    <span class="label">${label}</span>
    <code tabindex="0">${text}</code>
    <button type="button" class="plain" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button>
  </div>`;
}

/** A dialog that keeps the focus inside; Escape and `close` end it. */
export function Dialog({ title, close, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="dialog-title">
    <div class="heading">
      <h2 id="dialog-title">${title}</h2>
      <button type="button" class="plain" onClick=${() => dialog.current.close()}>Close</button>
    </div>
    ${children}
  </dialog>`;
}

let fieldCount = 0;

/** A labelled field; `children(id)` draws the control. */
export function Field({ label, hint, children }) {
  const id = useRef(null);
  if (id.current === null) id.current = `field-${(fieldCount += 1)}`;
  return html`<div class="field">
    <label for=${id.current}>${label}</label>
    ${children(id.current)} ${hint && html`<span class="hint">${hint}</span>`}
  </div>`;
}

/** A text field. */
export function Text({ label, hint, value, change, ...rest }) {
  return html`<${Field} label=${label} hint=${hint}>
    ${(id) => html`<input id=${id} value=${value} onInput=${(event) => change(event.target.value)} ...${rest} />`}
  <//>`;
}

/** A choice. `options`: [[value, text]]. */
export function Choice({ label, hint, value, change, options }) {
  return html`<${Field} label=${label} hint=${hint}>
    ${(id) => html`<select id=${id} value=${value} onChange=${(event) => change(event.target.value)}>
      ${options.map(([option, text]) => html`<option value=${option} selected=${option === value}>${text}</option>`)}
    </select>`}
  <//>`;
}

/** A word about a state, with its colour and its text. */
export function Badge({ tone, children }) {
  return html`<span class="badge ${tone}">${children}</span>`;
}

/** Run an action of a button: `isBusy`, its error, and what it returned. */
export function useAction(action) {
  const [state, setState] = useState({ isBusy: false, error: null, result: null });
  const run = async (...words) => {
    setState({ isBusy: true, error: null, result: null });
    try {
      const result = await action(...words);
      setState({ isBusy: false, error: null, result });
      return true;
    } catch (error) {
      setState({ isBusy: false, error, result: null });
      return false;
    }
  };
  return { ...state, run };
}

const SETTLE_MS = 300;

/** The value once it has not changed for a moment, so that typing a word starts one search and not five. */
export function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** Who is logged in, and the button for it. */
export function LoginButton({ open }) {
  const { name } = useLogin();
  return html`<button type="button" class="plain wide" onClick=${open}>${name ? `Logged in: ${name}` : "Log in"}</button>`;
}
