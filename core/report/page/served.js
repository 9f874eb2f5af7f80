// The blocks of a page that follows its runs: a version in, its blocks from the server out, each when it is looked at.

/** @import { Source } from "./data.js" */

/** @type {() => void} */
let wake = () => {}; // ends the wait before the next question

/** @param {number} time @returns {Promise<void>} */
export const pause = (time) =>
  new Promise((done) => {
    setTimeout(done, time);
    wake = done;
  });

// The runs went on: all that is shown will be drawn anew, so nobody waits for this block any more.
/** @returns {Promise<never>} */
export const overtaken = () => {
  wake();
  return new Promise(() => {});
};

/** @param {string} version @param {() => Promise<string>} [gone] @returns {Source} */
export const served =
  (version, gone = overtaken) =>
  async (name) => {
    for (;;) {
      try {
        const answer = await fetch(`block${location.search}&name=${name}&version=${version}`);
        if (answer.ok) return await answer.text();
        break;
      } catch {
        await new Promise((done) => setTimeout(done, 1000));
      }
    }
    return gone();
  };
