/** Figures, durations and times as people read them. Pure functions. */
import { Exact, plain } from "./json.js";

const grouped = new Intl.NumberFormat("en-US");
const oneDigit = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const twoDigits = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
const NONE = "–";

/** 1234567 as 1,234,567. */
export function count(value) {
  if (value === null || value === undefined) return NONE;
  if (value instanceof Exact) return value.source.replace(/\B(?=(\d{3})+$)/g, ",");
  return grouped.format(value);
}

/** 1234567 as 1.2M, for where there is no room. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size < 10_000) return size < 10 && !Number.isInteger(value) ? oneDigit.format(value) : grouped.format(Math.round(value));
  if (size < 1e6) return `${oneDigit.format(value / 1e3)}k`;
  if (size < 1e9) return `${oneDigit.format(value / 1e6)}M`;
  return `${oneDigit.format(value / 1e9)}G`;
}

/** A figure a second. */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  if (value < 0.05) return "<0.1";
  if (value < 100) return twoDigits.format(value);
  return grouped.format(Math.round(value));
}

/** Bytes in units of 1024. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = plain(value);
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? grouped.format(size) : twoDigits.format(size)} ${units[unit]}`;
}

/** Seconds as 340 µs, 12 ms, 1.5 s, 3 min 20 s, 2 h 5 min, 4 d 3 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return NONE;
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? "−" : "";
  if (size === 0) return "0 s";
  if (size < 0.001) return `${sign}${Math.round(size * 1e6)} µs`;
  if (size < 0.0995) return `${sign}${oneDigit.format(size * 1000)} ms`;
  if (size < 0.9995) return `${sign}${Math.round(size * 1000)} ms`;
  if (size < 59.95) return `${sign}${twoDigits.format(size)} s`;
  const whole = Math.round(size);
  if (whole < 3600) return sign + pair(whole, 60, "min", 1, "s");
  if (whole < 86_400) return sign + pair(whole, 3600, "h", 60, "min");
  return sign + pair(whole, 86_400, "d", 3600, "h");
}

/** In one unit, for where there is no room: 83.2 s, 4.2 min, 3.4 h, 5.1 d. */
export function brief(seconds) {
  if (seconds === null || seconds === undefined || seconds < 99.95) return duration99(seconds);
  if (seconds < 5970) return `${twoDigits.format(seconds / 60)} min`;
  if (seconds < 172_000) return `${twoDigits.format(seconds / 3600)} h`;
  return `${twoDigits.format(seconds / 86_400)} d`;
}

function duration99(seconds) {
  return seconds >= 59.95 ? `${twoDigits.format(seconds)} s` : duration(seconds);
}

/** The same without ".0", for settings: "every 5 s". */
export function span(seconds) {
  return duration(seconds).replace(".0 ", " ");
}

function pair(whole, unit, name, lesser, lesserName) {
  const first = Math.floor(whole / unit);
  const second = Math.floor((whole % unit) / lesser);
  return second ? `${first} ${name} ${second} ${lesserName}` : `${first} ${name}`;
}

/** "in 3 min", "12 s ago", "now". */
export function relative(time, now) {
  const seconds = (Date.parse(time) - now) / 1000;
  if (Number.isNaN(seconds)) return NONE;
  if (Math.abs(seconds) < 1) return "now";
  const rough = Math.abs(seconds) < 60 ? `${Math.floor(Math.abs(seconds))} s` : duration(Math.abs(seconds));
  return seconds < 0 ? `${rough} ago` : `in ${rough}`;
}

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** A time in the reader's zone, with the date unless it is today. */
export function moment(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return NONE;
  const sameDay = new Date().toDateString() === date.toDateString();
  return sameDay ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`;
}

/** With milliseconds, for timelines. */
export function exactMoment(time) {
  const digits = /\.(\d{3})/.exec(time);
  return `${clock.format(new Date(time))}${digits ? `.${digits[1]}` : ""}`;
}

/** "1 job", "2 jobs". */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${plain(number) === 1 ? one : many}`;
}

/** Control and direction characters made visible, so that text cannot disguise itself. */
export function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (sign) =>
      sign === "\r"
        ? "\u240d"
        : sign < " "
          ? String.fromCharCode(0x2400 + sign.charCodeAt(0))
          : `‹U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`,
  );
}

/** The first line, and not too much of it. */
export function glance(text, most = 160) {
  const line = text.trimStart().split("\n", 1)[0];
  return visible(line.length > most ? `${line.slice(0, most)}…` : line);
}
