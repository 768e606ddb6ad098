/* The stops that were pressed here, each from the press to its receipt.

A stop is a request of its own and needs no stream: its receipt is in the answer. A press is carried out once the
server is reached, however often the network is cut; where the answer got lost, the receipt is looked up. */

import { get, session, urgent } from "./api.js";
import { isLive } from "./board.js";

export const ALL = "*";
const HELD = 3; // connections that may wait for receipts: a browser has six
const LOOK = 400; // milliseconds between two looks while a stop goes on that we did not get the answer of
const TWICE = 500; // milliseconds: the second half of a double click forces nothing
const RETRY = 1000; // until the server is tried again

export class Stops {
  constructor(board) {
    this.board = board;
    this.all = new Map();
    this.heard = new Set();
    this.holding = [];
    this.watching = false;
    this.looked = -1;
    this.ladder = { ask: 2, term: 5, kill: 2 };
  }

  onchange(work) {
    this.heard.add(work);
    return () => this.heard.delete(work);
  }

  of(key) {
    return this.all.get(key);
  }

  /* Under way here. */
  underway(key) {
    const stop = this.all.get(key);
    return stop !== undefined && !stop.over ? stop : undefined;
  }

  /* When the stop that a session is in began, in milliseconds of the page's clock; none is under way: undefined. */
  since(id) {
    const stop = this.underway(id) ?? (this.underway(ALL)?.sessions.has(id) ? this.underway(ALL) : undefined);
    if (stop) return stop.since;
    const card = this.board.cards.get(id);
    return card?.state === "stopping" ? performance.now() - Math.max(0, Date.now() - card.changed * 1000) : undefined;
  }

  /* What a session's one button does: the first press stops, a later one forces; a double click is one press. */
  button(id) {
    const since = this.since(id);
    if (since === undefined) this.press(id);
    else if (performance.now() - since > TWICE) this.press(id, { force: true, reach: this.of(id)?.reach });
  }

  press(key, { reach = "session", force = false, reason = "" } = {}) {
    let stop = this.underway(key);
    if (stop && !force && !stop.cut) return stop;
    if (!stop) stop = this.begin(key, reach);
    if (force) stop.forced = true;
    stop.wake?.();
    if (!stop.carried || force) this.carry(stop, force, reason || stop.reason);
    return stop;
  }

  begin(key, reach) {
    const cards = key === ALL ? [...this.board.cards.values()] : this.below(key);
    const stop = {
      key,
      reach: key === ALL ? "all" : reach,
      reason: key === ALL ? "Stop All" : reach === "turn" ? "stop of the turn" : "stop",
      since: performance.now(),
      after: this.board.seq,
      trees: new Set(cards.flatMap((card) => card.processes.map((one) => `${card.id} ${one.pid}`))),
      sessions: new Set(cards.filter(isLive).map((card) => card.id)),
      forced: false,
      carried: false,
      cut: "",
      over: null,
      fault: "",
      wake: null,
    };
    this.all.set(key, stop);
    this.changed(stop);
    return stop;
  }

  below(id) {
    const card = this.board.cards.get(id);
    return card ? [card, ...this.board.children(id).flatMap((one) => this.below(one.id))] : [];
  }

  /* A Stop All that somebody else asked for, or that this page did before it was loaded again: admission tells. */
  async watch() {
    const { open, since } = this.board.admission;
    const going = this.board.running().some((card) => card.state === "stopping");
    if (open || this.all.has(ALL) || this.watching || waved() >= since || (this.looked === since && !going)) return;
    this.watching = true;
    this.looked = since;
    const slip = await this.find({ key: ALL, from: since }).catch(() => undefined);
    this.watching = false;
    if (this.all.has(ALL) || (!slip && !going)) return;
    const stop = this.begin(ALL, "all");
    Object.assign(stop, {
      from: since,
      carried: true,
      since: performance.now() - Math.max(0, Date.now() - since * 1000),
    });
    if (slip) this.settle(stop, answerOf(slip));
    else this.await(stop);
  }

  /* What the board tells by itself need not be kept here. */
  tidy() {
    for (const stop of this.all.values()) {
      const card = this.board.cards.get(stop.key);
      if (stop.key !== ALL && stop.over && (!card || card.stopped > stop.after)) this.dismiss(stop.key);
    }
  }

  dismiss(key) {
    const stop = this.all.get(key);
    if (!stop) return;
    stop.over ??= { given: true };
    if (key === ALL) waved(this.board.admission.since);
    this.all.delete(key);
    stop.wake?.();
    this.changed(stop);
  }

  async carry(stop, force, reason) {
    stop.carried = true;
    while (!stop.over) {
      try {
        this.settle(stop, await this.ask(stop, force, reason));
      } catch (fault) {
        if (stop.over) return;
        if (fault.status && fault.status !== 503) return this.fail(stop, fault.message);
        if (!stop.letGo) this.set(stop, { cut: fault.message });
        if (await this.await(stop)) return;
      }
    }
  }

  async ask(stop, force, reason) {
    const path = stop.key === ALL ? "stop" : session(stop.key, "/stop");
    const body = stop.key === ALL ? { reason, force } : { reach: stop.reach, reason, force };
    const abort = new AbortController();
    const held = { stop, abort };
    this.holding.push(held);
    stop.letGo = false;
    this.letGo();
    try {
      return await urgent(path, body, abort.signal);
    } finally {
      this.holding = this.holding.filter((one) => one !== held);
    }
  }

  /* A stop goes on without who asked: when too many answers are waited for, the oldest is looked up instead. */
  letGo() {
    if (this.holding.length <= HELD) return;
    const oldest = this.holding.shift();
    oldest.stop.letGo = true;
    setTimeout(() => oldest.abort.abort(), 150); // by then it has been heard
  }

  /* Until the receipt of a stop whose answer we do not get is listed: true. False: nobody seems to stop it. */
  async await(stop) {
    let idle = 0;
    while (!stop.over) {
      await new Promise((go) => {
        stop.wake = go;
        setTimeout(go, stop.cut ? RETRY : LOOK);
      });
      if (stop.over) return true;
      try {
        const slip = await this.find(stop);
        if (slip) {
          this.settle(stop, answerOf(slip));
          return true;
        }
        if (stop.cut) this.set(stop, { cut: "" });
        idle = this.stopping(stop) ? 0 : idle + 1;
        if (idle < 3) continue;
        if (stop.from === undefined) return false;
        this.dismiss(stop.key);
      } catch (fault) {
        if (fault.status && fault.status !== 503) this.fail(stop, fault.message);
        else this.set(stop, { cut: fault.message });
      }
    }
    return true;
  }

  async find(stop) {
    const { receipts } = await get(`receipts?limit=50`);
    const mine = stop.key === ALL ? "" : stop.key;
    return receipts.find(
      (slip) => slip.session === mine && (stop.from === undefined ? slip.seq > stop.after : slip.at >= stop.from),
    );
  }

  stopping(stop) {
    const cards = stop.key === ALL ? [...this.board.cards.values()] : this.below(stop.key);
    return cards.some((card) => card.state === "stopping");
  }

  settle(stop, answer) {
    if (stop.over) return;
    stop.wake?.();
    this.set(stop, { over: { ...answer, took: (performance.now() - stop.since) / 1000 }, cut: "" });
  }

  fail(stop, words) {
    stop.wake?.();
    this.set(stop, { over: { failed: true }, fault: words });
  }

  set(stop, facts) {
    Object.assign(stop, facts);
    this.changed(stop);
  }

  changed(stop) {
    for (const work of this.heard) work(stop);
  }

  /* How much of it has ended, from 0 to 1, by what the board shows. */
  progress(stop) {
    if (stop.over && !stop.over.failed) return { done: 1, of: stop.trees.size, left: 0 };
    const live = new Set(this.board.processes().map((one) => `${one.session} ${one.pid}`));
    const left = [...stop.trees].filter((one) => live.has(one)).length;
    const busy = [...stop.sessions].filter((id) => isLive(this.board.cards.get(id) ?? { state: "closed" })).length;
    const whole = stop.trees.size + stop.sessions.size;
    return { done: whole ? 1 - (left + busy) / whole : 0, of: stop.trees.size, left };
  }
}

function answerOf(slip) {
  return { confirmed: slip.confirmed, sentence: "", receipt: slip.receipt };
}

/* Up to which closing of admission this tab has put the Stop All away. */
function waved(since) {
  try {
    if (since !== undefined) sessionStorage.setItem("quell.waved", String(since));
    return Number(sessionStorage.getItem("quell.waved") ?? -1);
  } catch {
    return -1;
  }
}
