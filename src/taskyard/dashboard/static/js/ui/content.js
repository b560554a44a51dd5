/** Bytes of a job: payload, result, error. Whatever is in them is only ever text here. */
import { bytes, count, visible } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { complain, say } from "./notice.js";
import { Tree } from "./tree.js";

const LONG_TEXT = 20_000; // characters shown at first
const HEX_ROWS = 64; // of 16 bytes each, shown at a time

/** @param {{content: {size: number, json?: any, text?: string, base64?: string, cut?: boolean}|null, file: string}} props */
export function Content({ content, file, none = "Nothing." }) {
  if (!content || content.size === 0) return html`<p class="faint">${content ? "Empty: 0 bytes." : none}</p>`;
  const kind = kindOf(content);
  return html`<div class="content">
    <div class="content-bar">
      <span class="faint">${KINDS[kind]}, ${bytes(content.size)}${content.cut ? ", only its beginning" : ""}</span>
      ${kind !== "lost" &&
      html`<span class="buttons">
        <button type="button" class="small" onClick=${() => copy(content, kind)}>Copy</button>
        <button type="button" class="small" onClick=${() => download(content, kind, file)}>Download</button>
      </span>`}
    </div>
    <${Body} content=${content} kind=${kind} />
  </div>`;
}

const KINDS = { json: "JSON", text: "Text", base64: "Binary", lost: "No longer on disk" };

function kindOf(content) {
  if (content.json !== undefined) return "json";
  if (content.text !== undefined) return "text";
  return content.base64 !== undefined ? "base64" : "lost";
}

function Body({ content, kind }) {
  if (kind === "json") return html`<${Tree} value=${content.json} />`;
  if (kind === "text") return html`<${Text} text=${content.text} />`;
  if (kind === "base64") return html`<${Hex} base64=${content.base64} />`;
  return html`<p class="faint">Compaction has taken the bytes: of a job that has ended, only the size is kept.</p>`;
}

function Text({ text }) {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > LONG_TEXT;
  return html`<pre class="text" tabindex="0">${visible(cut ? text.slice(0, LONG_TEXT) : text)}</pre>
    ${cut && html`<button type="button" class="more" onClick=${() => setAll(true)}>Show all ${count(text.length)} characters</button>`}`;
}

function Hex({ base64 }) {
  const data = useMemo(() => decode(base64), [base64]);
  const [rows, setRows] = useState(HEX_ROWS);
  const lines = [];
  for (let row = 0; row < rows && row * 16 < data.length; row += 1) lines.push(hexLine(data, row * 16));
  const left = data.length - rows * 16;
  return html`<pre class="hex" tabindex="0">${lines.join("\n")}</pre>
    ${left > 0 && html`<button type="button" class="more" onClick=${() => setRows(rows * 4)}>${bytes(left)} more</button>`}`;
}

function hexLine(data, at) {
  const part = data.slice(at, at + 16);
  const pairs = Array.from(part, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const signs = Array.from(part, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
  return `${at.toString(16).padStart(8, "0")}  ${pairs.padEnd(48)} ${signs}`;
}

function decode(base64) {
  return Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
}

function asText(content, kind) {
  if (kind === "json") return JSON.stringify(content.json, null, 2);
  return kind === "text" ? content.text : content.base64;
}

async function copy(content, kind) {
  try {
    await navigator.clipboard.writeText(asText(content, kind));
    say(kind === "base64" ? "Copied as base64." : "Copied.");
  } catch {
    complain("The browser does not let this page use the clipboard.");
  }
}

function download(content, kind, file) {
  const data = kind === "base64" ? decode(content.base64) : asText(content, kind);
  const ending = { json: "json", text: "txt", base64: "bin" }[kind];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  link.download = `${file}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
