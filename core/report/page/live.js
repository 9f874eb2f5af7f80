// A page that follows its runs: their newest state in, the same view of it out, with the reader where they were.

import { inPage, runsOf } from "./data.js";
import { counted, messageOf } from "./dom.js";
import { begin, draw, indicator, ready } from "./main.js";
import { here } from "./route.js";
import { overtaken, pause, served } from "./served.js";
import { browsing, state } from "./state.js";

const LEAST_WAIT = 2000; // milliseconds between questions
const SHARE = 10; // the wait is so many times as long as the last answer took: large runs are asked about less often

const clock = () => new Date().toTimeString().slice(0, 8);

/** @param {string} text @param {boolean} [gone] */
const tell = (text, gone = false) => {
  indicator.textContent = text;
  indicator.classList.toggle("gone", gone);
};

// Whoever chooses, drags or selects is not disturbed; what is written in a field stays.
const occupied = () =>
  document.activeElement?.matches("select") ||
  document.querySelector("input:active, .plot:active, dialog[open]") !== null ||
  getSelection()?.isCollapsed === false;

const FOCUSED = "a, button, input, select, summary, [tabindex]";
const focusable = () => [.../** @type {NodeListOf<HTMLElement | SVGElement>} */ (document.querySelectorAll(FOCUSED))];

// Draws the view anew, with the same place of the page and the same control under the keys.
const redrawn = async () => {
  const [left, top] = [scrollX, scrollY],
    at = focusable().findIndex((node) => node === document.activeElement);
  await draw();
  focusable()[at]?.focus({ preventScroll: true });
  scrollTo(left, top);
};

/** @param {{ summary: string, version: string }} answer */
const renew = async ({ summary, version }) => {
  let shown = false;
  const source = served(version, () => {
    if (shown) return overtaken();
    throw new Error("the runs went on");
  });
  const next = await runsOf(() => summary, source);
  await Promise.all(next.map((run) => run.load()));
  shown = true;
  state.runs = next;
  const browser = browsing();
  if (browser) await browser.renew(next[browser.run.place]);
  else if (here().view === "overview") await redrawn();
};

const follow = async () => {
  let version = inPage("version"),
    since = clock(),
    wait = LEAST_WAIT,
    waiting = 0;
  tell(`as of ${since}`);
  for (;;) {
    await pause(document.hidden ? LEAST_WAIT : wait);
    if (document.hidden) continue;
    const asked = performance.now();
    try {
      const answer = await fetch(`data.json${location.search}&version=${version}`);
      const found = answer.status === 204 ? null : await answer.json();
      wait = found?.waiting ? 0 : Math.max(LEAST_WAIT, SHARE * (performance.now() - asked));
      if (!answer.ok) throw new Error(found.error);
      since = clock();
      waiting = found?.waiting ?? waiting;
      if (found) {
        while (occupied()) await pause(250);
        await renew(found);
        version = found.version;
      }
      tell(waiting ? `${counted(waiting, "step")} still to be read` : `as of ${since}`);
    } catch (error) {
      const what = error instanceof TypeError ? "grpo watch does not answer" : messageOf(error);
      tell(`${what}; as of ${since}`, true);
    }
  }
};

begin(served(inPage("version")));
ready.then(follow);
