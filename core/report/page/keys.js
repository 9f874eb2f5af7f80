// Keys and what they do: those of the whole page, and those of the browser of rollouts.

import { reference } from "./data.js";
import { byId, copy, el } from "./dom.js";
import { choose, go, here } from "./route.js";
import { address, browsing, state } from "./state.js";

/** @import { Browser } from "./browser.js" */

const HELP = [
  ["j, k", "the next rollout, the one before"],
  ["/", "search in texts"],
  ["g", "the group side by side, and back"],
  ["d", "the difference to the best of the group, and back"],
  ["h, l", "the step before, the step after"],
  ["t", "colour the tokens: by log-probability, ratio, advantage, and back"],
  ["c", "copy the link of this view"],
  ["o, r, s", "overview, rollouts, settings"],
  ["?", "these keys"],
  ["Esc", "back to the list"],
];

/** @type {string | null} */
let early = null; // what is typed before the field of the search is there

export const help = () =>
  el(
    "dialog",
    { id: "help", "aria-label": "Keys" },
    el("h2", null, "Keys"),
    el(
      "dl",
      null,
      HELP.map(([keys, what]) => [el("dt", null, el("kbd", null, keys)), el("dd", null, what)]),
    ),
    el("form", { method: "dialog" }, el("button", { type: "submit" }, "Close")),
  );

const helpDialog = () => /** @type {HTMLDialogElement | null} */ (document.getElementById("help"));

export const openHelp = () => helpDialog()?.showModal();

/** @param {string} text */
const search = (text) => {
  const input = /** @type {HTMLInputElement} */ (byId("search"));
  input.focus();
  if (!text) return input.select();
  input.value = text;
  input.dispatchEvent(new Event("input"));
};

// Puts the reader into the search that has come into the page, with what was typed until then.
export const searchEarly = () => {
  if (early === null) return;
  const text = early;
  early = null;
  search(text);
};

/** @param {EventTarget | null} node @returns {node is HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} */
const typing = (node) =>
  node instanceof HTMLInputElement || node instanceof HTMLSelectElement || node instanceof HTMLTextAreaElement;

/** @param {string} name */
const menuOf = (name) => /** @type {HTMLSelectElement | null} */ (document.querySelector(`.${name} select`));

/** @type {Record<string, (browser: Browser) => void>} */
const KEYS = {
  j: (browser) => browser.list.move(1),
  k: (browser) => browser.list.move(-1),
  g: (browser) =>
    choose({ at: reference(browser.run, browser.place), view: here().choices.get("view") ? null : "group", to: null }),
  d: (browser) => {
    const menu = menuOf("compare");
    if (menu && menu.options.length > 1)
      choose({ at: reference(browser.run, browser.place), to: menu.value ? null : menu.options[1].value });
  },
  t: (browser) => {
    const menu = menuOf("colouring");
    if (menu)
      choose({
        at: reference(browser.run, browser.place),
        by: menu.options[(menu.selectedIndex + 1) % menu.options.length].value || null,
        to: null,
      });
  },
  h: (browser) => browser.filters?.move(-1),
  l: (browser) => browser.filters?.move(1),
  Escape: () => choose({ at: null, view: null, to: null }),
};

/** @param {KeyboardEvent} event */
const pressed = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || helpDialog()?.open) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (early !== null && event.key.length === 1) {
    event.preventDefault();
    early += event.key;
    return;
  }
  const opened = { o: "#overview", r: state.visited, s: "#settings" }[event.key];
  if (opened) go(opened);
  else if (event.key === "?") openHelp();
  else if (event.key === "c" && state.view) copy(address(), "Link");
  else if (event.key === "/") {
    event.preventDefault();
    if (browsing()) return search("");
    early = "";
    go(state.visited);
  } else {
    const browser = browsing();
    if (browser && browser.place >= 0) KEYS[event.key]?.(browser);
  }
};

export const listen = () => addEventListener("keydown", pressed);
