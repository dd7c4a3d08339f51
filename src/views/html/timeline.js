/*
 * The timeline, drawn by dygraphs: live bytes per level and device over the whole run, or what they consist of (categories
 * or places) as far as single events were kept; with steps, phases, moments, marks and failures.
 */

const timeline = {
  graph: null,
  view: "totals",
  device: 0,
  window: null,
  steps: true
};

/* Its legend makes HTML with styles of its own, which the page's policy does not allow, and is not used. */
Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);

const S = us => us / 1e6;

function timelineDevices() {
  return [...new Set(data.timeline.scopes.map(s => s.device))].sort((a, b) => (a < 0) - (b < 0) || a - b);
}

function scopeName(scope) {
  return scope.class === "host" ? "page-locked host memory" :
      scope.class === "managed" ? (scope.level === "tensor" ? "managed tensors" : "managed memory") :
      scope.level === "tensor"  ? "tensors" :
                                  "driver allocations";
}

/* Rows of [time, [low, high, high], ...]: each curve holds its value until its next point. */
function totalsRows(scopes) {
  const times = new Set([0, data.timeline.end_us]);
  for (const scope of scopes)
    for (let i = 0; i < scope.points.length; i += 3) times.add(scope.points[i]);
  const at = scopes.map(() => 0), value = scopes.map(() => [0, 0, 0]);
  return [...times].sort((a, b) => a - b).map(time => [S(time), ...scopes.map((scope, s) => {
    const p = scope.points;
    let low = value[s][2], high = value[s][2], any = false;
    while (at[s] < p.length && p[at[s]] <= time) {
      low = any ? Math.min(low, p[at[s] + 1]) : p[at[s] + 1];
      high = any ? Math.max(high, p[at[s] + 2]) : p[at[s] + 2];
      any = true;
      at[s] += 3;
    }
    if (any) value[s] = [low, high, high];
    return value[s];
  })]);
}

function totalsView(device) {
  const scopes = data.timeline.scopes.filter(s => s.device === device);
  return {
    rows: totalsRows(scopes),
    names: scopes.map(scopeName),
    colours: scopes.map(s => css(s.class !== "device" ? "c-context" :
                                s.level === "tensor"  ? "c-parameters" :
                                                        "c-library")),
    peaks: scopes.map(s => s.peak_bytes),
    options: {customBars: true, stackedGraph: false}
  };
}

/* What a category holds in the accounts that the page shows: they may tell tensors of one place apart. */
const inAccounts = (device, name) => !PARTS.includes(name) ?
    0 :
    d3.max(
        [...data.devices, ...data.then_devices].filter(d => d.index === device), d => d.account.tensors[name] || 0) ||
        0;

function layersView(device, by) {
  const picture = data.timeline.layers.find(l => l.device === device && l.by === by), width = picture.names.length + 1;
  const rows = [],
        peaks = picture.names.map(
            (name, n) => Math.max(picture.highest[n], by === "category" ? inAccounts(device, name) : 0));
  let last = -1;
  for (let i = 0; i < picture.points.length; i += width) {
    const values = picture.points.slice(i + 1, i + width), time = Math.max(picture.points[i], last);
    rows.push([S(time), ...values]);
    last = time;
  }
  if (rows.length && S(data.timeline.end_us) > rows[rows.length - 1][0])
    rows.push([S(data.timeline.end_us), ...rows[rows.length - 1].slice(1)]);
  const used = peaks.map((p, n) => n).filter(n => peaks[n] > 0);
  const libraries = used.filter(n => !isKnown(picture.names[n])).sort((a, b) => peaks[b] - peaks[a]);
  const rank = n => PARTS.indexOf(picture.names[n]);
  if (by === "category") used.sort((a, b) => (rank(a) < 0 ? 99 : rank(a)) < (rank(b) < 0 ? 99 : rank(b)) ? 1 : -1);
  return {
    rows: rows.map(r => [r[0], ...used.map(n => r[n + 1])]),
    names: used.map(n => picture.names[n] === null ? "all others" :
            by === "category"                      ? TENSOR_NAMES[picture.names[n]] || picture.names[n] :
                                                     picture.names[n]),
    colours: used.map(n => by === "category" ? categoryColour(picture.names[n], libraries.indexOf(n)) :
            picture.names[n] === null        ? css("c-rest") :
                                               placeColour(picture.names[n])),
    sites: by === "place" ? used.map(n => picture.sites[n]) : null,
    peaks: used.map(n => peaks[n]),
    options: {customBars: false, stackedGraph: true}
  };
}

/* Names must differ, or dygraphs takes two curves for one. */
function distinct(names) {
  const seen = new Map();
  return names.map(name => {
    const n = (seen.get(name) || 0) + 1;
    seen.set(name, n);
    return n > 1 ? name + " (" + n + ")" : name;
  });
}

/* --- what lies behind and on the curves --- */

const PHASES = {
  backward: "c-activations",
  optimizer: "c-optimizer",
  zero_grad: "c-gradients",
  data: "c-inputs"
};

function drawPhases(canvas, area, graph) {
  const phases = data.timeline.phases;
  phases.forEach(([us, name], i) => {
    if (!PHASES[name]) return;
    const from = graph.toDomXCoord(S(us)),
          to = graph.toDomXCoord(S(i + 1 < phases.length ? phases[i + 1][0] : data.timeline.end_us));
    if (to < area.x || from > area.x + area.w) return;
    canvas.fillStyle = css(PHASES[name]);
    canvas.fillRect(Math.max(from, area.x), area.y + area.h - 4,
        Math.max(0.5, Math.min(to, area.x + area.w) - Math.max(from, area.x)), 4);
  });
}

function drawSteps(canvas, area, graph) {
  const visible = data.timeline.steps.filter(us => {
    const x = graph.toDomXCoord(S(us));
    return x >= area.x && x <= area.x + area.w;
  });
  if (!timeline.steps || !visible.length || area.w / visible.length < 4) return;
  canvas.strokeStyle = css("line");
  canvas.lineWidth = 1;
  for (const us of visible) {
    const x = Math.round(graph.toDomXCoord(S(us))) + 0.5;
    canvas.beginPath();
    canvas.moveTo(x, area.y);
    canvas.lineTo(x, area.y + area.h);
    canvas.stroke();
  }
}

/* Moments, marks and failures: [seconds, name, bad]. */
function marksOfRun() {
  const marks = data.moments.filter(m => m.name !== "end").map(m => [m.time_s, m.name, m.name.startsWith("oom")]);
  for (const [us, name] of data.timeline.marks) marks.push([S(us), name, false]);
  for (const f of data.failures)
    if (f.kind !== "retry" && !marks.some(m => m[2] && Math.abs(m[0] - f.time_s) < 0.02))
      marks.push([f.time_s, f.kind.replace(/_/g, " "), true]);
  return marks.sort((a, b) => a[0] - b[0]);
}

/* Those in sight: [x, name, bad]. */
function marksInSight(area, graph) {
  const marks = marksOfRun().map(([s, name, bad]) => [Math.round(graph.toDomXCoord(s)) + 0.5, name, bad]);
  return marks.filter(mark => mark[0] >= area.x && mark[0] <= area.x + area.w + 1);
}

function drawMarks(canvas, area, graph) {
  for (const [x, , bad] of marksInSight(area, graph)) {
    canvas.strokeStyle = css(bad ? "bad" : "muted");
    canvas.setLineDash(bad ? [] : [4, 3]);
    canvas.lineWidth = bad ? 1.5 : 1;
    canvas.beginPath();
    canvas.moveTo(x, area.y);
    canvas.lineTo(x, area.y + area.h);
    canvas.stroke();
  }
  canvas.setLineDash([]);
}

/* Their names, above the curves and with a rim: other marks' lines and full layers would make them unreadable. */
function nameMarks(canvas, area, graph) {
  const free = [-1e9, -1e9, -1e9];
  canvas.save();
  canvas.font = "11px system-ui, sans-serif";
  canvas.strokeStyle = css("card");
  canvas.lineWidth = 3;
  canvas.lineJoin = "round";
  for (const [x, name, bad] of marksInSight(area, graph)) {
    const label = name.length > 24 ? name.slice(0, 23) + "…" : name, width = canvas.measureText(label).width;
    const left = x + width + 6 > area.x + area.w ? x - width - 4 : x + 4, row = free.findIndex(end => left > end + 4);
    if (row < 0) continue;
    canvas.fillStyle = css(bad ? "bad" : "text");
    canvas.strokeText(label, left, area.y + 11 + 13 * row);
    canvas.fillText(label, left, area.y + 11 + 13 * row);
    free[row] = left + width;
  }
  canvas.restore();
}

/* --- drawing --- */

function legendItems(view, values, time) {
  const items = view.names.map(
      (name, i) => el("span", {class: "key", "data-name": name, "data-bytes": values ? values[i] : view.peaks[i]},
          el("i", {class: "swatch"}),
          view.sites && siteById.has(view.sites[i]) ? placeLink(view.sites[i], name) :
                                                      el("span", {class: "name", title: name}, name),
          el("b", null, bytes(values ? values[i] : view.peaks[i]))));
  items.forEach((item, i) => {
    item.firstChild.style.background = view.colours[i];
  });
  const sum = values && view.options.stackedGraph ? ", together " + bytes(values.reduce((a, b) => a + b, 0)) : "";
  if (view.options.stackedGraph && timeline.view === "category") items.reverse(); /* the lowest layer first */
  byId("timeline-legend")
      .replaceChildren(
          el("span", {class: "when"}, time === undefined ? "highest:" : "at " + seconds(time) + sum + ":"), ...items);
}

function drawTimeline() {
  const box = byId("timeline-chart"), t = timeline;
  const view = t.view === "totals" ? totalsView(t.device) : layersView(t.device, t.view);
  view.names = distinct(view.names);
  if (t.graph) {
    t.graph.destroy();
    t.graph = null;
  }
  if (!view.names.length) {
    box.replaceChildren(
        lacks("peaks") ? "What was allocated here is " + NOT_RECORDED + "." : "Nothing was allocated here.");
    return;
  }
  box.setAttribute("aria-label",
      "Live bytes over time on " + gpu(t.device) + ": " +
          view.names.map((n, i) => n + " at most " + bytes(view.peaks[i])).join(", "));
  const stack = view.options.stackedGraph;
  t.graph = new Dygraph(box, view.rows, {
    ...view.options,
    labels: ["time", ...view.names],
    colors: view.colours,
    stepPlot: true,
    fillGraph: stack,
    fillAlpha: stack ? 0.75 : 0.25,
    strokeWidth: stack ? 0.6 : 1.6,
    legend: "never",
    interactionModel: Dygraph.defaultInteractionModel,
    includeZero: true,
    dateWindow: t.window,
    highlightCircleSize: 3,
    axisLineColor: css("line"),
    gridLineColor: css("line-soft"),
    gridLineWidth: 0.6,
    axisLabelFontSize: 11,
    showRangeSelector: true,
    rangeSelectorHeight: 28,
    rangeSelectorPlotStrokeColor: css("accent"),
    rangeSelectorPlotFillColor: css("accent"),
    rangeSelectorBackgroundStrokeColor: css("line"),
    rangeSelectorForegroundStrokeColor: css("muted"),
    rangeSelectorAlpha: 0.4,
    axes: {
      x: {axisLabelFormatter: s => tick(s), valueFormatter: s => seconds(s), drawGrid: false, labelsKMG2: false},
      y: {
        labelsKMG2: true,
        axisLabelFormatter: n => n < 1024 ? (n === 0 ? "0" : n + " B") : bytes(n).replace(/\.00 | (?=[KMGTPE]iB)/, " "),
        axisLabelWidth: 72
      }
    },
    underlayCallback: (canvas, area, graph) => {
      drawSteps(canvas, area, graph);
      drawPhases(canvas, area, graph);
      drawMarks(canvas, area, graph);
    },
    plugins: [{
      toString: () => "names of marks",
      activate: graph => ({didDrawChart: e => nameMarks(e.drawingContext, graph.getArea(), graph)})
    }],
    highlightCallback: (e, x, points, row) => {
      const values = view.rows[row].slice(1).map(v => Array.isArray(v) ? v[2] : v);
      legendItems(view, values, x);
    },
    unhighlightCallback: () => legendItems(view),
    zoomCallback: (from, to) => {
      t.window = [from, to];
      markWindow();
    },
  });
  legendItems(view);
  markWindow();
}

const tick = s => s >= 7200 ? (s / 3600).toFixed(1) + " h" :
    s >= 300                ? (s / 60).toFixed(1) + " min" :
    s === 0                 ? "0" :
                              +s.toPrecision(6) + " s";

/* Where scripts (and people) can see what is shown. */
function markWindow() {
  const [from, to] = timeline.graph.xAxisRange();
  byId("timeline-chart").dataset.from = from.toFixed(6);
  byId("timeline-chart").dataset.to = to.toFixed(6);
}

function moveTimeline(zoom, shift) {
  if (!timeline.graph) return;
  const [least, most] = timeline.graph.xAxisExtremes(), [from, to] = timeline.graph.xAxisRange();
  const width = Math.min(most - least, Math.max(1e-6, (to - from) * zoom)),
        middle = (from + to) / 2 + shift * (to - from);
  const start = Math.max(least, Math.min(most - width, middle - width / 2));
  timeline.window = [start, start + width];
  timeline.graph.updateOptions({dateWindow: timeline.window});
  markWindow();
}

function resetTimeline() {
  timeline.window = null;
  if (timeline.graph) timeline.graph.resetZoom();
  setTimeout(markWindow, 0);
}

function writeTimeline() {
  const t = data.timeline, devices = timelineDevices(), tools = byId("timeline-tools");
  const layered = new Set(t.layers.map(l => l.device));
  if (!devices.length) {
    byId("timeline-chart").remove();
    byId("timeline-legend").append(lacks("peaks") ? "Curves are " + NOT_RECORDED + "." : "Nothing was allocated.");
    byId("timeline-help").remove();
    return;
  }
  timeline.device = devices[0];
  const draw = () => {
    if (timeline.view !== "totals" && !layered.has(timeline.device)) {
      timeline.view = "totals";
      byId("timeline-view").value = "totals";
    }
    drawTimeline();
  };
  tools.append(choice("Show", "timeline-view",
      [["totals", "totals"], ...(t.layers.length ? [["category", "by category"], ["place", "by place"]] : [])],
      "totals", v => {
        timeline.view = v;
        draw();
      }));
  if (devices.length > 1)
    tools.append(choice("On", "timeline-device", devices.map(d => [d, gpu(d)]), devices[0], v => {
      timeline.device = Number(v);
      draw();
    }));
  if (t.steps.length)
    tools.append(check("steps", "timeline-steps", true, v => {
      timeline.steps = v;
      drawTimeline();
    }));
  tools.append(el("span", {class: "group"}, button("−", "Zoom out (key: -)", () => moveTimeline(2, 0), "timeline-out"),
      button("+", "Zoom in (key: +)", () => moveTimeline(0.5, 0), "timeline-in"),
      button("‹", "Earlier (key: left arrow)", () => moveTimeline(1, -0.25)),
      button("›", "Later (key: right arrow)", () => moveTimeline(1, 0.25)),
      button("All", "The whole run (key: 0)", resetTimeline, "timeline-all")));
  byId("timeline-chart").addEventListener("keydown", e => {
    const move = {"+": [0.5, 0], "=": [0.5, 0], "-": [2, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25]}[e.key];
    if (move)
      moveTimeline(...move);
    else if (e.key === "0" || e.key === "Escape")
      resetTimeline();
    else
      return;
    e.preventDefault();
  });
  if (t.events_lost)
    byId("timeline-note").textContent = "Single events are kept from " + seconds(S(t.exact_from_us)) + " on (" +
        count(t.events_lost) +
        " older ones are not). Before that, curves show the highest and lowest value of each interval, and what they consist of is not known.";
  const telling = t.layers.find(l => l.device === devices[0] && l.by === "category" &&
          ["parameters", "gradients", "optimizer", "activations", "inputs"].some(name => l.names.includes(name)));
  if (telling) timeline.view = byId("timeline-view").value = "category";
  themed.push(drawTimeline);
  draw();
}
