/* Whether the runtime itself is well, asked now and then while somebody looks: often while something runs. */

import { get } from "./api.js";

const OFTEN = 3_000; // milliseconds
const SELDOM = 30_000;

const WORDS = {
  blocked: "The runtime is held up by one of its handlers. Stops work all the same; messages and everything else wait.",
  broken: "The log cannot be written: everything was stopped, and nothing new is let in.",
  stopping: "The server is stopping.",
};

export class Health {
  constructor(board, notices) {
    this.board = board;
    this.notices = notices;
    this.timer = 0;
    this.seldom = false;
    board.onchange(() => this.seldom && board.running().length > 0 && this.next(true));
    document.addEventListener("visibilitychange", () => !document.hidden && this.look());
  }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    let status = "";
    try {
      ({ status } = await get("health"));
      this.notices.banner("health", WORDS[status] ?? "", { tone: status === "broken" ? "wrong" : "warn" });
    } catch {
      // the stream says that the server is not there
    }
    this.next(status !== "ok" || this.board.running().length > 0);
  }

  next(often) {
    this.seldom = !often;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), often ? OFTEN : SELDOM);
  }
}
