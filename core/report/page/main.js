// Puts the views together: the address in, a page out; keys and what they do.

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

const NARROW = 900; // pixels, as in the style sheet: below, the list and a rollout stand one after the other

let runs = [];
let current = null;
let browser = null;

let visited = "#rollouts"; // the list as it was left
let early = null; // what is typed before the field of the search is there

const indicator = el("span", { class: "live" }); // how old the page is, where it follows its runs

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
          document.getElementById("main").focus();
        },
      },
      "Skip to the content",
    ),
    [
      ["overview", "Overview"],
      ["rollouts", "Rollouts"],
      ["settings", "Settings"],
    ].map(([name, label]) =>
      el("a", { href: name === "rollouts" ? visited : `#${name}`, "aria-current": name === view ? "page" : null }, label),
    ),
    document.getElementById("version") && [el("a", { href: "./" }, "All runs"), indicator],
    el(
      "button",
      { class: "keys", "aria-label": "Keys", onclick: () => document.getElementById("help").showModal() },
      "?",
    ),
  );

const help = () =>
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

// The list stays while only the open rollout changes, so that nobody loses their place.
class Browser {
  constructor(run) {
    this.run = run;
    this.count = el("p", { class: "count", role: "status" });
    this.top = el("div");
    this.filters = null;
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

  async show(choices) {
    const turn = ++this.turn;
    const at = choices.get("at");
    visited = location.hash;
    this.place = at ? this.run.at(at) : -1;
    this.node.classList.toggle("opened", at !== null);
    const asked = new URLSearchParams(choices);
    for (const name of ["at", "view", "to", "by"]) asked.delete(name);
    this.filters ??= new Filters(runs, this.run, choices, () => this.place);
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
  nothing(at) {
    const part = this.run.held < this.run.recorded ? ", which holds a part of its run's" : "";
    const text = at ? `There is no rollout ${at} in this page${part}.` : "No rollout fits what is chosen.";
    return el("p", { class: "quiet" }, ...spelled(text));
  }

  async filter(choices) {
    const asked = this.asked,
      words = choices.get("q");
    const places = matching(this.run, choices);
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
  async renew(run) {
    const { choices } = here();
    const { node } = this.list,
      top = this.list.places[Math.floor(node.scrollTop / ROW)];
    const marks = [this.place, top].map((place) => (place >= 0 ? reference(this.run, place) : null));
    const beyond = node.scrollTop % ROW;
    this.run = this.list.run = run;
    const [place, first] = marks.map((mark) => (mark ? run.at(mark) : -1));
    this.place = place;
    this.filters = this.filters?.renewed(runs, run, choices) ?? new Filters(runs, run, choices, () => this.place);
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

// What lists and rollouts of a run are drawn with.
const prepared = async (run) => {
  await run.load();
  run.scale ??= scaleOf(run);
  run.judged ??= run.index.verdict?.some((verdict) => verdict > 0) ?? false;
};

const draw = async () => {
  const { view, choices } = here();
  const page = document.getElementById("page");
  const run = runs[Number(choices.get("run") ?? 0)] ?? runs[0];
  if (view === "rollouts" && browser?.run === run && current === browser) return browser.show(choices);
  let next;
  if (view === "rollouts") {
    await ready;
    await prepared(run);
    next = browser = new Browser(run);
  } else next = (view === "settings" ? settings : overview)(runs);
  current?.close();
  current = next;
  page.replaceChildren(navigation(view), next.node, el("p", { id: "said", role: "status" }), help());
  scrollTo(0, 0);
  if (next !== browser) return;
  await browser.show(choices);
  if (early !== null) search(early);
};

// Puts the reader into the search, with what was typed until it was there.
const search = (text) => {
  early = null;
  const input = document.getElementById("search");
  input.focus();
  if (!text) return input.select();
  input.value = text;
  input.dispatchEvent(new Event("input"));
};

// The address of what is shown; the rollout that is open because it is the first is named as well.
const address = () => {
  const named = current === browser && browser?.place >= 0;
  return location.href.split("#")[0] + (named ? linkOf(browser.run, browser.place, pairs(["view", "to"])) : location.hash);
};

const pairs = (names) => Object.fromEntries(names.map((name) => [name, here().choices.get(name)]));

const typing = (node) =>
  node instanceof HTMLInputElement || node instanceof HTMLSelectElement || node instanceof HTMLTextAreaElement;

const KEYS = {
  j: () => browser.list.move(1),
  k: () => browser.list.move(-1),
  g: () =>
    choose({ at: reference(browser.run, browser.place), view: here().choices.get("view") ? null : "group", to: null }),
  d: () => {
    const menu = document.querySelector(".compare select");
    if (menu && menu.options.length > 1)
      choose({ at: reference(browser.run, browser.place), to: menu.value ? null : menu.options[1].value });
  },
  t: () => {
    const menu = document.querySelector(".colouring select");
    if (menu)
      choose({
        at: reference(browser.run, browser.place),
        by: menu.options[(menu.selectedIndex + 1) % menu.options.length].value || null,
        to: null,
      });
  },
  h: () => browser.filters.move(-1),
  l: () => browser.filters.move(1),
  Escape: () => choose({ at: null, view: null, to: null }),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help")?.open) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (early !== null && event.key.length === 1) {
    event.preventDefault();
    early += event.key;
    return;
  }
  const opened = { o: "#overview", r: visited, s: "#settings" }[event.key];
  if (opened) go(opened);
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "c") copy(address(), "Link");
  else if (event.key === "/") {
    event.preventDefault();
    if (current === browser && browser) return search("");
    early = "";
    go(visited);
  } else if (current === browser && browser?.place >= 0 && KEYS[event.key]) KEYS[event.key]();
});

const ready = new Promise((done) => {
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", done);
  else done();
});

const begin = async () => {
  if (!("DecompressionStream" in window)) {
    document.getElementById("page").textContent =
      "This report needs a browser of 2023 or later: Chromium 93, Firefox 113 or a Safari as new.";
    return;
  }
  const summary = await inflateJson("summary");
  runs = summary.runs.map((own, place) => new Run(place, own));
  document.title = `${runs.map((run) => run.name).join(", ")} · grpo report`;
  addEventListener("hashchange", draw);
  await draw();
  await ready;
  await Promise.all(runs.map((run) => run.load()));
};

begin();
