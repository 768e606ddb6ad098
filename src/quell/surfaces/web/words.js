/* Numbers and times as people read them. */

export function seconds(value) {
  if (!(value >= 0)) return "";
  if (value < 0.01) return "<0.01 s";
  if (value < 10) return `${value.toFixed(2)} s`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return span(value);
}

/* A time that goes on: no more digits than change once a second. */
export function span(value) {
  const whole = Math.max(0, Math.floor(value));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/* For what is over in a moment. */
export const tenths = (value) => (value < 60 ? `${(Math.floor(value * 10) / 10).toFixed(1)} s` : span(value));

export function ago(at) {
  const past = Date.now() / 1000 - at;
  if (past < 5) return "now";
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function moment(at) {
  return new Date(at * 1000).toLocaleString();
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function size(characters) {
  if (characters < 10_000) return count(characters, "character");
  return `${Math.round(characters / 1000).toLocaleString("en")} KB`;
}

/* What a person would type, as far as that can be told from an argv. */
export function command(argv) {
  if (argv.length === 3 && argv[1] === "-c" && /(^|\/)(ba|da|z)?sh$/.test(argv[0])) return argv[2];
  if (argv.length === 1) return argv[0];
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

export function folder(path) {
  return path.replace(/^\/(home\/[^/]+|root)(?=\/|$)/, "~");
}

export function nameOf(card) {
  return card.title || card.asked.split("\n")[0].slice(0, 80) || `session ${card.id}`;
}

/* For the end of a sentence: why, if that is known. */
export const because = (reason) => (reason ? `: ${reason}` : "");
