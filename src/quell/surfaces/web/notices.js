/* What a person must know: banners for a state that lasts, toasts for what happened once, words for a reader. */

import { button, el } from "./dom.js";

const STAY = 9_000; // milliseconds that a toast stays, if nobody is at it
const MOST = 4;

export class Notices {
  constructor(banners, toasts, announcer) {
    this.banners = banners;
    this.toasts = toasts;
    this.announcer = announcer;
    this.shown = new Map();
  }

  /* A banner with this name; without words there is none. */
  banner(name, words, { tone = "", actions = [] } = {}) {
    const key = `${tone} ${words}`;
    const old = this.shown.get(name);
    if (old?.key === key || (!old && !words)) return;
    old?.node.remove();
    this.shown.delete(name);
    if (!words) return;
    const node = el("div", { class: "banner", data: { tone, name } }, el("p", {}, words), actions);
    this.shown.set(name, { key, node });
    this.banners.append(node);
  }

  toast(words, tone = "wrong") {
    const last = [...this.toasts.children].find((one) => one.dataset.words === words);
    last?.remove();
    const close = button("×", () => node.remove(), { class: "bare", "aria-label": "Dismiss" });
    const node = el("div", { class: "toast", data: { tone, words } }, el("p", {}, words), close);
    this.toasts.append(node);
    while (this.toasts.childElementCount > MOST) this.toasts.firstElementChild.remove();
    const leave = () => (node.matches(":hover, :focus-within") ? setTimeout(leave, 2000) : node.remove());
    setTimeout(leave, STAY);
  }

  /* A fault's own sentence. */
  wrong(fault) {
    this.toast(fault.message);
  }

  announce(words) {
    this.announcer.textContent = words;
  }
}
