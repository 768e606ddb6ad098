/* Requests to the server: an answer, or a Fault with one sentence.

A browser holds six connections to a server at a time. Ordinary requests share two of them, and stops that wait for
their receipts hold three, so that the next stop always finds one free, whatever else is slow. */

const ROOM = 2;
const PREFIX = "/api/v1/";
const queue = [];
let busy = 0;

export class Fault extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /* Nobody answered: whether it was heard is not known. */
  get unheard() {
    return this.status === 0;
  }
}

/* `within` milliseconds: for what is not worth a longer wait. */
export const get = (path, within) => inTurn(() => send("GET", path, undefined, within && AbortSignal.timeout(within)));
export const post = (path, body = {}) => inTurn(() => send("POST", path, body));
export const patch = (path, body) => inTurn(() => send("PATCH", path, body));
export const remove = (path) => inTurn(() => send("DELETE", path));

/* At once, past the queue: for stops. */
export const urgent = (path, body, signal) => send("POST", path, body, signal);

export const session = (id, rest = "") => `sessions/${encodeURIComponent(id)}${rest}`;
export const address = (path) => PREFIX + path;

async function inTurn(work) {
  if (busy < ROOM) busy += 1;
  else await new Promise((go) => queue.push(go)); // and gets the place of the one that ends
  try {
    return await work();
  } finally {
    const next = queue.shift();
    if (next) next();
    else busy -= 1;
  }
}

async function send(method, path, body, signal) {
  const asked = { method, signal, headers: { accept: "application/json" } };
  if (body !== undefined) {
    asked.body = JSON.stringify(body);
    asked.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(PREFIX + path, asked);
  } catch {
    throw new Fault(0, "unreachable", "The server cannot be reached.");
  }
  return read(answer);
}

async function read(answer) {
  let body;
  try {
    body = answer.status === 204 ? {} : await answer.json();
  } catch {
    if (answer.ok) throw new Fault(0, "cut", "The connection was cut in the middle of an answer.");
    body = {};
  }
  if (answer.ok) return body;
  throw new Fault(answer.status, body.code ?? "", body.message || `The server answered ${answer.status}.`);
}
