/*
 * What all parts of the page use: the data, figures as text, elements, colours, the tooltip, and dark or light.
 *
 * Names come from a recording that nobody vouches for. They are never HTML: every text goes into the page as a text node,
 * and characters that control or reorder text are spelled out when the data is read.
 */
"use strict";

const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const plain = text => text.replace(UNSAFE, c => "\\u{" + c.charCodeAt(0).toString(16) + "}");

/* All texts of the data; long lists that have numbers alone are passed over. */
function clean(value) {
  if (typeof value === "string") return plain(value);
  if (value && typeof value === "object")
    for (const key of Object.keys(value))
      if (!["nodes", "points", "blocks", "values"].includes(key)) value[key] = clean(value[key]);
  return value;
}

const data = clean(JSON.parse(document.getElementById("data").textContent));

/* --- figures as text --- */

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/* "512.00 MiB", as the text report has it. */
function bytes(n) {
  if (n === null || n === undefined) return "?";
  if (Math.abs(n) < 1024) return n + " B";
  let unit = 0;
  for (n /= 1024; Math.abs(n) >= 1023.995 && unit < UNITS.length - 1; unit++) n /= 1024;
  const half = Math.abs(n * 100) % 1 === 0.5; /* in the middle: to the even one, as printf does */
  return (half ? 2 * Math.round(n * 50) / 100 : n).toFixed(2) + " " + UNITS[unit];
}

const count = n => n === null || n === undefined ? "?" : n.toLocaleString("en-US");
const signed = n => (n > 0 ? "+" : n < 0 ? "−" : "") + bytes(Math.abs(n));
const exact = n => count(n) + " bytes";
const percent = (part, whole) => !(whole > 0) ? "" :
    part > 0 && part / whole < 0.0005         ? "< 0.1 %" :
                                                (100 * part / whole).toFixed(part / whole < 0.0995 ? 1 : 0) + " %";

function seconds(s) {
  if (s < 120) return s.toFixed(3) + " s";
  if (s < 7200) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
}

const gpu = device => device < 0 ? "host" : "GPU " + device;
const basename = path => path ? path.replace(/^.*\//, "") : "";

/* --- elements --- */

/* el("td", {class: "n", title: "..."}, "text", child, ...): children that are no elements become text. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (name.startsWith("on"))
      made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  made.append(...children.filter(c => c !== null && c !== undefined));
  return made;
}

const byId = id => document.getElementById(id);

/* A cell or span with bytes: rounded to read, exact for whoever points at it, and for scripts. */
const bytesIn = (tag, n, more) =>
    el(tag, {class: "n", title: n === null ? null : exact(n), "data-bytes": n, ...more}, bytes(n));

/* A choice: options are [value, text]; onchange gets the value. */
function choice(label, id, options, value, onchange) {
  const select = el("select", {id, onchange: e => onchange(e.target.value)},
      ...options.map(([v, text]) => el("option", {value: v}, text)));
  select.value = value;
  return el("label", {class: "choice"}, el("span", null, label), select);
}

function button(text, title, onclick, id) { return el("button", {type: "button", title, onclick, id}, text); }

function check(label, id, value, onchange) {
  const box = el("input", {type: "checkbox", id, onchange: e => onchange(e.target.checked)});
  box.checked = value;
  return el("label", {class: "check"}, box, label);
}

/* Waits until typing has paused. */
function later(run, ms) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), ms);
  };
}

/* --- stacks and places --- */

const text = number => number ? data.strings[number - 1] : null;
const frames = data.frames.map(([lang, label, file, line,
  module]) => ({python: lang === 1, label: text(label) || "?", file: text(file), line, module: text(module)}));
const nodeCount = data.nodes.length / 2;
const nodeParent = new Uint32Array(nodeCount + 1), nodeFrame = new Uint32Array(nodeCount + 1),
      nodeHidden = new Uint8Array(nodeCount + 1);
for (let i = 1; i <= nodeCount; i++) {
  const back = data.nodes[2 * i - 2], frame = data.nodes[2 * i - 1];
  nodeParent[i] = back ? i - back : 0;
  nodeFrame[i] = frame >> 1;
  nodeHidden[i] = frame & 1;
}

/* The frames of a stack, innermost first: {frame, hidden}. */
function stackOf(node) {
  const list = [];
  for (; node; node = nodeParent[node]) list.push({frame: frames[nodeFrame[node]], hidden: nodeHidden[node] === 1});
  return list;
}

function labelOf(site) {
  let node = site.stack;
  if (!node) return "(no stack)";
  for (let i = 0; i < site.user; i++) node = nodeParent[node];
  return frames[nodeFrame[node]].label;
}

/* The visible frames outside of a place's own, outwards, and those inside of it, inwards. */
function aroundOf(site) {
  const list = stackOf(site.stack), outside = [], inside = [];
  list.forEach((frame, i) => {
    if (!frame.hidden && i !== site.user) (i > site.user ? outside : inside).push(frame.frame.label);
  });
  return {outside, inside: inside.reverse()};
}

/* Places that are named alike, by the line that is to blame, are told apart by the nearest caller in which they differ, or else
 * by what is called there. */
function tellApart(list) {
  const around = new Map(list.map(site => [site, aroundOf(site)])), apart = new Map();
  const at = (site, side, step) => around.get(site)[side][step] || "";
  function split(group, side, from) {
    if (group.length < 2) return;
    const most = d3.max(group, site => around.get(site)[side].length);
    const step = d3.range(from, most).find(n => new Set(group.map(site => at(site, side, n))).size > 1);
    if (step === undefined) {
      if (side === "outside") split(group, "inside", 0);
      return;
    }
    for (const {values} of d3.nest().key(site => at(site, side, step)).entries(group)) {
      for (const site of values)
        if (at(site, side, step)) apart.set(site, (side === "outside" ? " < " : " > ") + at(site, side, step));
      split(values, side, step + 1);
    }
  }
  for (const {values} of d3.nest().key(site => site.level + site.kind + site.label).entries(list))
    split(values, "outside", 0);
  for (const [site, by] of apart) site.label += by;
}

const kindName = row => row.level === "tensor" ? "tensors" : row.kind.replace(/_/g, " ");

/* --- colours --- */

const PARTS = [
  "parameters", "gradients", "optimizer", "activations", "inputs", "other", "cached", "application", "library",
  "context", "process", "reserved", "unaccounted", "free"
];
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function hashOf(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
  return (hash ^ hash >>> 15) >>> 0;
}

/* A steady colour for a name; `tone` shades it. */
const colourOf = (name, tone = name) =>
    d3.hsl(hashOf(name) % 360, (dark() ? 0.3 : 0.42) + (hashOf(name) >>> 9 & 7) / 40,
          (dark() ? 0.38 : 0.63) + (hashOf(tone) >>> 13 & 15) / 150)
        .hex();

const layerColours = [
  "parameters", "activations", "optimizer", "gradients", "inputs", "library", "application", "extra", "process",
  "cached", "other", "rest"
];
const otherColours = ["library", "process", "application", "reserved", "cached", "unaccounted"];
const isKnown = name => name === null || name === "unknown" || PARTS.includes(name);
const categoryColour = (name, i) => css("c-" +
    (PARTS.includes(name) ? name :
            isKnown(name) ? "rest" :
                            otherColours[i % 6])); /* i: among those that are not known */

/* What places have in common that have one colour: the name, or the part of it that several of them have. */
const groupOf = site => site.group || site.label;

/* The same place has the same colour everywhere in the page: those that hold most have colours that are told apart best. */
const ranked = new Map();
function rankPlaces(list, weight) {
  for (const site of [...list].sort((a, b) => weight(b) - weight(a)))
    if (!ranked.has(groupOf(site)) && ranked.size < 11) ranked.set(groupOf(site), layerColours[ranked.size]);
}
const placeColour = label => ranked.has(label) ? css("c-" + ranked.get(label)) : colourOf(label);

/* --- dark and light --- */

const system = matchMedia("(prefers-color-scheme: dark)");
const themed = []; /* what to draw again */
const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";

function toggleTheme() {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  showTheme();
}

function nameTheme() {
  byId("theme").textContent = dark() ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours");
}

function showTheme() {
  nameTheme();
  for (const draw of themed) draw();
}

/* --- the tooltip --- */

/* lines: texts, the first one in bold. Near the pointer, inside of the window. */
function showTip(event, lines) {
  const tip = byId("tip");
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => el(i ? "div" : "b", null, line)));
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const y =
      event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, y) + "px";
}

const hideTip = () => {
  byId("tip").hidden = true;
};
