/* Where a message is written. It stays until the server has it on disk; a draft is kept for each session. */

import { post, session } from "./api.js";
import { button, el, say, show } from "./dom.js";

const drafts = new Map();

export class Composer {
  constructor(id, notices, { onsent, reopen }) {
    this.id = id;
    this.notices = notices;
    this.onsent = onsent;
    this.sending = false;
    this.box = el("textarea", {
      id: "composer",
      rows: 1,
      "aria-label": "Message",
      placeholder: "Message, or $ command",
      spellcheck: "true",
      enterkeyhint: "send",
      oninput: () => this.changed(),
      onkeydown: (event) => this.key(event),
    });
    this.send = button("Send", () => this.submit(), { class: "send" });
    this.closed = el(
      "p",
      { class: "closed", hidden: true },
      "Admission is closed: nothing new starts. ",
      button("Reopen", reopen, { class: "small" }),
    );
    this.node = el(
      "form",
      { class: "composer", onsubmit: (event) => event.preventDefault() },
      this.closed,
      el("div", { class: "row" }, this.box, this.send),
    );
    this.box.value = drafts.get(id) ?? "";
    this.open = true;
  }

  changed() {
    drafts.set(this.id, this.box.value);
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(240, this.box.scrollHeight + 2)}px`;
    this.draw();
  }

  draw(card, open = this.open) {
    this.open = open;
    if (card) this.busy = card.state === "running" || card.state === "asking";
    say(this.send, this.sending ? "Sending…" : this.busy ? "Queue" : "Send");
    this.send.disabled = this.sending || !this.open || !this.box.value.trim();
    show(this.closed, !this.open);
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.submit();
  }

  async submit() {
    const text = this.box.value;
    if (this.sending || !this.open || !text.trim()) return;
    this.sending = true;
    this.box.readOnly = true;
    this.draw();
    try {
      await post(session(this.id, "/messages"), { text });
      this.box.value = "";
      this.onsent();
    } catch (fault) {
      this.notices.wrong(fault); // the text stays
    }
    this.sending = false;
    this.box.readOnly = false;
    this.changed();
  }
}
