// The difference of two texts: two strings in, pieces that stayed, went or came out. Myers' O(ND) over words.

/** @typedef {"same" | "gone" | "new"} Kind */
/** @typedef {[Kind, string[]]} Piece */

const WORD = /\s+|[\p{L}\p{N}_]+|[^\s]/gu;
const FAR = 1500; // words that differ, beyond which the two are called different as a whole

/** @param {string} before @param {string} after */
export const difference = (before, after) => {
  const one = before.match(WORD) ?? [],
    two = after.match(WORD) ?? [];
  let head = 0,
    tail = 0;
  while (head < one.length && head < two.length && one[head] === two[head]) head++;
  while (tail < one.length - head && tail < two.length - head && one.at(-1 - tail) === two.at(-1 - tail)) tail++;
  const middle = steps(one.slice(head, one.length - tail), two.slice(head, two.length - tail));
  /** @type {Piece[]} */
  const pieces = [["same", one.slice(0, head)], ...middle, ["same", one.slice(one.length - tail)]];
  /** @type {[Kind, string][]} */
  const joined = [];
  for (const [kind, words] of pieces) {
    if (!words.length) continue;
    const last = joined.at(-1);
    if (last && last[0] === kind) last[1] += words.join("");
    else joined.push([kind, words.join("")]);
  }
  return joined;
};

// The word of the first text up to which an edit on this line came; the lines beside one that is asked for have theirs.
/** @param {Map<number, number>} reached @param {number} line */
const furthest = (reached, line) => reached.get(line) ?? 0;

/** @param {string[]} one @param {string[]} two @returns {Piece[]} */
const steps = (one, two) => {
  const most = Math.min(one.length + two.length, FAR);
  const reached = new Map([[1, 0]]);
  const trace = [];
  for (let far = 0; far <= most; far++) {
    trace.push(new Map(reached));
    for (let line = -far; line <= far; line += 2) {
      const down = line === -far || (line !== far && furthest(reached, line - 1) < furthest(reached, line + 1));
      let x = down ? furthest(reached, line + 1) : furthest(reached, line - 1) + 1;
      while (x < one.length && x - line < two.length && one[x] === two[x - line]) x++;
      reached.set(line, x);
      if (x >= one.length && x - line >= two.length) return walked(trace, one, two);
    }
  }
  return [
    ["gone", one],
    ["new", two],
  ];
};

/** @param {Map<number, number>[]} trace @param {string[]} one @param {string[]} two */
const walked = (trace, one, two) => {
  /** @type {Piece[]} */
  const found = [];
  let x = one.length,
    y = two.length;
  for (let far = trace.length - 1; far >= 0; far--) {
    const reached = trace[far],
      line = x - y;
    const down = line === -far || (line !== far && furthest(reached, line - 1) < furthest(reached, line + 1));
    const from = down ? line + 1 : line - 1;
    const fromX = far === 0 ? 0 : furthest(reached, from),
      fromY = fromX - from;
    const startX = far === 0 ? 0 : down ? fromX : fromX + 1;
    if (x > startX) found.push(["same", one.slice(startX, x)]);
    if (far > 0) found.push(down ? ["new", two.slice(fromY, fromY + 1)] : ["gone", one.slice(fromX, fromX + 1)]);
    x = fromX;
    y = fromY;
  }
  return found.reverse();
};
