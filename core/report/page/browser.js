// The rollouts of a run: its list with what chooses from it, and the one that is open.

import { reference } from "./data.js";
import { el, number, patternOf, percent, searching, spelled } from "./dom.js";
import { matching, searched } from "./filter.js";
import { sideBySide, through } from "./group.js";
import { Filters, RolloutList, ROW } from "./list.js";
import { detail } from "./rollout.js";
import { choose, here, span } from "./route.js";
import { state } from "./state.js";

/** @import { Run } from "./data.js" */

const NARROW = 900; // pixels, as in the style sheet: below, the list and a rollout stand one after the other

// The list stays while only the open rollout changes, so that nobody loses their place.
export class Browser {
  /** @param {Run} run */
  constructor(run) {
    this.run = run;
    this.count = el("p", { class: "count", role: "status" });
    this.top = el("div");
    /** @type {Filters | null} */
    this.filters = null;
    this.place = -1; // of the rollout that is open
    /** @type {string | null} */
    this.asked = null; // the choices that the list is of
    this.list = new RolloutList(run, (place) =>
      choose({ at: reference(this.run, place), view: null, to: null }, innerWidth >= NARROW),
    );
    this.detail = el("div", { class: "detail", tabindex: "-1", id: "detail" });
    this.node = el(
      "main",
      { class: "browser", id: "main", tabindex: "-1" },
      el("h1", { class: "aside" }, "Rollouts"),
      el("div", { class: "choice" }, this.top, this.count, this.list.node),
      this.detail,
    );
    this.turn = 0;
  }

  /** @param {URLSearchParams} choices */
  async show(choices) {
    const turn = ++this.turn;
    const at = choices.get("at");
    state.visited = location.hash;
    this.place = at ? this.run.at(at) : -1;
    this.node.classList.toggle("opened", at !== null);
    const asked = new URLSearchParams(choices);
    for (const name of ["at", "view", "to", "by"]) asked.delete(name);
    this.filters ??= new Filters(state.runs, this.run, choices, () => this.place);
    if (this.filters.node.parentNode !== this.top) this.top.replaceChildren(this.filters.node);
    this.filters.follow(choices);
    if (String(asked) !== this.asked) {
      this.asked = String(asked);
      searching.pattern = patternOf(choices.get("q"));
      await this.filter(choices);
    } else this.list.mark(this.place);
    if (turn !== this.turn) return;
    const open = at ? this.place : innerWidth >= NARROW ? (this.list.places[0] ?? -1) : -1;
    const back = el("button", { class: "back", onclick: () => choose({ at: null, view: null, to: null }) }, "‹ List");
    if (open < 0) return this.detail.replaceChildren(back, this.nothing(at));
    this.place = open;
    this.list.mark(open);
    const shown =
      choices.get("view") === "group" ? await sideBySide(this.run, open) : await detail(this.run, open, choices);
    if (turn !== this.turn) return;
    this.detail.replaceChildren(back, shown);
    this.detail.scrollTop = 0;
  }

  // Says why no rollout is shown: the link is to one that is not here, or none fits.
  /** @param {string | null} at */
  nothing(at) {
    const part = this.run.held < this.run.recorded ? ", which holds a part of its run's" : "";
    const text = at ? `There is no rollout ${at} in this page${part}.` : "No rollout fits what is chosen.";
    return el("p", { class: "quiet" }, ...spelled(text));
  }

  /** @param {URLSearchParams} choices */
  async filter(choices) {
    const asked = this.asked,
      words = choices.get("q");
    const places = matching(this.run, choices);
    /** @param {number[]} found @param {number} share */
    const tell = (found, share) => {
      this.list.show(found, this.place);
      const rest = share < 1 ? `, ${percent(share)} searched` : "";
      const range = span(choices.get("step"));
      const recorded = range
        ? this.run.recordedBySteps.reduce(
            (sum, [own, count]) => sum + (own >= range[0] && own <= range[1] ? count : 0),
            0,
          )
        : this.run.recorded;
      const held =
        this.run.held < this.run.recorded
          ? `, of which this file holds a part (${number(this.run.held)} of ${number(this.run.recorded)} in all)`
          : "";
      this.count.textContent = `${number(found.length)} of ${number(recorded)} rollouts${rest}${held}`;
    };
    if (!words) return tell(places, 1);
    return searched(this.run, places, words, tell, () => this.asked === asked);
  }

  // Takes in a newer state of the run: what is open stays open, and the row on top of the list stays on top.
  /** @param {Run} run */
  async renew(run) {
    const { choices } = here();
    const { node } = this.list,
      top = this.list.places[Math.floor(node.scrollTop / ROW)];
    const marks = [this.place, top].map((place) => (place >= 0 ? reference(this.run, place) : null));
    const beyond = node.scrollTop % ROW;
    this.run = this.list.run = run;
    const [place, first] = marks.map((mark) => (mark ? run.at(mark) : -1));
    this.place = place;
    this.filters =
      this.filters?.renewed(state.runs, run, choices) ?? new Filters(state.runs, run, choices, () => this.place);
    if (this.filters.node.parentNode !== this.top) this.top.replaceChildren(this.filters.node);
    await this.filter(choices);
    const at = this.list.places.indexOf(first);
    if (at >= 0) node.scrollTop = at * ROW + beyond;
    this.list.draw();
    if (place < 0) return this.show(choices);
    this.detail.querySelector(".through")?.replaceWith(through(run, place) ?? "");
  }

  close() {
    this.list.watcher.disconnect();
  }
}
