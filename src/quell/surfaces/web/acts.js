/* What a person can do to a session besides stopping it. Every failure is a sentence of the server's. */

import { address, patch, post, remove, session } from "./api.js";
import { askName, askNew, askSure } from "./dialogs.js";
import { el } from "./dom.js";
import { nameOf } from "./words.js";

export function actsOf({ board, notices, go, stops }) {
  const attempt = async (work) => {
    try {
      return await work();
    } catch (fault) {
      notices.wrong(fault);
      return null;
    }
  };
  const arrive = (card) => {
    if (!card) return;
    board.put(card);
    go(card.id);
  };

  return {
    async open(given = {}) {
      if (document.querySelector("dialog[open]")) return;
      arrive(await askNew(given));
    },
    async rename(id) {
      const title = await askName(board.cards.get(id)?.title ?? "");
      if (title !== null) await attempt(() => patch(session(id), { title }));
    },
    async fork(id, upto = null) {
      arrive(await attempt(() => post(session(id, "/fork"), { upto })));
    },
    async restart(id) {
      const done = await attempt(() => post(session(id, "/restart")));
      if (!done) return;
      notices.toast(`Restarted. ${done.sentence}`, done.confirmed ? "fine" : "wrong");
      arrive(done.session);
    },
    export(id, form) {
      const link = el("a", { href: `${address(session(id, "/export"))}?form=${form}`, download: "" });
      document.body.append(link);
      link.click();
      link.remove();
    },
    async delete(id) {
      const name = nameOf(board.cards.get(id));
      const words = `“${name}” is stopped first if it runs, and then removed from the log for good.`;
      const done = await askSure("Delete this session?", words, "Delete", () => remove(session(id)));
      if (!done) return;
      notices.toast(`Deleted. ${done.sentence}`, done.confirmed ? "fine" : "wrong");
      stops.dismiss(id);
      go("");
    },
    async reopen() {
      const admission = await attempt(() => post("admission/reopen"));
      if (admission) board.admit(admission);
    },
  };
}
