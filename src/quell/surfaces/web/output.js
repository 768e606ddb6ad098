/* Text that grows, in bounded room: its end is shown while it comes; all of it when somebody asks. */

import { button, el, say, show } from "./dom.js";
import { count, size } from "./words.js";

const LIVE = 6_000; // characters of the end that are shown while it grows
const LINES = 14; // of a finished text that are shown unasked

export class Output {
  constructor() {
    this.text = "";
    this.tail = document.createTextNode("");
    this.whole = false;
    this.ended = false;
    this.more = button("", () => this.open(), { class: "more", hidden: true });
    this.low = true; // whoever reads has not scrolled up
    this.fresh = [];
    this.pre = el(
      "pre",
      { class: "output", tabindex: "0", "aria-label": "Output", onscroll: () => this.scrolled() },
      this.tail,
    );
    this.node = el("div", { class: "outputs", hidden: true }, this.more, this.pre);
  }

  /* Shown by `settle`: many pieces come in one frame. */
  append(text) {
    this.fresh.push(text);
  }

  settle() {
    const text = this.fresh.join("");
    this.fresh = [];
    if (!text || this.ended) return;
    this.text += text;
    show(this.node, true);
    if (this.whole || this.tail.length + text.length <= 2 * LIVE) this.tail.appendData(text);
    else this.cut();
    this.bottom();
  }

  bottom() {
    if (this.low) this.pre.scrollTop = this.pre.scrollHeight;
  }

  scrolled() {
    this.low = this.pre.scrollHeight - this.pre.scrollTop - this.pre.clientHeight < 30;
  }

  cut() {
    const from = this.text.length - LIVE;
    const line = this.text.indexOf("\n", from);
    this.tail.data = this.text.slice(line >= 0 && line - from < 500 ? line + 1 : from);
    say(this.more, `Show all ${size(this.text.length)}`);
    show(this.more, true);
  }

  open() {
    this.whole = true;
    this.tail.data = this.text;
    this.pre.dataset.whole = "yes";
    show(this.more, false);
  }

  /* The result stands for all that came; without one, what came stands. */
  end(result) {
    this.settle();
    this.ended = true;
    if (result) this.text = result;
    show(this.node, this.text !== "");
    if (this.whole) return this.open();
    const lines = this.text.split("\n", LINES + 3);
    if (lines.length <= LINES + 2 && this.text.length <= 2 * LIVE) {
      this.tail.data = this.text;
      return show(this.more, false);
    }
    const short = this.text.length <= LIVE ? this.text : this.text.slice(-LIVE);
    this.tail.data = short.replace(/\n+$/, "").split("\n").slice(-LINES).join("\n");
    say(this.more, `Show all: ${count(this.text.split("\n").length, "line")}, ${size(this.text.length)}`);
    return show(this.more, true);
  }
}
