// What the reader looks at: the runs of the page and the view that is open, which keys, links and newer states change.

import { here, linkOf } from "./route.js";

/** @import { Browser } from "./browser.js" */
/** @import { Run } from "./data.js" */

// Whether the page follows its runs: its rollouts are where the server is, and not in a file.
export const live = () => document.getElementById("version") !== null;

export const state = {
  /** @type {Run[]} */
  runs: [],
  /** @type {{ node: HTMLElement, close: () => void } | null} */
  view: null, // what is shown
  /** @type {Browser | null} */
  browser: null, // the newest browser of rollouts, shown or not
  visited: "#rollouts", // the list as it was left
};

// The browser of rollouts, while it is what is shown.
export const browsing = () => (state.browser && state.view === state.browser ? state.browser : null);

// The address of what is shown; the rollout that is open because it is the first is named as well.
export const address = () => {
  const browser = browsing(),
    { choices } = here();
  const kept = { view: choices.get("view"), to: choices.get("to") };
  const own = browser && browser.place >= 0 ? linkOf(browser.run, browser.place, kept) : location.hash;
  return location.href.split("#")[0] + own;
};
