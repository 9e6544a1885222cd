// Numbers, sizes and times as text. All functions are pure; a missing value is a dash.

const UNITS = ["", "k", "M", "G", "T"];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];
const NONE = "–";

export const isMissing = (value) => value === undefined || value === null || Number.isNaN(value);

/** A whole number with separators: 12,345. */
export function count(value) {
  return isMissing(value) ? NONE : Math.round(value).toLocaleString("en");
}

/** A number in three or four digits: 12.3 k. */
export function short(value, unit = "") {
  if (isMissing(value)) return NONE;
  let step = 0;
  let left = value;
  while (Math.abs(left) >= 1000 && step < UNITS.length - 1) {
    left /= 1000;
    step += 1;
  }
  const digits = Math.abs(left) >= 100 || Number.isInteger(left) ? 0 : 1;
  return `${left.toFixed(digits)}${step === 0 ? "" : ` ${UNITS[step]}`}${unit}`;
}

/** A size in bytes: 3.2 MiB. */
export function bytes(value, suffix = "") {
  if (isMissing(value)) return NONE;
  let step = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && step < BYTES.length - 1) {
    left /= 1024;
    step += 1;
  }
  const digits = step === 0 || Math.abs(left) >= 100 ? 0 : 1;
  return `${left.toFixed(digits)} ${BYTES[step]}${suffix}`;
}

/** A duration in ms: 12.3 s, 4 min, 2 h, 3 d. */
export function duration(ms) {
  if (isMissing(ms)) return NONE;
  if (ms < 1) return "0 s";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** A time in ms since 1970, in the browser's zone: 2026-01-31 12:00:00.123. */
export function time(ms, withDate = true) {
  if (isMissing(ms) || ms < 0) return NONE;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return NONE;
  const two = (number, width = 2) => String(number).padStart(width, "0");
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
  return withDate ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}` : clock;
}

/** A price per day in an amount without a currency: 0.43. */
export function price(value) {
  return isMissing(value) ? NONE : value.toFixed(value < 10 ? 2 : 0);
}

/** Characters that a terminal obeys when somebody pastes them, and those that show a line in another order than it has. */
const OBEYED = /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

/** A word for a shell, quoted if it must be. Names may come from strangers: nothing in a word acts on the terminal. */
export function shell(word) {
  const text = String(word);
  if (OBEYED.test(text.replaceAll("\n", ""))) return `$'${[...text].map(escaped).join("")}'`;
  return /^[A-Za-z0-9_.,:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function escaped(letter) {
  if (letter === "'" || letter === "\\") return `\\${letter}`;
  if (!OBEYED.test(letter)) return letter;
  return `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** A count and its noun: 1 stream, 2 streams. */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A JSON text with line breaks, with every number as it was written; other text as it is. */
export function pretty(text) {
  const trimmed = text.trim();
  if (!/^[[{]/.test(trimmed)) return text;
  try {
    JSON.parse(trimmed);
  } catch {
    return text;
  }
  return indented(trimmed);
}

/** Break a valid JSON text into lines. It moves only white space, so that a number of 64 bits stays exact. */
function indented(text) {
  const lines = [];
  let line = "";
  let depth = 0;
  const end = () => {
    lines.push("  ".repeat(depth) + line);
    line = "";
  };
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[^\s"[\]{},:]+|[[\]{},:]/g)) {
    if (token === "{" || token === "[") {
      line += token;
      end();
      depth += 1;
    } else if (token === "}" || token === "]") {
      if (line) end();
      depth -= 1;
      line = token;
    } else if (token === ",") {
      line += token;
      end();
    } else {
      line += token === ":" ? ": " : token;
    }
  }
  end();
  return lines.join("\n").replace(/([[{])\n\s*([\]}])/g, "$1$2");
}
