// Puts the views together: the address in, a page out.

import { Browser } from "./browser.js";
import { inPage, runsOf } from "./data.js";
import { byId, el } from "./dom.js";
import { help, listen, openHelp, searchEarly } from "./keys.js";
import { overview } from "./overview.js";
import { here } from "./route.js";
import { settings } from "./settings.js";
import { browsing, live, state } from "./state.js";

/** @import { Source } from "./data.js" */

export const indicator = el("span", { class: "live" }); // how old the page is, where it follows its runs

/** @param {string} view */
const navigation = (view) =>
  el(
    "nav",
    { class: "top", "aria-label": "Views" },
    el(
      "a",
      {
        href: "#main",
        class: "skip",
        onclick: (event) => {
          event.preventDefault();
          byId("main").focus();
        },
      },
      "Skip to the content",
    ),
    [
      ["overview", "Overview"],
      ["rollouts", "Rollouts"],
      ["settings", "Settings"],
    ].map(([name, label]) =>
      el(
        "a",
        { href: name === "rollouts" ? state.visited : `#${name}`, "aria-current": name === view ? "page" : null },
        label,
      ),
    ),
    live() && [el("a", { href: "./" }, "All runs"), indicator],
    el("button", { class: "keys", "aria-label": "Keys", onclick: openHelp }, "?"),
  );

export const draw = async () => {
  const { view, choices } = here();
  const page = byId("page");
  const run = state.runs[Number(choices.get("run") ?? 0)] ?? state.runs[0];
  const open = browsing();
  if (view === "rollouts" && open?.run === run) return open.show(choices);
  let next;
  if (view === "rollouts") {
    await ready;
    await run.load();
    next = state.browser = new Browser(run);
  } else next = (view === "settings" ? settings : overview)(state.runs);
  state.view?.close();
  state.view = next;
  page.replaceChildren(navigation(view), next.node, el("p", { id: "said", role: "status" }), help());
  scrollTo(0, 0);
  const browser = browsing();
  if (!browser) return;
  await browser.show(choices);
  searchEarly();
};

/** @type {Promise<void>} */
export const ready = new Promise((done) => {
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", () => done());
  else done();
});

// source: where blocks are: the name of one in, its text out.
/** @param {Source} source */
export const begin = async (source) => {
  listen();
  if (!("DecompressionStream" in window)) {
    byId("page").textContent =
      "This report needs a browser of 2023 or later: Chromium 93, Firefox 113 or a Safari as new.";
    return;
  }
  const runs = await runsOf(inPage, source);
  state.runs = runs;
  document.title = `${runs.map((run) => run.name).join(", ")} · ${live() ? "grpo watch" : "grpo report"}`;
  addEventListener("hashchange", draw);
  await draw();
  await ready;
  await Promise.all(runs.map((run) => run.load()));
};
