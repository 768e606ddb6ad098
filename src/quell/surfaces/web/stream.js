/* One WebSocket for the tab: it comes back by itself, goes on after the last event seen, and misses nothing. */

import { get } from "./api.js";

const FIRST = 250; // milliseconds until the first try to come back
const LONGEST = 5_000; // between two tries
const SILENT = 3_000; // for the server to begin to speak

export class Stream {
  /* `tell(message)` gets snapshot, cards and events; `state(words)` is told of every change of the connection. */
  constructor(tell, state) {
    this.tell = tell;
    this.state = state;
    this.session = "";
    this.cursor = 0;
    this.live = false;
    this.socket = null;
    this.failures = 0;
    this.timer = 0;
    this.bye = "";
    addEventListener("online", () => this.now());
    addEventListener("offline", () => this.lost(this.socket));
    document.addEventListener("visibilitychange", () => !document.hidden && !this.live && this.now());
    addEventListener("pagehide", () => this.socket?.close());
    addEventListener("pageshow", (event) => event.persisted && this.now());
  }

  /* Which conversation is followed, and after which event; none for the board alone. */
  follow(session, after) {
    this.session = session;
    this.cursor = after;
    if (this.live) this.socket.send(this.wish());
  }

  wish() {
    const one = this.session !== "";
    return JSON.stringify({
      board: true,
      events: one,
      sessions: one ? [this.session] : [],
      after: one ? this.cursor : null,
    });
  }

  /* Try at once. */
  now() {
    clearTimeout(this.timer);
    if (!this.live) this.open();
  }

  open() {
    this.drop();
    const address = new URL("/api/v1/ws", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = (this.socket = new WebSocket(address));
    this.timer = setTimeout(() => this.lost(socket), SILENT + 1000 * this.failures);
    socket.onopen = () => socket === this.socket && socket.send(this.wish());
    socket.onmessage = ({ data }) => socket === this.socket && this.heard(JSON.parse(data), socket);
    socket.onclose = () => this.lost(socket);
  }

  heard(message, socket) {
    if (message.type === "cut") return this.lost(socket, FIRST);
    if (message.type === "bye") {
      this.bye = message.reason || "it stops";
      return this.lost(socket);
    }
    if (!this.live) {
      clearTimeout(this.timer);
      this.live = true;
      this.failures = 0;
      this.bye = "";
      this.state({ live: true });
    }
    if (message.type === "events" && this.session === "") return;
    this.tell(message);
  }

  /* What was seen of the conversation that is followed. */
  seen(seq) {
    if (seq > this.cursor) this.cursor = seq;
  }

  lost(socket, pause = 0) {
    if (socket !== this.socket || !socket) return;
    this.drop();
    this.live = false;
    const longest = Math.min(LONGEST, FIRST * 2 ** this.failures);
    const wait = pause || longest / 2 + (Math.random() * longest) / 2; // many tabs do not come back as one
    this.failures += 1;
    this.timer = setTimeout(() => this.open(), wait);
    this.state({ live: false, bye: this.bye, offline: !navigator.onLine });
    if (this.failures > 1) this.ask();
  }

  /* A socket does not say why it was refused; a request does. */
  async ask() {
    try {
      await get("health");
    } catch (fault) {
      if (!this.live && (fault.status === 401 || fault.status === 403)) {
        this.state({ live: false, refused: fault.message });
      }
    }
  }

  drop() {
    clearTimeout(this.timer);
    const old = this.socket;
    this.socket = null;
    if (!old) return;
    old.onopen = old.onmessage = old.onclose = null;
    old.close();
  }
}
