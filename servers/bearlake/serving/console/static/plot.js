// A plot of rows: a line or bars, with axes. Drawn as SVG; the table beside it has the same numbers for a screen reader.
import { html } from "./lib.js";
import { short, time } from "./format.js";

const [WIDTH_MAX, HEIGHT] = [800, 280];
const [LEFT, RIGHT, TOP, BOTTOM] = [70, 12, 12, 34];
const TICK_COUNT = 5;
const LABEL_WIDTH = 90;
const AROUND = 72;

/** The width of a drawing on this screen, at most `most`: a drawing that is made smaller afterwards has letters that nobody can read. */
export const widthFor = (most) => Math.max(260, Math.min(most, document.documentElement.clientWidth - AROUND));

/** How rows are shown first: a line joins values that follow one another, bars stand for things. */
export const kindFor = (columns, place) => (columns.find((one) => one.name === place)?.type === "VARCHAR" ? "bar" : "line");
const LABEL_LENGTH = 14;

const isTime = (type) => /^(TIMESTAMP|DATE)/.test(type);
const isNumber = (type) => /INT|DOUBLE|FLOAT|DECIMAL/.test(type) && !type.endsWith("[]");

/** The columns that a plot can have as heights, and those that it can have below. */
export const heights = (columns) => columns.filter((column) => isNumber(column.type));
export const places = (columns) => columns.filter((column) => isNumber(column.type) || isTime(column.type) || column.type === "VARCHAR");

/** Times without a zone are in UTC, as the engine shows them. */
const timeOf = (text) => Date.parse(/[zZ]$|[+-]\d\d:?\d\d$/.test(text) || text.length === 10 ? text : `${text}Z`);

/** The points of a plot: {at, height, label}, by `at` if it is a number or a time, else in the order of the rows. */
export function pointsOf(result, place, height) {
  const [x, y] = [result.columns.findIndex((one) => one.name === place), result.columns.findIndex((one) => one.name === height)];
  if (x < 0 || y < 0) return { points: [], isOrdered: false };
  const { type } = result.columns[x];
  const isOrdered = isNumber(type) || isTime(type);
  const points = result.rows
    .map((row, index) => {
      const at = !isOrdered ? index : isTime(type) ? timeOf(row[x]) : Number(row[x]);
      return { at, height: row[y] === null ? NaN : Number(row[y]), label: labelOf(row[x], type) };
    })
    .filter((point) => Number.isFinite(point.at) && Number.isFinite(point.height));
  if (isOrdered) points.sort((one, other) => one.at - other.at);
  return { points, isOrdered };
}

function labelOf(value, type) {
  if (value === null) return "null";
  if (isTime(type)) return time(timeOf(value)).replace(/\.\d+$/, "");
  return String(value);
}

/** A plot; `kind` is line or bar. */
export function Plot({ result, place, height, kind }) {
  const { points, isOrdered } = pointsOf(result, place, height);
  if (points.length === 0) return html`<p class="empty">These columns have nothing to plot.</p>`;
  const width = widthFor(WIDTH_MAX);
  const values = points.map((point) => point.height);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const span = high - low || 1;
  const y = (value) => TOP + (1 - (value - low) / span) * (HEIGHT - TOP - BOTTOM);
  const isBar = kind === "bar";
  const [first, last] = [points[0].at, points.at(-1).at];
  const slot = (width - LEFT - RIGHT) / points.length;
  const spread = isOrdered && !isBar && last > first;
  const x = (point, index) => (spread ? LEFT + ((point.at - first) / (last - first)) * (width - LEFT - RIGHT) : LEFT + (index + 0.5) * slot);
  const ticks = Array.from({ length: TICK_COUNT }, (_, at) => low + (span * at) / (TICK_COUNT - 1));
  const labelCount = Math.min(TICK_COUNT, Math.floor((width - LEFT) / LABEL_WIDTH));
  const step = Math.ceil(points.length / labelCount);
  const line = points.map((point, index) => `${x(point, index).toFixed(1)},${y(point.height).toFixed(1)}`).join(" ");
  const text = `${height} by ${place}: ${points.length} points, from ${short(Math.min(...values))} to ${short(Math.max(...values))}`;
  return html`<figure class="plot">
    <svg viewBox="0 0 ${width} ${HEIGHT}" role="img" aria-label=${text}>
      ${ticks.map(
        (value) => html`<g class="tick">
          <line x1=${LEFT} x2=${width - RIGHT} y1=${y(value)} y2=${y(value)} />
          <text x=${LEFT - 8} y=${y(value) + 4} text-anchor="end">${short(value)}</text>
        </g>`,
      )}
      ${points.map((point, index) =>
        index % step === 0
          ? html`<text x=${x(point, index)} y=${HEIGHT - 10} text-anchor=${spread && index === 0 ? "start" : "middle"}>${point.label.slice(0, LABEL_LENGTH)}</text>`
          : null,
      )}
      ${isBar
        ? points.map(
            (point, index) => html`<rect class="bar" x=${x(point, index) - slot * 0.4} width=${Math.max(1, slot * 0.8)} y=${Math.min(y(point.height), y(0))} height=${Math.max(1, Math.abs(y(point.height) - y(0)))}>
              <title>${`${point.label}: ${point.height}`}</title>
            </rect>`,
          )
        : html`<polyline class="line" points=${line} />`}
    </svg>
    <figcaption class="hint">${text}</figcaption>
  </figure>`;
}
