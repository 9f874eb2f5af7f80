// Values as Python writes them: JSON in, the text of a Case for a reward out, as `grpo shrink` prints it.

/** @import { Reads } from "./data.js" */

/** @type {Record<string, string>} */
const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const UNPRINTABLE = /[\p{C}\p{Z}\\]/gu;

/** @param {string} text */
const pythonText = (text) => {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inside = text.replace(UNPRINTABLE, (character) => {
    if (character === " ") return character;
    if (character in ESCAPES) return ESCAPES[character];
    const hex = (character.codePointAt(0) ?? 0).toString(16);
    if (hex.length <= 2) return "\\x" + hex.padStart(2, "0");
    return hex.length <= 4 ? "\\u" + hex.padStart(4, "0") : "\\U" + hex.padStart(8, "0");
  });
  return quote + (quote === "'" ? inside.replaceAll("'", "\\'") : inside) + quote;
};

/** @param {number} value */
const pythonFloat = (value) => {
  const [digits, power] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent >= 16 || exponent < -4) {
    return digits + "e" + (exponent < 0 ? "-" : "+") + String(Math.abs(exponent)).padStart(2, "0");
  }
  const text = String(value);
  return /[.]/.test(text) ? text : text + ".0";
};

// JSON of Python's own writing differs from its repr in strings and three names alone; numbers stay as written.
/** @type {Record<string, string>} */
const WORDS = { true: "True", false: "False", null: "None", NaN: "nan", Infinity: "inf", "-Infinity": "-inf" };
/** @param {string} json */
const pythonJson = (json) =>
  json.replace(
    /"(?:[^"\\]|\\.)*"|true|false|null|NaN|-?Infinity/g,
    (found) => WORDS[found] ?? pythonText(JSON.parse(found)),
  );

// Whether a text is JSON as Python writes it, so that nothing else stands where a value of it is copied.
/** @param {string} text */
const isJson = (text) => {
  try {
    JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|NaN|-?Infinity/g, (found) => (found.startsWith('"') ? found : "0")));
    return true;
  } catch {
    return false;
  }
};

// The members of a JSON object with their values as they are written.
/** @param {string} json */
export const members = (json) => {
  /** @type {[string, string][]} */
  const found = [];
  const token = /"(?:[^"\\]|\\.)*"|[{}[\],:]/g;
  let depth = 0,
    name = null,
    start = 0;
  for (let match = token.exec(json); match; match = token.exec(json)) {
    const [text] = match;
    if (text === "{" || text === "[") depth += 1;
    if (text === "}" || text === "]") depth -= 1;
    if (depth === 1 && name === null && text.startsWith('"')) name = JSON.parse(text);
    else if (depth === 1 && text === ":" && start === 0) start = token.lastIndex;
    else if (name !== null && ((depth === 1 && text === ",") || depth === 0)) {
      found.push([name, json.slice(start, match.index).trim()]);
      name = null;
      start = 0;
    }
  }
  return found;
};

// A Case with the columns that a reward reads; outcomes are [kind, score, reason] of each text.
/**
 * @param {Reads | undefined} reads
 * @param {string} columns
 * @param {string[]} texts
 * @param {[string, number | null, string | null][]} outcomes
 */
export const caseText = (reads, columns, texts, outcomes) => {
  const all = isJson(columns) ? members(columns) : [];
  const values = new Map(all);
  const row = (reads?.columns ?? all.map(([name]) => name))
    .flatMap((name) => {
      const json = values.get(name);
      return json === undefined ? [] : [`${pythonText(name)}: ${pythonJson(json)}`];
    })
    .join(", ");
  const said = outcomes.map(([kind, score]) => (kind === "failure" ? "..." : pythonScore(score)));
  const failure = outcomes.find(([kind]) => kind === "failure");
  const several = texts.length > 1;
  const lines = several
    ? ["Case(", "    [", ...texts.map((text) => `        ${pythonText(text)},`), "    ],"]
    : ["Case(", `    ${pythonText(texts[0])},`];
  lines.push(`    row={${row}},`);
  const reason = failure ? `  # ${String(failure[2]).replace(/[\p{C}\p{Z}]+/gu, " ")}` : "";
  lines.push(`    expect=${several ? `[${said.join(", ")}]` : said[0]},${reason}`);
  if (reads?.options) lines.push(`    options=${reads.options},`);
  return [...lines, ")"].join("\n");
};

/** @param {number | null} score */
const pythonScore = (score) => (score === null ? "None" : pythonFloat(score));
