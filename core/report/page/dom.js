// Elements and numbers: values in, nodes out. Texts of a run become text nodes and nothing else.

/** @typedef {Node | string | false | null | undefined | Child[]} Child */
/** @typedef {string | number | boolean | null | undefined} Value */
/**
 * Attributes of an element by name; those that begin with "on" are what it does.
 * @template {Element} E
 * @typedef {{
 *   [Event in keyof GlobalEventHandlersEventMap as `on${Event}`]?:
 *     (event: GlobalEventHandlersEventMap[Event] & { currentTarget: E }) => unknown
 * } & { style?: Record<string, string> | null, [name: string]: Value | object }} Props
 */

const SVG = "http://www.w3.org/2000/svg";

// Characters that are not seen, or that move what stands beside them: shown by their code, and how many of one follow.
const UNSEEN = new RegExp(
  "([\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
    "\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}])\\1*",
  "gu",
);

/**
 * @template {Element} E
 * @param {E} node
 * @param {Record<string, any> | null | undefined} props
 * @param {Child[]} children
 */
const make = (node, props, children) => {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(node, value);
    else if (name === "value" || name === "checked" || name === "selected") Object.assign(node, { [name]: value });
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
};

/** @param {Element} node @param {Record<string, string>} style */
const setStyle = (node, style) => {
  if (!(node instanceof HTMLElement || node instanceof SVGElement)) return;
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, value);
};

/** @param {Element} node @param {Child} child */
const append = (node, child) => {
  if (Array.isArray(child)) child.forEach((own) => append(node, own));
  else if (child !== null && child !== undefined && child !== false) node.append(child);
};

// A button does what its own code says, and never sends the form that it stands in.
/**
 * @type {<T extends keyof HTMLElementTagNameMap>(
 *   tag: T, props?: Props<HTMLElementTagNameMap[T]> | null, ...children: Child[]
 * ) => HTMLElementTagNameMap[T]}
 */
export const el = (tag, props, ...children) =>
  make(document.createElement(tag), tag === "button" ? { type: "button", ...props } : props, children);
/**
 * @type {<T extends keyof SVGElementTagNameMap>(
 *   tag: T, props?: Props<SVGElementTagNameMap[T]> | null, ...children: Child[]
 * ) => SVGElementTagNameMap[T]}
 */
export const svg = (tag, props, ...children) => make(document.createElementNS(SVG, tag), props, children);

/** @param {number} point */
const code = (point) => "U+" + point.toString(16).toUpperCase().padStart(4, "0");

// A text as it is, with what cannot be seen spelled out.
/** @param {string} text */
export const spelled = (text) => {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > end) parts.push(text.slice(end, match.index));
    const name = code(match[1].codePointAt(0) ?? 0),
      count = match[0].length / match[1].length;
    const shown = count > 1 ? `${name.slice(2)} × ${number(count)}` : name.slice(2);
    parts.push(el("span", { class: "unseen", title: `${name}, a character that is not seen` }, shown));
    end = match.index + match[0].length;
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
};

/** @type {{ pattern: RegExp | null }} */
export const searching = { pattern: null }; // what the reader looks for in texts

// A search without regard to case, and to how much white space stands between words; null of no words.
/** @param {string | null | undefined} words */
export const patternOf = (words) => {
  const parts = (words ?? "").split(/\s+/u).filter(Boolean);
  return parts.length
    ? new RegExp(parts.map((part) => part.replace(/[$()*+./?[\\\]^{|}]/g, "\\$&")).join("\\s+"), "giu")
    : null;
};

/** @param {string} text @param {RegExp} pattern */
export const has = (text, pattern) => {
  pattern.lastIndex = 0;
  return pattern.test(text);
};

// A text as it is, with what the reader looks for marked.
/** @param {string} text */
export const marked = (text) => {
  if (!searching.pattern) return spelled(text);
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(searching.pattern)) {
    parts.push(...spelled(text.slice(end, match.index)), el("mark", null, ...spelled(match[0])));
    end = match.index + match[0].length;
  }
  return [...parts, ...spelled(text.slice(end))];
};

const MANY = 500; // messages, or columns of a row, that are shown at once

// Draws the first of many, with a button for as many more.
/** @template {Element} E @template T @param {E} node @param {T[]} all @param {(item: T) => Node} draw */
export const inPieces = (node, all, draw, from = 0) => {
  node.append(...all.slice(from, from + MANY).map(draw));
  const left = all.length - from - MANY;
  if (left <= 0) return node;
  const button = el(
    "button",
    {
      class: "more",
      onclick: () => {
        button.remove();
        inPieces(node, all, draw, from + MANY);
      },
    },
    `${number(left)} more`,
  );
  node.append(button);
  return node;
};

export const LONG = 60000; // characters of one text that are shown at once

/** @param {string} text @param {{ class?: string } | null} [props] */
export const quoted = (text, props) => {
  const node = el("pre", { ...props, class: "quoted " + (props?.class ?? ""), dir: "auto", tabindex: "0" });
  if (text === "") node.append(el("span", { class: "faint" }, "(empty)"));
  /** @param {number} from */
  const more = (from) => {
    const cut = from + LONG < text.length ? from + LONG : text.length;
    node.append(...marked(text.slice(from, cut)));
    if (cut < text.length) {
      const button = el(
        "button",
        {
          class: "more",
          onclick: () => {
            button.remove();
            more(cut);
          },
        },
        `${(text.length - cut).toLocaleString("en")} more characters`,
      );
      node.append(button);
    }
  };
  more(0);
  return node;
};

// The beginning of a text, or what stands around the words that are looked for.
/** @param {string} text @param {number} width */
export const oneLine = (text, width) => {
  const found = searching.pattern ? text.search(searching.pattern) : -1,
    from = found > width / 4 ? found - 20 : 0;
  const line =
    (from ? "… " : "") +
    text
      .slice(from, from + 4 * width)
      .replace(/\s+/gu, " ")
      .trim();
  return line.length > width ? line.slice(0, width - 1) + "…" : line;
};

// An object without ancestors: no name that a run chose, such as "constructor", finds anything in it by chance.
/** @template T @param {Record<string, T>} members @returns {Record<string, T>} */
export const bare = (members) => Object.assign(Object.create(null), members);

// An element that is in the page from the start, or throughout a view.
/** @param {string} id */
export const byId = (id) => {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no #${id}`);
  return node;
};

/** @template T @param {T} value @returns {value is NonNullable<T>} */
export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

// Four significant digits, and whole numbers as they are.
/** @param {number | null | undefined} value */
export const number = (value) => {
  if (!known(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en").replace("-", "−");
  const size = Math.abs(value);
  const text =
    size >= 1e5 || size < 1e-4 ? value.toExponential(2).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(4)));
  return text.replaceAll("-", "−").replace("e+", "e");
};

/** @param {number | null} value */
export const direction = (value) => (!known(value) || value === 0 ? null : value > 0 ? "up" : "down");
/** @param {number | null | undefined} value */
export const signed = (value) => (known(value) && value > 0 ? "+" : "") + number(value);
/** @param {number | null | undefined} value */
export const percent = (value) => (known(value) ? (100 * value).toFixed(1).replace(/\.0$/, "") + "%" : "–");
/** @param {number} count @param {string} noun */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
/** @param {number[]} values */
export const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN);

// Seconds as "74 s", "12 min" or "3.5 h".
/** @param {number | null | undefined} seconds */
export const duration = (seconds) => {
  if (!known(seconds) || !seconds) return "–";
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
};

// A moment as the reader's clock has it: "Nov 25, 21:39", and the year of one that is not this year's.
/** @param {string} moment as ISO 8601 has it; "" where nobody knows */
export const whenOf = (moment) => {
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return "–";
  const thisYear = date.getFullYear() === new Date().getFullYear();
  return date.toLocaleString("en", {
    month: "short",
    day: "numeric",
    ...(thisYear ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { year: "numeric" }),
  });
};

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

// Does something when a node first comes into sight.
/** @param {Element} node @param {() => void} action */
export const whenSeen = (node, action) => {
  const observer = new IntersectionObserver((seen) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    action();
  });
  observer.observe(node);
};

/** @type {number | undefined} */
let saying; // the timer of what is said

/** @param {string} text */
const say = (text) => {
  const node = byId("said");
  node.textContent = text;
  node.classList.add("shown");
  clearTimeout(saying);
  saying = setTimeout(() => node.classList.remove("shown"), 2500);
};

/** @param {string} text @param {string} what */
export const copy = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { value: text, class: "aside", "aria-hidden": "true" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what} copied`);
};

/** @param {string} label @param {Child} control */
export const field = (label, control) => el("label", { class: "field" }, el("span", null, label), control);

/**
 * @param {(readonly [string, string])[]} options
 * @param {string | null} value
 * @param {(value: string | null) => void} onchange
 */
export const select = (options, value, onchange) =>
  el(
    "select",
    { onchange: (event) => onchange(event.currentTarget.value || null) },
    options.map(([key, label]) => el("option", { value: key, selected: key === (value ?? "") }, ...spelled(label))),
  );

// A number with a bar from the lowest to the highest reward of the run.
/** @param {number} value @param {readonly [number, number]} scale @param {string} text */
export const meter = (value, [low, high], text) => {
  const share = known(value) && high > low ? (value - low) / (high - low) : 0;
  return el(
    "span",
    { class: "meter" },
    el("i", { style: { width: `${(100 * share).toFixed(1)}%` } }),
    el("span", null, text),
  );
};
