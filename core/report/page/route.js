// Where a reader is: the fragment of the address in, a view with its choices out. Every view has such a link.

import { reference } from "./data.js";
import { known } from "./dom.js";

/** @import { Run } from "./data.js" */
/**
 * @typedef {Record<string, string | number | null | undefined>} Choices of a view by name; what is empty is left out
 */

const VIEWS = ["overview", "rollouts", "settings"];

export const here = () => {
  const [view, query] = location.hash.slice(1).split("?", 2);
  return { view: VIEWS.includes(view) ? view : "overview", choices: new URLSearchParams(query ?? "") };
};

/** @param {string} view @param {Choices} [choices] */
export const linkTo = (view, choices) => {
  const chosen = Object.entries(choices ?? {}).filter(([, value]) => known(value) && value !== "");
  const query = new URLSearchParams(chosen.map(([name, value]) => [name, String(value)]));
  return `#${view}${String(query) ? "?" + query : ""}`;
};

// The same choices with another rollout open: the list stays, unless it is of another step, group or prompt.
/** @param {Run} run @param {number} place @param {Choices} [changes] */
const opening = (run, place, changes) => {
  const { choices } = here(),
    /** @type {Choices} */
    kept = Object.fromEntries(choices);
  for (const name of /** @type {const} */ (["step", "group", "prompt"])) {
    const range = span(choices.get(name));
    if (range && !(run.index[name][place] >= range[0] && run.index[name][place] <= range[1])) {
      kept[name] = name === "step" ? run.index.step[place] : null;
    }
  }
  return { ...kept, run: run.place || null, view: null, to: null, at: reference(run, place), ...changes };
};

/** @param {Run} run @param {number} place @param {Choices} [changes] */
export const linkOf = (run, place, changes) => linkTo("rollouts", opening(run, place, changes));

/** @param {string} link */
export const go = (link) => {
  location.hash = link;
};

// Changes some choices of this view; `quiet` leaves no entry to go back to.
/** @param {Choices} changes @param {boolean} [quiet] */
export const choose = (changes, quiet) => {
  const { view, choices } = here();
  const link = linkTo(view, { ...Object.fromEntries(choices), ...changes });
  if (link === location.hash) return;
  if (quiet) {
    history.replaceState(null, "", link);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else go(link);
};

/** @param {string | null} text @returns {[number, number] | null} */
export const span = (text) => {
  const found = /^(\d+)(?:-(\d+))?$/.exec(text ?? "");
  return found ? [Number(found[1]), Number(found[2] ?? found[1])] : null;
};
