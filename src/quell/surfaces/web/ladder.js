/* A stop under way: its time, and the rungs of the ladder with their deadlines. Force appears once it was pressed. */

import { button, el, say, show } from "./dom.js";
import { receiptPanel } from "./receipt.js";
import { ALL } from "./stops.js";
import { tenths } from "./words.js";

const GUARD = 500; // milliseconds before Force can be pressed: the second half of a double click is not meant

const STEPS = [
  ["ask", "ask tasks"],
  ["term", "SIGTERM"],
  ["kill", "SIGKILL"],
];

export class Ladder {
  constructor(limits, onforce, ongiveup) {
    this.limits = limits;
    this.time = el("span", { class: "time num" });
    this.words = el("span", { class: "words" });
    this.force = button("Force", onforce, { class: "force", title: "Skip the grace: SIGKILL now" });
    this.giveUp = button("Give up", ongiveup, { class: "quiet", hidden: true });
    this.pieces = STEPS.map(([name, word]) => {
      const fill = el("span", { class: "fill" });
      const piece = el(
        "span",
        { class: "rung", data: { rung: name } },
        fill,
        el("span", { class: "name" }, `${word} ≤ ${limits[name]} s`),
      );
      piece.style.flexGrow = String(Math.max(1.4, limits[name]));
      return { name, fill, piece };
    });
    this.node = el(
      "div",
      { class: "ladder" },
      el("p", {}, this.words, this.time, el("span", { class: "push" }), this.giveUp, this.force),
      el(
        "div",
        { class: "rungs", "aria-hidden": "true" },
        this.pieces.map((one) => one.piece),
      ),
    );
  }

  /* `past` in seconds since the press. */
  draw(words, past, { forced = false, cut = "" } = {}) {
    say(this.words, cut ? `${cut} The stop is asked for again as soon as the server is there.` : words);
    say(this.time, tenths(past));
    this.force.disabled = forced || past * 1000 < GUARD;
    say(this.force, forced ? "Forced" : "Force");
    show(this.giveUp, cut !== "");
    let before = 0;
    for (const { name, fill } of this.pieces) {
      const part = forced ? 1 : Math.min(1, Math.max(0, (past - before) / this.limits[name]));
      fill.style.transform = `scaleX(${part.toFixed(3)})`;
      before += this.limits[name];
    }
  }
}

/* The stop of one session, in its view: under way, or its receipt where the conversation does not have it yet. */
export class StopStrip {
  constructor(id, stops, board) {
    this.id = id;
    this.stops = stops;
    this.board = board;
    this.node = el("section", { class: "strip", "aria-label": "Stop", hidden: true });
    this.shown = null;
    this.ladder = null;
  }

  draw() {
    const stop = this.stops.of(this.id);
    const card = this.board.cards.get(this.id);
    if (stop?.over) return this.result(stop);
    const past = stop
      ? (performance.now() - stop.since) / 1000
      : card?.state === "stopping"
        ? Date.now() / 1000 - card.changed
        : -1;
    if (past < 0 || (!stop && this.stops.underway(ALL))) return this.clear();
    if (this.ladder === null) {
      this.clear();
      this.ladder = new Ladder(
        this.stops.ladder,
        () => this.stops.press(this.id, { force: true, reach: stop?.reach }),
        () => this.stops.dismiss(this.id),
      );
      this.node.append(this.ladder.node);
      show(this.node, true);
    }
    this.ladder.draw(stop?.reach === "turn" ? "Stopping the turn" : "Stopping", past, stop);
    return true;
  }

  result(stop) {
    if (this.shown === stop.over) return false;
    this.clear();
    this.shown = stop.over;
    const close = button("Dismiss", () => this.stops.dismiss(this.id), { class: "quiet" });
    if (stop.over.failed) this.node.append(el("p", { class: "wrong", role: "alert" }, stop.fault, " ", close));
    else if (stop.over.receipt)
      this.node.append(
        receiptPanel(stop.over.receipt, stop.reach === "turn" ? "stop of the turn" : "stop of the session"),
        close,
      );
    show(this.node, this.node.childElementCount > 0);
    return false;
  }

  clear() {
    this.shown = this.ladder = null;
    this.node.replaceChildren();
    show(this.node, false);
    return false;
  }
}
