// The configuration of each run, the versions underneath, and what differs between runs.

import { el, spelled } from "./dom.js";
import { swatch } from "./panels.js";
import { choose, here } from "./route.js";

/** @import { Run } from "./data.js" */

/** @param {unknown} value @param {string} name @param {Map<string, string>} found */
const flatten = (value, name, found) => {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) {
    for (const [key, own] of Object.entries(value)) flatten(own, name ? `${name}.${key}` : key, found);
  } else found.set(name, typeof value === "string" ? value : JSON.stringify(value));
  return found;
};

/** @param {string} title @param {Run[]} runs @param {Map<string, string>[]} values @param {boolean} only */
const settingsTable = (title, runs, values, only) => {
  const names = [...new Set(values.flatMap((own) => [...own.keys()]))];
  /** @param {string} name */
  const differs = (name) => new Set(values.map((own) => own.get(name))).size > 1;
  const shown = only ? names.filter(differs) : names;
  return el(
    "section",
    { class: "section" },
    el("h2", null, title),
    shown.length === 0
      ? el("p", { class: "quiet" }, "Nothing differs.")
      : el(
          "div",
          { class: "scroll" },
          el(
            "table",
            { class: runs.length > 1 ? "values several" : "values" },
            runs.length > 1 &&
              el(
                "thead",
                null,
                el(
                  "tr",
                  null,
                  el("th", { scope: "col" }, "Setting"),
                  runs.map((run) => el("th", { scope: "col" }, swatch(run), ...spelled(run.name))),
                ),
              ),
            el(
              "tbody",
              null,
              shown.map((name) =>
                el(
                  "tr",
                  { class: runs.length > 1 && differs(name) ? "differs" : null },
                  el("th", { scope: "row" }, ...spelled(name)),
                  values.map((own) => {
                    const value = own.get(name);
                    return el("td", null, value === undefined ? el("span", { class: "faint" }, "–") : spelled(value));
                  }),
                ),
              ),
            ),
          ),
        ),
  );
};

/** @param {Run[]} runs */
export const settings = (runs) => {
  const only = runs.length > 1 && here().choices.get("all") === null;
  const node = el(
    "main",
    { class: "settings", id: "main" },
    el("h1", null, "Settings"),
    runs.length > 1 &&
      el(
        "p",
        null,
        el(
          "label",
          null,
          el("input", {
            type: "checkbox",
            checked: only,
            onchange: (event) => choose({ all: event.currentTarget.checked ? null : 1 }),
          }),
          " only what differs",
        ),
      ),
    settingsTable(
      "Configuration",
      runs,
      runs.map((run) => flatten(run.config, "", new Map())),
      only,
    ),
    settingsTable(
      "Libraries",
      runs,
      runs.map((run) => flatten(run.versions.libraries ?? {}, "", new Map())),
      only,
    ),
    settingsTable(
      "Plugins",
      runs,
      runs.map((run) => flatten(run.versions.plugins ?? {}, "", new Map())),
      only,
    ),
  );
  return { node, close: () => {} };
};
