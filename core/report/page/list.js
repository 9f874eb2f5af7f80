// The list of rollouts: choices in, rows out. Only the rows in sight exist.

const ROW = 58; // pixels, as in the style sheet

const field = (label, control) => el("label", { class: "field" }, el("span", null, label), control);

const select = (options, value, onchange) =>
  el(
    "select",
    { onchange: (event) => onchange(event.target.value || null) },
    options.map(([key, label]) => el("option", { value: key, selected: key === (value ?? "") }, ...spelled(label))),
  );

const stepField = (run, choices) => {
  const input = el("input", {
    type: "text",
    inputmode: "numeric",
    size: 7,
    placeholder: "all",
    value: choices.get("step") ?? "",
    "aria-label": "Step, or steps as 1-20",
    onchange: () => choose({ step: span(input.value.trim()) ? input.value.trim() : null, at: null }),
  });
  const move = (by) => {
    const range = span(choices.get("step")),
      all = run.heldSteps;
    const at = range ? all.findIndex((step) => step >= range[0]) + by : by > 0 ? 0 : all.length - 1;
    if (all[at] !== undefined) choose({ step: all[at], at: null });
  };
  return el(
    "span",
    { class: "field stepper" },
    el("span", null, "Step"),
    el(
      "span",
      null,
      el("button", { "aria-label": "Step before", onclick: () => move(-1) }, "‹"),
      input,
      el("button", { "aria-label": "Step after", onclick: () => move(1) }, "›"),
    ),
  );
};

const numberField = (name, label, choices) => {
  const input = el("input", {
    type: "text",
    inputmode: "decimal",
    size: 5,
    value: choices.get(name) ?? "",
    placeholder: "–",
    onchange: () => choose({ [name]: limit(input.value) === null ? null : input.value }),
  });
  return field(label, input);
};

const filters = (runs, run, choices) => {
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "text  ( / )",
    value: choices.get("q") ?? "",
    onchange: () => choose({ q: search.value || null, at: null }),
  });
  const set = (name) => (value) => choose({ [name]: value, at: null });
  const rewards = run.rewards.map((name) => [name, name]);
  const wrong = [
    ["", "all"],
    ["any", "any failure"],
    ...rewards.map(([name]) => [name, `${name} failed`]),
    ...(run.finishes.includes("error") ? [["environment", "environment failed"]] : []),
  ];
  return el(
    "form",
    { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    runs.length > 1 &&
      field(
        "Run",
        select(
          runs.map((own) => [String(own.place), own.name]),
          String(run.place),
          (value) => go(linkTo("rollouts", { run: Number(value) || null, step: choices.get("step") })),
        ),
      ),
    stepField(run, choices),
    field("Search", search),
    field(
      "Sort",
      select(
        Object.entries(run.index.new_advantage ? { ...SORTS, "-shift": "most changed by --new" } : SORTS),
        choices.get("sort"),
        set("sort"),
      ),
    ),
    el(
      "details",
      {
        open: ["group", "env", "finish", "verdict", "failed", "flipped", "reward", "min", "max"].some((name) =>
          choices.has(name),
        ),
      },
      el("summary", null, "Filters"),
      el(
        "div",
        { class: "more-filters" },
        field(
          "Group",
          el("input", {
            type: "text",
            inputmode: "numeric",
            size: 4,
            placeholder: "all",
            value: choices.get("group") ?? "",
            onchange: (event) => choose({ group: span(event.target.value) ? event.target.value : null, at: null }),
          }),
        ),
        run.envs.length > 1 &&
          field(
            "Environment",
            select([["", "all"], ...run.envs.map((name) => [name, name])], choices.get("env"), set("env")),
          ),
        run.finishes.length > 1 &&
          field(
            "Ended by",
            select(
              [["", "all"], ...run.finishes.map((name) => [name, FINISHED[name] ?? name])],
              choices.get("finish"),
              set("finish"),
            ),
          ),
        run.judged &&
          field(
            "Verdict",
            select(
              [
                ["", "all"],
                ["right", "right"],
                ["wrong", "wrong"],
              ],
              choices.get("verdict"),
              set("verdict"),
            ),
          ),
        run.index.new_advantage &&
          field(
            "With --new",
            select(
              [
                ["", "all"],
                ["1", "turned round"],
              ],
              choices.get("flipped"),
              set("flipped"),
            ),
          ),
        field("Failures", select(wrong, choices.get("failed"), set("failed"))),
        run.rewards.length > 1 &&
          field("Score of", select([["", "total"], ...rewards], choices.get("reward"), set("reward"))),
        numberField("min", run.rewards.length > 1 ? "from" : "Reward from", choices),
        numberField("max", run.rewards.length > 1 ? "to" : "Reward to", choices),
      ),
    ),
  );
};

class RolloutList {
  // opened: called with the place of the rollout that is chosen.
  constructor(run, opened) {
    Object.assign(this, { run, opened, places: [], at: -1 });
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
          const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
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

  show(places, place) {
    this.places = places;
    this.at = places.indexOf(place);
    this.inner.style.height = `${places.length * ROW}px`;
    this.inner.replaceChildren();
    this.reveal();
    this.draw();
  }

  move(by) {
    const at = Math.max(0, Math.min(this.places.length - 1, this.at + by));
    if (this.places[at] !== undefined && at !== this.at) this.opened(this.places[at]);
  }

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

  row(at) {
    const place = this.places[at],
      { index } = this.run;
    const excerpt = el("span", { class: "excerpt", dir: "auto" });
    this.run
      .texts(place)
      .then((texts) => excerpt.replaceChildren(...spelled(oneLine(texts.completion, 160) || "(empty)")));
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
        `${number(index.tokens[place])} tokens`,
      ),
      meter(index.reward[place], this.run.scale, number(index.reward[place])),
      index.new_reward && el("span", { class: "renewed" }, `${number(index.new_reward[place])} now`),
      excerpt,
    );
  }
}

// A number with a bar from the lowest to the highest reward of the run.
const meter = (value, [low, high], text) => {
  const share = known(value) && high > low ? (value - low) / (high - low) : 0;
  return el(
    "span",
    { class: "meter" },
    el("i", { style: { width: `${(100 * share).toFixed(1)}%` } }),
    el("span", null, text),
  );
};

const scaleOf = (run) => {
  let low = 0,
    high = 0;
  for (const value of run.index.reward ?? []) {
    if (Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
};
