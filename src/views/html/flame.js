/*
 * The flame graph: all stacks as one tree, each frame as wide as the bytes below it; laid out by d3. The outermost frames are
 * at the top, or, inverted, the innermost. Frames narrower than a pixel are not drawn; zooming in shows them.
 *
 * The page says what is in it: writeFlame({measures: [[key, text], ...], tools: elements, rows: measure => [...]}). A row is
 * {grounds: names outside of the stack, stack, value}, or, added up, {grounds, label, value}. Where two sides are compared,
 * rows have `change` as well, and the colour says who grew (red) and who shrank (blue).
 */

const ROW = 19, DRAWN = 6000;
const flame = {
  measure: null,
  stacks: "merged",
  every: data.all_frames,
  inverted: false,
  search: "",
  root: null,
  zoom: null,
  chosen: null,
  shown: [],
  rows: null,
  differs: false
};

function addTo(parent, key, label, frame) {
  if (!parent.children) parent.children = new Map();
  let node = parent.children.get(key);
  if (!node) parent.children.set(key, node = {label, frame, children: null, self: 0, change: 0});
  return node;
}

/* The frames that are shown of a stack, outermost first (inverted: innermost first). */
function shownFrames(node) {
  const list = [];
  for (; node; node = nodeParent[node]) {
    const frame = frames[nodeFrame[node]];
    if ((nodeHidden[node] && !flame.every) ||
        (flame.stacks !== "merged" && frame.python !== (flame.stacks === "python")))
      continue;
    list.push(nodeFrame[node]);
  }
  return flame.inverted ? list : list.reverse();
}

function buildTree() {
  const top = {label: "all", frame: null, children: null, self: 0, change: 0};
  for (const row of flame.rows(flame.measure)) {
    let node = top;
    for (const name of row.grounds) node = addTo(node, "g" + name, name, null);
    const list = row.label ? [] : shownFrames(row.stack);
    for (const number of list) node = addTo(node, number, frames[number].label, frames[number]);
    if (!list.length) node = addTo(node, row.label ? "others" : "none", row.label || "(no stack)", null);
    node.self += row.value;
    node.change += row.change || 0;
  }
  return top;
}

function layOut() {
  const root = d3.hierarchy(buildTree(), d => d.children && [...d.children.values()])
                   .sum(d => d.self)
                   .sort((a, b) => b.value - a.value || d3.ascending(a.data.label, b.data.label));
  d3.partition()(root);
  let id = 0;
  root.each(node => {
    node.id = id++;
  });
  flame.most = 0;
  root.eachAfter(node => {
    node.change = node.data.change + d3.sum(node.children || [], child => child.change);
    if (node.data.frame) flame.most = Math.max(flame.most, Math.abs(node.change));
  });
  flame.root = flame.zoom = flame.chosen = root;
  findMatches();
}

/* What a search finds counts once, however often it is in one stack. */
function findMatches() {
  const words = flame.search.toLowerCase();
  let sum = 0;
  flame.root.eachBefore(node => {
    const f = node.data.frame;
    node.match = words !== "" &&
        (node.data.label.toLowerCase().includes(words) ||
            !!(f &&
                ((f.file && f.file.toLowerCase().includes(words)) ||
                    (f.module && f.module.toLowerCase().includes(words)))));
    node.covered = (node.parent && node.parent.covered) || node.match;
    if (node.match && !(node.parent && node.parent.covered)) sum += node.value;
  });
  const result = byId("flame-found");
  result.textContent = words === "" ? "" : bytes(sum) + " (" + (percent(sum, flame.root.value) || "0 %") + ")";
  result.dataset.bytes = words === "" ? "" : sum;
}

/* --- drawing --- */

/* Red where it grew, blue where it shrank: the more, the stronger. */
function changeColour(node) {
  const share = flame.most ? Math.sqrt(Math.min(1, Math.abs(node.change) / flame.most)) : 0;
  return d3.interpolateRgb(css("flame-ground"), css(node.change > 0 ? "grew" : "shrank"))(
      node.change ? 0.2 + 0.8 * share : 0);
}

function flameColour(node) {
  const d = node.data;
  if (flame.differs) return changeColour(node);
  if (!d.frame) return css("flame-ground");
  return colourOf(basename(d.frame.python ? d.frame.file : d.frame.module) || d.label, d.label);
}

function visibleNodes(width) {
  const zoom = flame.zoom, scale = width / (zoom.x1 - zoom.x0 || 1), list = [];
  for (const above of zoom.ancestors().slice(1)) list.push({node: above, x: 0, w: width, above: true});
  (function add(node) {
    const w = (node.x1 - node.x0) * scale;
    if (w < 1 || list.length > DRAWN) return;
    list.push({node, x: (node.x0 - zoom.x0) * scale, w, above: false});
    for (const child of node.children || []) add(child);
  })(zoom);
  return list;
}

const flameLines = node => [node.data.label,
    (flame.differs ? signed(node.change) + "; " : "") + bytes(node.value) + ", " +
        percent(node.value, flame.root.value) + " of all" +
        (node.data.self && node.children ? "; " + bytes(node.data.self) + " in itself" : ""),
    exact(node.value),
    node.data.frame &&
        (node.data.frame.file ? node.data.frame.file + (node.data.frame.line ? ":" + node.data.frame.line : "") :
                                node.data.frame.module)];

/* How wide a character is: which font there is for them differs from machine to machine. */
function widthOfChar(svg) {
  const group = svg.append("g").attr("class", "frame"), sample = group.append("text").text("m".repeat(100));
  const width = sample.node().getComputedTextLength() / 100;
  group.remove();
  return width || 6.7; /* not laid out */
}

function drawFlame() {
  const box = byId("flame-chart"), width = Math.max(200, box.clientWidth - 2), list = visibleNodes(width);
  const height = (d3.max(list, d => d.node.depth) + 1) * ROW + 2;
  flame.shown = list;
  d3.select(box).selectAll("p").remove();
  const svg = d3.select(box)
                  .selectAll("svg")
                  .data([0])
                  .join("svg")
                  .attr("width", width)
                  .attr("height", height)
                  .attr("aria-hidden", "true");
  const char = widthOfChar(svg);
  const group = svg.selectAll("g").data(list, d => d.node.id).join(enter => {
    const g = enter.append("g");
    g.append("rect").attr("height", ROW - 1).attr("rx", 2);
    g.append("text").attr("x", 4).attr("y", 13);
    return g;
  });
  group
      .attr("class",
          d => "frame" + (d.above ? " above" : "") +
              (d.node.match                           ? " match" :
                      flame.search && !d.node.covered ? " dim" :
                                                        "") +
              (d.node === flame.chosen ? " chosen" : ""))
      .attr("data-label", d => d.node.data.label)
      .attr("data-bytes", d => d.node.value)
      .attr("data-change", d => flame.differs ? d.node.change : null)
      .attr("transform", d => "translate(" + (d.x + 1) + "," + (d.node.depth * ROW + 1) + ")")
      .on("click",
          d => {
            flame.chosen = d.node;
            zoomFlame(d.node);
          })
      .on("mousemove", d => showTip(d3.event, flameLines(d.node)))
      .on("mouseleave", hideTip);
  group.select("rect").attr("width", d => Math.max(0.5, d.w - 0.7)).attr("fill", d => flameColour(d.node));
  group.select("text").text(d => {
    const room = Math.floor((d.w - 8) / char);
    return room < 3                      ? "" :
        d.node.data.label.length <= room ? d.node.data.label :
                                           d.node.data.label.slice(0, room - 1) + "…";
  });
  if (!flame.root.value)
    d3.select(box).append("p").attr("class", "hint").text("Nothing to show: no bytes of this kind.");
  box.dataset.total = flame.root.value;
  box.dataset.zoom = flame.zoom.data.label;
  writeCrumbs();
  describeChosen();
}

function writeCrumbs() {
  byId("flame-crumbs")
      .replaceChildren(...flame.zoom.ancestors().reverse().slice(-6).flatMap(
          (node, i) => [i ? " › " : "",
              el("button", {type: "button", class: "quiet small", onclick: () => zoomFlame(node)},
                  node.depth ? node.data.label.slice(0, 60) : "all " + bytes(node.value))]));
}

function describeChosen() {
  const lines = flameLines(flame.chosen);
  byId("flame-detail")
      .replaceChildren(el("b", null, lines[0]), " " + lines[1] + (lines[3] ? " · " + lines[3] : "") + " ",
          flame.chosen.data.frame ? button("Places", "The places whose stacks have this frame",
                                        () => filterPlaces(flame.chosen.data.label), "flame-places") :
                                    "");
}

function zoomFlame(node) {
  flame.zoom = node;
  hideTip();
  drawFlame();
}

function redoFlame() {
  layOut();
  drawFlame();
}

/* Arrow keys walk the tree, as in a list of folders. */
function flameKey(e) {
  const c = flame.chosen, brothers = c.parent ? c.parent.children : [c], at = brothers.indexOf(c);
  const next = {
    ArrowDown: () => (c.children || [])[0],
    ArrowUp: () => c.parent,
    ArrowRight: () => brothers[at + 1],
    ArrowLeft: () => brothers[at - 1]
  }[e.key];
  if (next) {
    const to = next();
    if (to) {
      flame.chosen = to;
      if (!flame.shown.some(d => d.node === to)) flame.zoom = to.parent || to;
      drawFlame();
    }
  } else if (e.key === "Enter" || e.key === " ") {
    zoomFlame(c);
  } else if (e.key === "Escape" || e.key === "Backspace") {
    flame.chosen = flame.zoom.parent || flame.root;
    zoomFlame(e.key === "Escape" ? flame.root : flame.chosen);
  } else {
    return;
  }
  e.preventDefault();
}

function writeFlame({measures, tools, rows, differs}) {
  const bar = byId("flame-tools"), set = key => value => {
    flame[key] = value;
    redoFlame();
  };
  if (!measures.length) {
    byId("flame").remove();
    return;
  }
  Object.assign(flame, {rows, differs: !!differs, measure: measures[0][0]});
  const languages = new Set(frames.map(f => f.python));
  const search = el("input", {
    type: "search",
    id: "flame-search",
    placeholder: "function, file or library",
    autocomplete: "off",
    spellcheck: "false",
    oninput: later(
        () => {
          flame.search = search.value.trim();
          findMatches();
          drawFlame();
        },
        120)
  });
  bar.append(choice(differs ? "Width" : "Bytes", "flame-measure", measures, flame.measure, set("measure")), ...tools);
  if (languages.size > 1)
    bar.append(choice("Stacks", "flame-stacks",
        [["merged", "Python and native"], ["python", "Python"], ["native", "native"]], "merged", set("stacks")));
  bar.append(check("inverted", "flame-inverted", false, set("inverted")),
      check("all frames", "flame-every", flame.every, set("every")),
      el("span", {class: "choice grow"}, el("label", {class: "choice grow"}, el("span", null, "Search"), search),
          el("output", {id: "flame-found", class: "found", for: "flame-search"}),
          button("Reset", "Show everything (key: Esc)",
              () => {
      flame.chosen = flame.root;
      zoomFlame(flame.root);
    },
              "flame-reset")));
    byId("flame-chart").addEventListener("keydown", flameKey);
    themed.push(drawFlame);
    addEventListener("resize", later(drawFlame, 150));
    redoFlame();
}
