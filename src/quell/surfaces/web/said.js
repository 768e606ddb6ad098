/* What the user said, with its pictures. */

import { el } from "./dom.js";
import { moment } from "./words.js";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export function said(message) {
  return el(
    "div",
    { class: "said", title: moment(message.at) },
    el("span", { class: "who" }, "You"),
    el("p", {}, message.text ?? ""),
    ...(message.images ?? [])
      .filter((one) => PICTURES.includes(one.media))
      .map((one) => el("img", { src: `data:${one.media};base64,${one.data}`, alt: "picture" })),
  );
}
