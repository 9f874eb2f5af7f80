// Curves over steps: series in, one SVG out. All charts share the range of steps, the smoothing and the cursor.

import { el, known, mean, number, spelled, svg } from "./dom.js";

/** @import { Child } from "./dom.js" */
/** @typedef {(number | null)[]} Values */
/** @typedef {[number, number]} Point */
/**
 * A curve, whose line is of means unless it is exact, or dots with what they may reach.
 * @typedef {{
 *   label: string, run?: string, colour: string, dash?: number, steps: number[], values: Values, low?: Values, high?: Values,
 *   dots?: boolean, exact?: boolean, bold?: boolean
 * }} Series
 */
/** @typedef {Series & { read: HTMLOutputElement }} Drawn with the place where its number at the cursor is written */

export const shared = {
  /** @type {number | null} */
  from: null,
  /** @type {number | null} */
  to: null,
  smooth: 5,
  /** @type {number | null} */
  cursor: null,
  /** @type {Set<Chart>} */
  charts: new Set(),
};
const MARGIN = { left: 46, right: 12, top: 8, bottom: 22 };
const HEIGHT = 190;
const TICKS = [1, 2, 2.5, 5, 10];
const MOST_TICKS = 100;
export const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4"];

/** @param {number} low @param {number} high @param {number} wanted @param {boolean} [whole] */
const ticks = (low, high, wanted, whole) => {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  /** @param {number} one */
  const fits = (one) => one * power >= raw * 0.999 && !(whole && (one * power) % 1);
  const size = Math.max(whole ? 1 : 0, power * (TICKS.find(fits) ?? 10));
  const found = [],
    first = Math.ceil(low / size - 1e-9);
  // Counted, since beyond 2^53 one more is the same number.
  for (let count = 0; count < MOST_TICKS && (first + count) * size <= high + size * 1e-9; count++) {
    found.push((first + count) * size || 0); // no -0
  }
  return found;
};

/** @param {Values} values @param {number} window */
const smoothed = (values, window) => {
  if (window <= 1) return values;
  /** @type {Values} */
  const found = new Array(values.length).fill(null);
  /** @type {number[]} */
  const last = [];
  values.forEach((value, at) => {
    if (!known(value)) return;
    last.push(value);
    if (last.length > window) last.shift();
    found[at] = mean(last);
  });
  return found;
};

// A path of at most two points for each pixel: the lowest and the highest.
/**
 * @param {number[]} steps
 * @param {Values} values
 * @param {(step: number) => number} x
 * @param {(value: number) => number} y
 * @param {number} width
 */
const path = (steps, values, x, y, width) => {
  /** @type {Point[]} */
  const points = [];
  steps.forEach((step, at) => {
    const value = values[at];
    if (known(value)) points.push([x(step), value]);
  });
  const seen = points.length > 2 * width ? thinned(points) : points;
  return seen.map(([px, value], at) => `${at ? "L" : "M"}${px.toFixed(1)} ${y(value).toFixed(1)}`).join("");
};

/** @param {Point[]} points */
const thinned = (points) => {
  /** @type {Point[]} */
  const found = [];
  let column = NaN,
    [low, high] = [points[0], points[0]];
  const close = () => {
    if (Number.isNaN(column)) return;
    found.push(...(low === high ? [low] : low[0] <= high[0] ? [low, high] : [high, low]));
  };
  for (const point of points) {
    if (Math.round(point[0]) !== column) {
      close();
      column = Math.round(point[0]);
      low = high = point;
    } else {
      if (point[1] < low[1]) low = point;
      if (point[1] > high[1]) high = point;
    }
  }
  close();
  return found;
};

/** @param {Series} one @param {string} colour */
const sample = (one, colour) =>
  svg(
    "svg",
    { class: "sample", viewBox: "0 0 22 8", "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour, "stroke-dasharray": DASHES[one.dash ?? 0] }),
  );

export class Chart {
  // range: the lowest and the highest value that are always shown; opened: called with a step that is clicked.
  /**
   * @param {{
   *   title: string, unit: string, series: Series[], range?: [number, number], opened?: (step: number) => void
   * }} about
   */
  constructor({ title, unit, series, range, opened }) {
    this.title = title;
    this.unit = unit;
    /** @type {Drawn[]} */
    this.series = series.map((one) => ({ ...one, read: el("output", { class: "value" }) }));
    this.range = range;
    this.opened = opened;
    this.clip = `clip${Math.random().toString(36).slice(2)}`;
    this.cursor = svg("g", { class: "cursor" });
    this.width = 0; // pixels
    this.from = 0; // the first and the last step that are shown
    this.to = 1;
    this.low = 0; // the lowest and the highest value
    this.high = 1;
    /** @type {number | null} */
    this.pressed = null; // the step where the pointer went down, and the one where it is by now
    /** @type {number | null} */
    this.until = null;
    this.svg = svg("svg", { class: "plot", role: "img", "aria-label": this.told() });
    this.legend = this.entries();
    this.node = el(
      "figure",
      { class: "chart" },
      el(
        "figcaption",
        null,
        el("span", { class: "title" }, ...spelled(title)),
        " ",
        el("span", { class: "unit" }, unit),
      ),
      this.svg,
      this.legend,
    );
    this.svg.addEventListener("pointermove", (event) => this.moved(event));
    this.svg.addEventListener("pointerleave", () => {
      if (this.pressed === null) pointAt(null);
    });
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointerup", () => this.release());
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.svg);
    shared.charts.add(this);
  }

  close() {
    this.watcher.disconnect();
    shared.charts.delete(this);
  }

  // What each curve is and is worth at the cursor. The names of several runs stand over all charts once, by colour.
  entries() {
    if (!this.series.some((one) => one.run !== undefined))
      return el(
        "div",
        { class: "legend" },
        this.series.map((one) =>
          el(
            "span",
            { class: "key" },
            sample(one, one.colour),
            el("span", { class: "label" }, ...spelled(one.label)),
            one.read,
          ),
        ),
      );
    const labels = [...new Set(this.series.map((one) => one.label))];
    return el(
      "div",
      { class: "legend of-runs" },
      labels.map((label) => {
        const own = this.series.filter((one) => one.label === label);
        return el(
          "div",
          { class: "curve-of-runs" },
          labels.length > 1 && el("span", { class: "key" }, sample(own[0], "currentColor"), ...spelled(label)),
          own.map((one) =>
            el(
              "span",
              { class: "key", title: one.run },
              el("i", { class: "swatch", style: { background: one.colour } }),
              one.read,
            ),
          ),
        );
      }),
    );
  }

  told() {
    const words = this.series.slice(0, 6).map((one) => {
      const first = one.values.findIndex(known),
        last = one.values.findLastIndex(known);
      const name = one.run === undefined ? one.label : `${one.run}, ${one.label}`;
      if (first < 0) return `${name}: not measured`;
      return (
        `${name}: ${number(one.values[first])} at step ${one.steps[first]}, ` +
        `${number(one.values[last])} at step ${one.steps[last]}`
      );
    });
    return `${this.title}, ${this.unit}. ${words.join("; ")}.`;
  }

  draw() {
    this.width = this.svg.clientWidth;
    if (!this.width) return;
    const all = this.series.flatMap((one) => [one.steps[0], one.steps.at(-1)]).filter(known);
    const from = shared.from ?? Math.min(...all),
      to = shared.to ?? Math.max(...all);
    this.from = from;
    this.to = to > from ? to : from + 1;
    [this.low, this.high] = this.reach();
    const inner = { right: this.width - MARGIN.right, bottom: HEIGHT - MARGIN.bottom };
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.replaceChildren(
      svg(
        "clipPath",
        { id: this.clip },
        svg("rect", {
          x: MARGIN.left - 4,
          y: 0,
          width: Math.max(0, inner.right - MARGIN.left + 8),
          height: inner.bottom + 4,
        }),
      ),
      svg(
        "g",
        { class: "grid" },
        ticks(this.low, this.high, 4).map((value) => [
          svg("line", { x1: MARGIN.left, x2: inner.right, y1: this.y(value), y2: this.y(value) }),
          svg("text", { x: MARGIN.left - 6, y: this.y(value) + 3.5, "text-anchor": "end" }, this.axis(value)),
        ]),
      ),
      svg(
        "g",
        { class: "steps" },
        ticks(this.from, this.to, this.width / 90, true).map((step) =>
          svg("text", { x: this.x(step), y: HEIGHT - 6, "text-anchor": "middle" }, step.toLocaleString("en")),
        ),
      ),
      svg(
        "g",
        { "clip-path": `url(#${this.clip})` },
        this.series.map((one) => this.curve(one)),
      ),
      this.cursor,
    );
    this.point();
  }

  /** @param {number} step */
  x(step) {
    const width = this.width - MARGIN.left - MARGIN.right;
    return MARGIN.left + ((step - this.from) / (this.to - this.from)) * width;
  }

  /** @param {number} value */
  y(value) {
    const height = HEIGHT - MARGIN.top - MARGIN.bottom;
    return HEIGHT - MARGIN.bottom - ((value - this.low) / (this.high - this.low)) * height;
  }

  /** @param {number} value */
  axis(value) {
    const size = Math.abs(value);
    if (size >= 1e4) return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 3 }).format(value);
    const short = Number(value.toPrecision(6)); // no two ticks look alike
    return (size > 0 && size < 1e-3 ? short.toExponential() : String(short)).replaceAll("-", "−");
  }

  /** @param {Series} one @returns {Child} */
  curve(one) {
    const width = this.width - MARGIN.left - MARGIN.right;
    /** @type {(values: Values) => string} */
    const pathOf = (values) =>
      path(
        one.steps,
        values,
        (step) => this.x(step),
        (value) => this.y(value),
        width,
      );
    const line = { fill: "none", stroke: one.colour, "stroke-dasharray": DASHES[one.dash ?? 0] };
    if (one.dots) {
      return [
        one.steps.map((step, at) => {
          const [value, low, high] = [one.values[at], one.low?.[at], one.high?.[at]];
          const x = this.x(step);
          return (
            known(value) && [
              known(low) &&
                known(high) &&
                svg("line", { class: "reach", x1: x, x2: x, y1: this.y(low), y2: this.y(high), stroke: one.colour }),
              svg("circle", { cx: x, cy: this.y(value), r: 3, fill: one.colour }),
            ]
          );
        }),
        svg("path", { ...line, class: "curve", d: pathOf(one.values) }),
      ];
    }
    const few = one.values.filter(known).length < 8;
    const bold = one.exact ? one.values : smoothed(one.values, shared.smooth);
    const faint = shared.smooth > 1 && !one.bold && !one.exact;
    return [
      faint && svg("path", { ...line, class: "raw", d: pathOf(one.values) }),
      svg("path", { ...line, class: "curve", d: pathOf(bold) }),
      few &&
        one.steps.map((step, at) => {
          const value = bold[at];
          return known(value) && svg("circle", { cx: this.x(step), cy: this.y(value), r: 2.5, fill: one.colour });
        }),
    ];
  }

  /** @returns {[number, number]} */
  reach() {
    let low = Infinity,
      high = -Infinity;
    /** @param {number | null | undefined} value */
    const take = (value) => {
      if (!known(value)) return;
      if (value < low) low = value;
      if (value > high) high = value;
    };
    for (const one of this.series) {
      const means = one.exact || one.dots ? one.values : smoothed(one.values, shared.smooth);
      for (let at = 0; at < one.steps.length; at++) {
        if (one.steps[at] < this.from || one.steps[at] > this.to) continue;
        take(one.values[at]);
        take(means[at]);
        take(one.low?.[at]);
        take(one.high?.[at]);
      }
    }
    this.range?.forEach(take);
    if (low > high) return [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    const floor = low >= 0 && low - room < 0 ? 0 : low - room;
    return [low === this.range?.[0] ? low : floor, high === this.range?.[1] ? high + room / 3 : high + room];
  }

  /** @param {MouseEvent} event */
  step(event) {
    const place =
      (event.clientX - this.svg.getBoundingClientRect().left - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    return Math.min(this.to, Math.max(this.from, Math.round(this.from + place * (this.to - this.from))));
  }

  /** @param {PointerEvent} event */
  moved(event) {
    const step = this.step(event);
    if (this.pressed !== null) this.until = step;
    pointAt(step);
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    this.pressed = this.until = this.step(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  release() {
    const [one, two] = [this.pressed, this.until];
    this.pressed = this.until = null;
    if (one === null || two === null) return;
    if (Math.abs(one - two) >= 1) zoom(Math.min(one, two), Math.max(one, two));
    else this.opened?.(one);
  }

  // The cursor and what every curve is worth there.
  point() {
    const step = shared.cursor;
    for (const one of this.series) {
      const at = known(step) ? one.steps.indexOf(step) : -1;
      one.read.textContent = at >= 0 && known(one.values[at]) ? number(one.values[at]) : "";
    }
    if (!known(step) || step < this.from || step > this.to) return this.cursor.replaceChildren();
    const x = this.x(step),
      bottom = HEIGHT - MARGIN.bottom;
    this.cursor.replaceChildren(
      svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: bottom }),
      svg("text", { x: Math.min(x + 4, this.width - 48), y: MARGIN.top + 8 }, `step ${step}`),
    );
    if (this.pressed === null || this.pressed === step) return;
    const start = this.x(this.pressed),
      height = bottom - MARGIN.top;
    this.cursor.prepend(
      svg("rect", { class: "zooming", x: Math.min(x, start), y: MARGIN.top, width: Math.abs(x - start), height }),
    );
  }
}

/** @param {number | null} step */
const pointAt = (step) => {
  if (shared.cursor === step && !known(step)) return;
  shared.cursor = step;
  for (const chart of shared.charts) chart.point();
};

/** @param {number | null} from @param {number | null} to */
export const zoom = (from, to) => {
  shared.from = from;
  shared.to = to;
  document.getElementById("unzoom")?.toggleAttribute("hidden", from === null);
  for (const chart of shared.charts) chart.draw();
};
