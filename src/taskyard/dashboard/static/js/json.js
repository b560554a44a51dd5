/**
 * JSON whose numbers are kept as they are written.
 *
 * Priorities have 64 bits and payloads may hold any number, more than a double can tell apart.
 */

/** A number that JavaScript would round. */
export class Exact {
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }

  toJSON() {
    return typeof JSON.rawJSON === "function" ? JSON.rawJSON(this.source) : Number(this.source);
  }
}

const RISKY = /[0-9.]{16}|[0-9][eE]/;
const TOLD_APART = 17; // decimal digits that a double may need, and never more

function keepExact(_key, value, context) {
  if (typeof value !== "number" || context?.source === undefined) return value;
  return isRounded(value, context.source) ? new Exact(context.source) : value;
}

function isRounded(value, source) {
  if (/^-?\d+$/.test(source)) return !Number.isSafeInteger(value);
  if (!Number.isFinite(value)) return true;
  const digits = source.replace(/[eE].*$/, "").replace(/[-.]/g, "").replace(/^0+|0+$/g, "");
  return digits.length > TOLD_APART || (value === 0 && digits !== "");
}

/** For what people see: jobs with their payloads, priorities. */
export function parseExact(text) {
  return RISKY.test(text) ? JSON.parse(text, keepExact) : JSON.parse(text);
}

/** As a number, for sums and plots. */
export function plain(value) {
  return value instanceof Exact ? Number(value.source) : value;
}
