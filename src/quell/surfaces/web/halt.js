/* Stop All: the button fills as trees end; below it time, rungs, every session, and at the end the sum receipt. */

import { isLive } from "./board.js";
import { button, el, say, show } from "./dom.js";
import { Ladder } from "./ladder.js";
import { receiptPanel } from "./receipt.js";
import { ALL } from "./stops.js";
import { count, nameOf } from "./words.js";

const LISTED = 4; // processes of the sum receipt that are listed unasked

export class Halt {
  constructor(opener, section, page) {
    this.page = page;
    this.opener = opener;
    this.section = section;
    this.fill = el("span", { class: "fill" });
    this.label = el("span", { class: "label" }, "Stop All");
    opener.replaceChildren(this.fill, this.label);
    opener.addEventListener("click", () => page.stops.press(ALL));
    this.ladder = null;
    this.shown = null;
    this.rows = new Map();
  }

  draw() {
    const stop = this.page.stops.of(ALL);
    this.drawButton(stop);
    if (!stop) return this.clear();
    if (stop.over) return this.result(stop);
    if (!this.ladder) this.begin();
    this.step(stop);
    return undefined;
  }

  drawButton(stop) {
    const going = stop && !stop.over;
    const { done, of, left } = going ? this.page.stops.progress(stop) : { done: 0, of: 0, left: 0 };
    this.opener.dataset.going = going ? "yes" : "no";
    this.fill.style.transform = `scaleX(${done.toFixed(3)})`;
    say(this.label, !going ? "Stop All" : of ? `Stopping ${of - left}/${of}` : "Stopping");
  }

  clear() {
    this.ladder = this.shown = null;
    this.rows.clear();
    this.section.replaceChildren();
    show(this.section, false);
  }

  begin() {
    this.clear();
    const { stops } = this.page;
    this.ladder = new Ladder(
      stops.ladder,
      () => stops.press(ALL, { force: true }),
      () => stops.dismiss(ALL),
    );
    this.list = el("ul", { class: "halting", "aria-label": "Sessions" });
    this.section.append(el("h2", {}, "Stop All"), this.ladder.node, this.list);
    show(this.section, true);
    this.beat();
  }

  beat() {
    const stop = this.page.stops.underway(ALL);
    if (!stop || !this.ladder) return;
    this.step(stop);
    requestAnimationFrame(() => this.beat());
  }

  step(stop) {
    const { stops, board } = this.page;
    const { of, left } = stops.progress(stop);
    const words = of ? `${of - left} of ${count(of, "tree has", "trees have")} ended` : "Stopping everything";
    this.ladder.draw(words, (performance.now() - stop.since) / 1000, stop);
    for (const card of board.running()) stop.sessions.add(card.id);
    for (const id of stop.sessions) {
      const card = board.cards.get(id);
      if (!this.rows.has(id)) {
        const row = el(
          "li",
          {},
          el("span", { class: "dot" }),
          el("span", { class: "what" }, card ? nameOf(card) : id),
          el("span", { class: "state" }),
        );
        this.rows.set(id, row);
        this.list.append(row);
      }
      const row = this.rows.get(id);
      const over = !card || !isLive(card);
      row.dataset.state = !over ? "stopping" : card && !card.confirmed ? "unconfirmed" : "confirmed";
      say(
        row.lastChild,
        over ? row.dataset.state : card.processes.length ? `${count(card.processes.length, "tree")} left` : "stopping",
      );
    }
  }

  result(stop) {
    if (this.shown === stop.over) return;
    this.clear();
    this.shown = stop.over;
    const { stops, notices } = this.page;
    const close = button("Dismiss", () => stops.dismiss(ALL), { class: "small quiet" });
    const head = el("h2", {}, "Stop All");
    if (stop.over.failed) {
      const again = button("Try again", () => (stops.dismiss(ALL), stops.press(ALL)), { class: "small" });
      this.section.append(head, el("p", { class: "wrong", role: "alert" }, stop.fault), el("p", {}, again, " ", close));
      notices.announce(`Stop All failed: ${stop.fault}`);
    } else {
      const { receipt, confirmed } = stop.over;
      const sum = receiptPanel(
        { ...receipt, confirmed },
        stop.sessions.size ? count(stop.sessions.size, "session") : "",
        LISTED,
      );
      this.section.append(el("header", {}, head, close), sum);
      notices.announce(`Stop All: ${stop.over.sentence || (confirmed ? "confirmed" : "unconfirmed")}`);
    }
    show(this.section, true);
  }
}
