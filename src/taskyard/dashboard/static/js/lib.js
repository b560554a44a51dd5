/**
 * The only place that knows where the vendored libraries are.
 *
 * An import map would be an inline script, which the content security policy forbids.
 */
import { Component, h, render } from "../vendor/preact/preact.mjs";
import {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact/hooks.mjs";
import htm from "../vendor/htm/htm.mjs";

export const html = htm.bind(h);
export {
  Component,
  h,
  render,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
};

let plotting = null;

/** The plotting library, which is larger than the rest: fetched when a page first draws. */
export function loadPlot() {
  plotting ??= import("../vendor/uplot/uPlot.esm.js").then((module) => module.default);
  return plotting;
}
