/* What the server shows, as of `seq`: every session as a card, and whether anything new may start. */

const LIVE = new Set(["running", "asking", "stopping"]);

export class Board {
  constructor() {
    this.cards = new Map();
    this.admission = { open: true, reason: "", since: 0 };
    this.seq = 0;
    this.known = false; // whether the server has told anything yet
    this.heard = new Set();
  }

  /* Called with the ids that changed, once the board is as the message says. */
  onchange(work) {
    this.heard.add(work);
    return () => this.heard.delete(work);
  }

  take(message) {
    const before = this.cards;
    let changed;
    if (message.type === "snapshot") {
      changed = new Set([...this.cards.keys()]);
      this.cards = new Map(message.sessions.map((card) => [card.id, card]));
      for (const id of this.cards.keys()) changed.add(id);
      for (const card of this.cards.values()) mark(card, before.get(card.id));
      this.known = true;
    } else {
      changed = new Set(message.removed);
      for (const id of message.removed) this.cards.delete(id);
      for (const card of message.cards) {
        mark(card, this.cards.get(card.id));
        this.cards.set(card.id, card);
        changed.add(card.id);
      }
    }
    this.seq = message.seq;
    this.admission = message.admission ?? this.admission;
    for (const work of this.heard) work(changed);
  }

  /* From an answer, ahead of the stream. */
  admit(admission) {
    this.admission = admission;
    for (const work of this.heard) work(new Set());
  }

  put(card) {
    if (!this.cards.has(card.id)) this.cards.set(card.id, card);
    for (const work of this.heard) work(new Set([card.id]));
  }

  children(id) {
    return [...this.cards.values()].filter((card) => card.parent === id).sort((a, b) => a.opened - b.opened);
  }

  /* Newest first; a sub-agent whose parent is gone stands for itself. */
  roots() {
    const all = [...this.cards.values()].filter((card) => !this.cards.has(card.parent));
    return all.sort((a, b) => b.opened - a.opened || (a.id < b.id ? 1 : -1));
  }

  running() {
    return [...this.cards.values()].filter((card) => LIVE.has(card.state));
  }

  processes() {
    return [...this.cards.values()].flatMap((card) => card.processes.map((one) => ({ ...one, session: card.id })));
  }

  approvals() {
    return [...this.cards.values()].flatMap((card) => card.approvals).sort((a, b) => a.request - b.request);
  }
}

/* `halted`: the turn after which it was stopped last, as far as this page has seen it. */
function mark(card, before) {
  const now = before !== undefined && before.stopped !== card.stopped;
  card.halted = now || card.end === "stopped" ? card.turn : (before?.halted ?? -1);
}

export const isLive = (card) => LIVE.has(card.state);

/* Whether a stop would end or park something. */
export const atWork = (card) => isLive(card) || card.processes.length > 0 || card.queue.some((one) => !one.parked);
