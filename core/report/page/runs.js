// The runs of a folder: what the server says of them in; a table to sort, search, compare and label out.

import { byId, counted, duration, el, known, messageOf, number, oneLine, percent, spelled, whenOf } from "./dom.js";
import { deleteDialog, labelDialog } from "./labels.js";

/**
 * A run in the list, from folder.py.
 * @typedef {{
 *   name: string, status: string, env: string, model: string, rewards: string[], env_rewards: Record<string, string[]>,
 *   defaults: boolean, started: string, seconds: number, step: number, steps: number | null, reward: number | null, before: number | null,
 *   after: number | null, problem: string | null, tags: string[], note: string, hidden: boolean
 * }} Line
 */
/** @typedef {"name" | "status" | "started" | "seconds" | "env" | "model" | "rewards" | "step" | "reward" | "after"} Key */

const EVERY = 2000; // milliseconds between questions

/** @type {[Key, string][]} */
const COLUMNS = [
  ["name", "Run"],
  ["status", "Status"],
  ["started", "Started"],
  ["seconds", "Time"],
  ["env", "Environment"],
  ["model", "Model"],
  ["rewards", "Rewards"],
  ["step", "Step"],
  ["reward", "Reward"],
  ["after", "Held-out accuracy"],
];

const state = {
  /** @type {Line[]} */
  runs: [],
  edit: false, // whether the reader may label and delete
  /** @type {Key | null} */
  by: null, // the column that sorts
  down: false,
  words: "", // of the search
  hidden: false, // hidden runs are listed too
  /** @type {Set<string>} */
  chosen: new Set(), // the names of those to compare
  told: "", // what the server said last
};

/** @param {Line} run @param {Key} key */
const worth = (run, key) => {
  if (key === "after") return run.after ?? run.before;
  const value = run[key];
  return Array.isArray(value) ? value.join(", ") : value;
};

/** @param {Line[]} runs */
const ordered = (runs) => {
  const { by } = state;
  if (by === null) return runs;
  const sign = state.down ? -1 : 1;
  /** @param {string | number} one @param {string | number} two */
  const compared = (one, two) =>
    typeof one === "number" && typeof two === "number"
      ? one - two
      : String(one).localeCompare(String(two), "en", { numeric: true });
  return [...runs].sort((first, second) => {
    const [one, two] = [worth(first, by), worth(second, by)];
    // What nobody knows stands last, either way.
    if (!known(one) || !known(two)) return Number(known(two)) - Number(known(one));
    return sign * compared(one, two);
  });
};

/** @param {Line} run */
const matches = (run) => {
  const text = [run.name, run.status, run.env, run.model, ...run.rewards, ...run.tags, run.note].join("\n");
  return state.words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.toLowerCase().includes(word));
};

/** @param {string[]} names */
const reportOf = (names) => `report?${new URLSearchParams(names.map((name) => ["run", name]))}`;

const headings = () =>
  el(
    "tr",
    null,
    el("th", { scope: "col" }, el("span", { class: "aside" }, "Compare")),
    COLUMNS.map(([key, label]) =>
      el(
        "th",
        { scope: "col", "aria-sort": state.by === key ? (state.down ? "descending" : "ascending") : null },
        el(
          "button",
          {
            class: "by",
            id: `by-${key}`,
            onclick: () => {
              state.down =
                state.by === key ? !state.down : ["started", "seconds", "step", "reward", "after"].includes(key);
              state.by = key;
              drawRuns();
            },
          },
          label,
          state.by === key ? (state.down ? " ↓" : " ↑") : "",
        ),
      ),
    ),
    state.edit && el("th", { scope: "col" }, el("span", { class: "aside" }, "Change")),
  );

/** @param {Line} run */
const line = (run) => {
  const own = Object.values(run.env_rewards).flat();
  const rewards = [...run.rewards, ...own].join(", ") || (run.defaults ? "defaults" : "–");
  return el(
    "tr",
    { class: run.hidden ? "hidden-run" : null },
    el(
      "td",
      null,
      el("input", {
        type: "checkbox",
        id: `choose-${run.name}`,
        "aria-label": `Compare ${run.name}`,
        disabled: run.problem !== null,
        checked: state.chosen.has(run.name),
        onchange: (event) => {
          state.chosen[event.currentTarget.checked ? "add" : "delete"](run.name);
          drawRuns();
        },
      }),
    ),
    el(
      "th",
      { scope: "row" },
      run.problem === null ? el("a", { href: reportOf([run.name]) }, ...spelled(run.name)) : spelled(run.name),
      run.tags.map((tag) => el("span", { class: "tag" }, ...spelled(tag))),
      run.note && el("small", null, ...spelled(oneLine(run.note, 200))),
      run.problem !== null && el("small", null, ...spelled(run.problem)),
    ),
    el("td", null, el("span", { class: `status ${run.status}` }, run.status)),
    el("td", { class: "figure" }, whenOf(run.started)),
    el("td", { class: "figure" }, duration(run.seconds)),
    el("td", null, ...spelled(run.env)),
    el("td", null, ...spelled(run.model)),
    el("td", null, ...spelled(rewards)),
    el("td", { class: "figure" }, known(run.steps) ? `${number(run.step)} of ${number(run.steps)}` : number(run.step)),
    el("td", { class: "figure" }, number(run.reward)),
    el(
      "td",
      { class: "figure" },
      known(run.after) ? `${percent(run.before)} → ${percent(run.after)}` : percent(run.before),
    ),
    state.edit &&
      el(
        "td",
        { class: "changes" },
        el("button", { "aria-label": `Label ${run.name}`, onclick: () => labelDialog(run, ask) }, "Label"),
        el("button", { "aria-label": `Delete ${run.name}`, onclick: () => deleteDialog(run, ask) }, "Delete"),
      ),
  );
};

const head = el("thead"),
  body = el("tbody"),
  count = el("p", { class: "count", role: "status" }),
  live = el("span", { class: "live" }),
  compare = el("button", { onclick: () => location.assign(reportOf([...state.chosen])) });

// Draws the table anew; the control under the keys keeps them.
const drawRuns = () => {
  const focused = document.activeElement?.id || document.activeElement?.getAttribute("aria-label");
  const shown = ordered(state.runs.filter((run) => (state.hidden || !run.hidden) && matches(run)));
  const left = state.runs.filter((run) => run.hidden).length;
  for (const name of state.chosen) if (!state.runs.some((run) => run.name === name)) state.chosen.delete(name);
  head.replaceChildren(headings());
  body.replaceChildren(...shown.map(line));
  const hidden = left ? `, ${number(left)} hidden` : "";
  count.textContent = `${number(shown.length)} of ${counted(state.runs.length, "run")}${hidden}`;
  compare.disabled = state.chosen.size < 2;
  compare.textContent = state.chosen.size < 2 ? "Compare" : `Compare ${state.chosen.size} runs`;
  if (focused && document.activeElement === document.body) {
    const controls = [...document.querySelectorAll("button"), ...document.querySelectorAll("input")];
    const again = controls.find((node) => node.id === focused || node.getAttribute("aria-label") === focused);
    again?.focus({ preventScroll: true });
  }
};

const ask = async () => {
  try {
    const answer = await fetch("runs.json");
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    const told = JSON.stringify(found);
    live.textContent = `as of ${new Date().toTimeString().slice(0, 8)}`;
    live.classList.remove("gone");
    if (told === state.told) return;
    Object.assign(state, found, { told });
    drawRuns();
  } catch (error) {
    live.textContent = error instanceof TypeError ? "grpo watch does not answer" : messageOf(error);
    live.classList.add("gone");
  }
};

const search = el("input", {
  type: "search",
  id: "search",
  oninput: () => {
    state.words = search.value;
    drawRuns();
  },
});
const everything = el("input", {
  type: "checkbox",
  id: "everything",
  onchange: () => {
    state.hidden = everything.checked;
    drawRuns();
  },
});

byId("page").replaceChildren(
  el("nav", { class: "top", "aria-label": "Views" }, el("a", { href: "./", "aria-current": "page" }, "All runs"), live),
  el(
    "main",
    { class: "overview", id: "main" },
    el("h1", null, "Runs"),
    el(
      "div",
      { class: "controls" },
      el("label", { for: "search" }, "Search"),
      search,
      el("label", null, everything, " hidden ones too"),
      compare,
      count,
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
      el("table", { class: "runs list-of-runs" }, head, body),
    ),
  ),
);

const keepAsking = async () => {
  for (;;) {
    if (!document.hidden) await ask();
    await new Promise((done) => setTimeout(done, EVERY));
  }
};

keepAsking();
