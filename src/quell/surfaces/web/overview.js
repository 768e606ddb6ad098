/* What needs a person, what runs, and what was stopped, over all sessions; and a first step for who has none. */

import { Approval, wanted } from "./calls.js";
import { button, el, show } from "./dom.js";
import { everySecond } from "./frames.js";
import { Processes } from "./processes.js";
import { Slips } from "./slips.js";
import { nameOf } from "./words.js";

const TRY = "$ sleep 600 & setsid sleep 600";

export class Overview {
  constructor(page) {
    this.page = page;
    this.questions = new Map();
    const name = (id) => {
      const card = page.board.cards.get(id);
      return card ? nameOf(card) : id;
    };
    this.asks = el("ul", { class: "questions" });
    this.asking = el(
      "section",
      { "aria-labelledby": "asking", hidden: true },
      el("h2", { id: "asking" }, "Waiting for you"),
      this.asks,
    );
    this.processes = new Processes("processes", "Nothing runs.", name);
    this.slips = new Slips(
      "receipts?limit=50",
      "Nothing was stopped yet. Each stop leaves a receipt here: what it found, and how that ended.",
      name,
    );
    this.first = this.welcome();
    this.rest = el(
      "div",
      { class: "columns" },
      this.asking,
      el("section", { "aria-labelledby": "live" }, el("h2", { id: "live" }, "Processes"), this.processes.node),
      el("section", { "aria-labelledby": "receipts" }, el("h2", { id: "receipts" }, "Receipts"), this.slips.node),
    );
    this.node = el("section", { class: "overview", "aria-label": "Overview" }, this.first, this.rest);
    this.quit = everySecond(() => this.processes.tick());
    this.slips.load();
  }

  welcome() {
    const open = () => this.page.acts.open({ text: TRY, agent: "scripted" });
    const start = button("Start a session", open, { class: "send" });
    const step = (words, ...more) => el("li", {}, el("p", {}, words, ...more));
    return el(
      "div",
      { class: "welcome" },
      el("h1", {}, "Stop means stop."),
      el(
        "p",
        { class: "lead" },
        "Run agents here, and end them for certain: every process that they started, wherever it went. Try it:",
      ),
      el(
        "ol",
        {},
        step(
          "Start a session that leaves a tree behind, with one process that leaves its group:",
          el("code", { class: "try" }, TRY),
        ),
        step("Press ", el("b", {}, "Stop"), ". The runtime asks, waits, kills, and then ", el("i", {}, "looks"), "."),
        step(
          "Read the receipt: ",
          el("strong", { class: "verdict", data: { confirmed: "yes" } }, "confirmed"),
          " means that the kernel said that nobody is left. Whoever is left is named, with its pid.",
        ),
      ),
      el("p", {}, start),
      el(
        "p",
        { class: "hint" },
        "The offline agent needs no key: a line that begins with $ is run as a command; @scripted asks a sub-agent.",
      ),
    );
  }

  draw() {
    const { board } = this.page;
    const empty = board.known && board.cards.size === 0;
    show(this.first, empty);
    show(this.rest, board.known && !empty);
    this.processes.draw(board.processes());
    this.drawQuestions(board);
    const stopped = [...board.cards.values()].reduce((most, card) => Math.max(most, card.stopped), 0);
    const key = `${stopped} ${board.admission.open}`;
    if (key !== this.key) this.slips.load();
    this.key = key;
  }

  drawQuestions(board) {
    const open = board.approvals();
    const wantedNow = new Set(open.map((one) => one.request));
    for (const [request, node] of this.questions) {
      if (wantedNow.has(request)) continue;
      node.remove();
      this.questions.delete(request);
    }
    for (const one of open) {
      if (this.questions.has(one.request)) continue;
      const card = board.cards.get(one.session);
      const approval = new Approval(one, one.session, this.page.notices);
      const node = el(
        "li",
        { class: "question" },
        el("a", { class: "of", href: `#/s/${encodeURIComponent(one.session)}` }, card ? nameOf(card) : one.session),
        wanted(one.tool, one.arguments),
        approval.node,
      );
      this.questions.set(one.request, node);
      this.asks.append(node);
    }
    show(this.asking, open.length > 0);
  }

  leave() {
    this.quit();
    this.node.remove();
  }
}
