// The list of rollouts: choices in, rows out. Only the rows in sight exist.

import { FINISHED, VERDICTS } from "./data.js";
import { el, field, marked, meter, number, oneLine, select } from "./dom.js";
import { limit, SORTS } from "./filter.js";
import { choose, go, here, linkTo, span } from "./route.js";

/** @import { Run } from "./data.js" */
/** @typedef {Record<string, string | number>} Attributes of a control */

export const ROW = 58; // pixels, as in the style sheet

const NARROWING = [
  "step",
  "group",
  "prompt",
  "env",
  "finish",
  "verdict",
  "failed",
  "flipped",
  "reward",
  "abstained",
  "min",
  "max",
  "q",
];
const FOLDED = ["group", "env", "finish", "verdict", "failed", "flipped", "reward", "min", "max"];
const TYPING = 250; // milliseconds without a key before the words are looked for

// What chooses the rollouts of the list. Its controls stay while choices change: what is written in one is not lost.
export class Filters {
  // open: tells the place of the rollout that is open.
  /** @param {Run[]} runs @param {Run} run @param {URLSearchParams} choices @param {() => number} open */
  constructor(runs, run, choices, open) {
    this.run = run;
    this.open = open;
    /** @type {Map<string, HTMLInputElement | HTMLSelectElement>} */
    this.controls = new Map();
    /** @type {number | undefined} */
    this.waiting = undefined; // the timer of the search
    /** @param {string} name @param {[string, string][]} pairs */
    const options = (name, pairs) => {
      const node = select(pairs, choices.get(name), (value) => choose({ [name]: value, at: null }));
      this.controls.set(name, node);
      return node;
    };
    /** @type {(names: string[], label?: (name: string) => string) => [string, string][]} */
    const named = (names, label = (name) => name) => names.map((name) => [name, label(name)]);
    /** @type {(pairs: [string, string][]) => [string, string][]} */
    const all = (pairs) => [["", "all"], ...pairs];
    const rewards = named(run.rewards);
    /** @type {[string, string][]} */
    const wrong = [["any", "any failure"], ...named(run.rewards, (name) => `${name} failed`)];
    if (run.finishes.includes("error")) wrong.push(["environment", "environment failed"]);
    const sorts = run.index.new_advantage ? { ...SORTS, "-shift": "most changed by --new" } : SORTS;
    const many = run.rewards.length > 1;
    this.details = el(
      "details",
      { open: FOLDED.some((name) => choices.has(name)) },
      el("summary", null, "Filters"),
      el(
        "div",
        { class: "more-filters" },
        field("Group", this.range("group", 4)),
        run.envs.length > 1 && field("Environment", options("env", all(named(run.envs)))),
        run.finishes.length > 1 &&
          field("Ended by", options("finish", all(named(run.finishes, (name) => FINISHED[name] ?? name)))),
        run.judged && field("Verdict", options("verdict", all(named(VERDICTS.slice(1))))),
        run.index.new_advantage && field("With --new", options("flipped", all([["1", "turned round"]]))),
        field("Failures", options("failed", all(wrong))),
        many && field("Score of", options("reward", [["", "total"], ...rewards])),
        field(many ? "from" : "Reward from", this.bound("min")),
        field(many ? "to" : "Reward to", this.bound("max")),
      ),
    );
    this.clear = el(
      "button",
      {
        class: "clear",
        onclick: () => {
          choose(Object.fromEntries(NARROWING.map((name) => [name, null])));
          /** @type {HTMLElement | null} */ (document.querySelector(".list"))?.focus();
        },
      },
      "Show all",
    );
    this.node = el(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      runs.length > 1 &&
        field(
          "Run",
          select(
            runs.map((own) => [String(own.place), own.name]),
            String(run.place),
            (value) => go(linkTo("rollouts", { run: Number(value) || null, step: here().choices.get("step") })),
          ),
        ),
      this.stepper(),
      field("Search prompts and completions", this.search()),
      field("Sort", options("sort", Object.entries(sorts))),
      this.details,
      this.clear,
    );
    this.follow(choices);
  }

  // Those of a newer state of the run: the same, unless there is another name to choose and nobody writes here.
  /** @param {Run[]} runs @param {Run} run @param {URLSearchParams} choices @returns {Filters} */
  renewed(runs, run, choices) {
    /** @param {Run} run */
    const names = ({ rewards, envs, finishes, judged }) => JSON.stringify([rewards, envs, finishes, judged]);
    if (names(run) === names(this.run) || this.node.contains(document.activeElement)) {
      this.run = run;
      return this;
    }
    const next = new Filters(runs, run, choices, this.open);
    next.details.open = this.details.open;
    return next;
  }

  // Shows other choices; a control that somebody writes in keeps what it has.
  /** @param {URLSearchParams} choices */
  follow(choices) {
    for (const [name, control] of this.controls) {
      if (control !== document.activeElement) control.value = choices.get(name) ?? "";
    }
    this.clear.hidden = !NARROWING.some((name) => choices.has(name));
  }

  // An input whose text becomes a choice, or is refused in words where it is none.
  /**
   * @param {string} name
   * @param {Attributes} props
   * @param {(text: string) => unknown} accepted
   * @param {string} refusal
   */
  written(name, props, accepted, refusal) {
    const take = () => {
      const text = node.value.trim();
      node.setCustomValidity(text && !accepted(text) ? refusal : "");
      if (node.reportValidity()) choose({ [name]: text || null, at: null });
    };
    /** @type {HTMLInputElement} */
    const node = el("input", { type: "text", ...props, onchange: take, oninput: () => node.setCustomValidity("") });
    this.controls.set(name, node);
    return node;
  }

  /** @param {string} name @param {number} size @param {Attributes} [props] */
  range(name, size, props) {
    const refusal = `A ${name} such as 3, or ${name}s as 3-9`;
    return this.written(name, { inputmode: "numeric", size, placeholder: "all", ...props }, span, refusal);
  }

  /** @param {string} name */
  bound(name) {
    return this.written(
      name,
      { inputmode: "decimal", size: 5, placeholder: "–" },
      (text) => limit(text) !== null,
      "A number such as 0.5",
    );
  }

  search() {
    /** @param {boolean} [quiet] */
    const take = (quiet) => {
      clearTimeout(this.waiting);
      if (!node.isConnected) return; // the reader is elsewhere by now
      choose({ q: node.value.trim() || null, at: null }, quiet);
    };
    const node = el("input", {
      type: "search",
      id: "search",
      placeholder: "words  ( / )",
      title: "In prompts, completions, what environments and tools said, and the rows that rewards read",
      onchange: () => take(true),
      oninput: () => {
        clearTimeout(this.waiting);
        this.waiting = setTimeout(take, TYPING, true);
      },
    });
    this.controls.set("q", node);
    return node;
  }

  stepper() {
    return el(
      "span",
      { class: "field stepper" },
      el("span", null, "Step"),
      el(
        "span",
        null,
        el("button", { "aria-label": "Step before", onclick: () => this.move(-1) }, "‹"),
        this.range("step", 7, { "aria-label": "Step, or steps as 1-20" }),
        el("button", { "aria-label": "Step after", onclick: () => this.move(1) }, "›"),
      ),
    );
  }

  // The step beside those that are listed, or beside that of the open rollout where all are.
  /** @param {number} by */
  move(by) {
    const all = this.run.heldSteps,
      place = this.open();
    const open = place >= 0 ? this.run.index.step[place] : -1;
    const [first, last] = span(here().choices.get("step")) ?? [open, open];
    const at = by > 0 ? all.findIndex((step) => step > last) : all.findLastIndex((step) => step < first);
    if (at >= 0) choose({ step: all[at], at: null });
  }
}

/** @type {Record<string, number>} */
const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity };

export class RolloutList {
  // opened: called with the place of the rollout that is chosen.
  /** @param {Run} run @param {(place: number) => void} opened */
  constructor(run, opened) {
    this.run = run;
    this.opened = opened;
    /** @type {number[]} */
    this.places = [];
    this.at = -1; // which of them is open
    this.inner = el("div", { class: "rows", role: "presentation" });
    this.node = el(
      "div",
      {
        class: "list",
        role: "listbox",
        tabindex: "0",
        "aria-label": "Rollouts",
        onscroll: () => this.draw(),
        onkeydown: (event) => {
          const by = MOVES[event.key];
          if (!by) return;
          event.preventDefault();
          this.move(by);
        },
      },
      this.inner,
    );
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.node);
  }

  /** @param {number[]} places @param {number} place */
  show(places, place) {
    this.places = places;
    this.at = places.indexOf(place);
    this.inner.style.height = `${places.length * ROW}px`;
    this.inner.replaceChildren();
    this.reveal();
    this.draw();
  }

  /** @param {number} by */
  move(by) {
    const at = Math.max(0, Math.min(this.places.length - 1, this.at + by));
    if (this.places[at] !== undefined && at !== this.at) this.opened(this.places[at]);
  }

  /** @param {number} place */
  mark(place) {
    this.at = this.places.indexOf(place);
    this.reveal();
    this.draw();
  }

  reveal() {
    if (this.at < 0) return;
    const top = this.at * ROW,
      height = this.node.clientHeight;
    if (top < this.node.scrollTop || top + ROW > this.node.scrollTop + height) {
      this.node.scrollTop = Math.max(0, top - height / 2 + ROW / 2);
    }
  }

  draw() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW) - 4);
    const last = Math.min(this.places.length, Math.ceil((this.node.scrollTop + this.node.clientHeight) / ROW) + 4);
    const rows = [];
    for (let at = first; at < last; at++) rows.push(this.row(at));
    this.inner.replaceChildren(...rows);
    if (this.at >= first && this.at < last) this.node.setAttribute("aria-activedescendant", `row${this.at}`);
    else this.node.removeAttribute("aria-activedescendant");
  }

  /** @param {number} at */
  row(at) {
    const place = this.places[at],
      { index } = this.run;
    const excerpt = el("span", { class: "excerpt", dir: "auto" });
    this.run
      .texts(place)
      .then((texts) => excerpt.replaceChildren(...marked(oneLine(texts.completion, 160) || "(empty)")));
    return el(
      "div",
      {
        class: "row",
        role: "option",
        id: `row${at}`,
        "aria-selected": String(at === this.at),
        "aria-posinset": at + 1,
        "aria-setsize": this.places.length,
        style: { top: `${at * ROW}px` },
        onclick: () => this.opened(place),
      },
      el(
        "span",
        { class: "where" },
        `step ${index.step[place]} · #${index.number[place]} · group ${index.group[place]}`,
      ),
      el(
        "span",
        { class: "tags" },
        index.failed[place] ? el("b", { class: "failed" }, "failed") : null,
        index.verdict[place]
          ? el("b", { class: VERDICTS[index.verdict[place]] }, VERDICTS[index.verdict[place]])
          : null,
        el("span", { class: "tokens-of-row" }, `${number(index.tokens[place])} tokens`),
      ),
      meter(index.reward[place], this.run.scale, number(index.reward[place])),
      index.new_reward && el("span", { class: "renewed" }, `${number(index.new_reward[place])} now`),
      excerpt,
    );
  }
}
