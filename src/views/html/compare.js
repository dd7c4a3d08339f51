/*
 * All ranks of a job side by side: a bar for each, what it consists of, the median across, and below who is odd. Readable from
 * two ranks to a thousand: then a bar is a pixel wide, and those that are odd a little more.
 */

const LAYERS = 9;
const CATEGORY_NAMES = ["parameters", "gradients", "optimizer", "activations", "inputs", "other"];
const compare = {
  show: "peak_bytes",
  order: "rank",
  chosen: null,
  at: 0,
  list: [],
  pitch: 1
};

const keyOf = show => show === "categories" ? "table_bytes" : show;

/* [{name, css, values: by rank}], the lowest first. */
function layersOf(show) {
  const key = keyOf(show), layers = [];
  const rest = ranks.map(r => r[key]), add = (name, colour, values) => {
    values.forEach((v, i) => {
      rest[i] -= v;
    });
    if (values.some(v => v > 0)) layers.push({name, colour, values});
  };
  if (show === "categories") {
    for (const name of CATEGORY_NAMES)
      add(name === "other" ? "other tensors" : name, css("c-" + name),
          ranks.map(r => r.breakdown ? r.breakdown.categories[name] : 0));
    add("cached but unused", css("c-cached"), ranks.map(r => r.breakdown ? r.breakdown.cached : 0));
  } else {
    const by = key === "peak_bytes" ? "at_peak_bytes" : "live_bytes", all = ranks.map((r, i) => amountsOf(i));
    const top = [...sites].sort((a, b) => b[by] - a[by]).slice(0, LAYERS).filter(site => site[by] > 0);
    const of = (site, a) => a && a.values.has(site.id) ? a.values.get(site.id)[sumKey[by]] : 0;
    const sum = a => a ? d3.sum([...a.values.values(), a.others], v => v[sumKey[by]]) : 0;
    top.forEach((site, i) => add(site.label, placeColour(site.label), all.map(a => of(site, a))));
    add("all other places", css("c-rest"), all.map(a => sum(a) - d3.sum(top, site => of(site, a))));
  }
  layers.push(show === "categories" ?
          {
            name: "not tensors",
            colour: css("c-library"),
            values: ranks.map(r => r.breakdown ? r.breakdown.not_tensors : r.table_bytes)
          } :
          {name: "in no place: cached, or small", colour: css("c-free"), values: rest.map(v => Math.max(0, v))});
  return layers.filter(layer => layer.values.some(v => v > 0));
}

const compareKey = () => keyOf(compare.show);

/* Is the figure a rank's peak? Of its categories it may be what was live when it ended. */
const isPeak = (r, key) =>
    key === "peak_bytes" || key === "table_bytes" && (!r.breakdown || r.breakdown.moment === "peak");

function orderedRanks() {
  const key = compareKey();
  return [...ranks].sort(
      (a, b) => (compare.order === "size" ? b[key] - a[key] : 0) || a.place - b.place || a.id - b.id);
}

/* Powers of two, as bytes are counted. */
function byteTicks(most) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(most / 5)));
  return d3.range(0, Math.floor(most / step) + 1).map(n => n * step);
}

const BAR = 190, AXIS = 74, HIGH = 250, FOOT = 34;

function drawCompare() {
  const box = byId("compare-chart"), list = compare.list = orderedRanks(), key = compareKey();
  const width = Math.max(box.clientWidth - 2, AXIS + list.length + 8), room = width - AXIS - 8;
  const pitch = compare.pitch = room / list.length, gap = pitch > 3 ? Math.min(8, pitch * 0.18) : 0;
  const most = Math.max(d3.max(list, r => r[key]) || 0, medians[key], 1),
        y = n => HIGH - n / (most * 1.06) * (HIGH - 14);
  const layers = compare.layers = layersOf(compare.show), low = list.map(() => 0);
  const svg = d3.select(box)
                  .html("")
                  .append("svg")
                  .attr("width", width)
                  .attr("height", HIGH + FOOT)
                  .attr("aria-hidden", "true");
  for (const n of byteTicks(most)) {
    svg.append("line").attr("class", "grid").attr("x1", AXIS).attr("x2", width - 8).attr("y1", y(n)).attr("y2", y(n));
    svg.append("text")
        .attr("class", "tick")
        .attr("x", AXIS - 6)
        .attr("y", y(n) + 4)
        .attr("text-anchor", "end")
        .text(bytes(n).replace(/\.00 /, " "));
  }
  const drawn = layers.map(layer => list.map((r, i) => {
    const v = Math.min(layer.values[r.id], Math.max(0, r[key] - low[i])), from = low[i];
    low[i] += v;
    const wide = isOdd(r) ? Math.max(3, Math.min(BAR, pitch - gap)) : Math.min(BAR, pitch - gap),
          left = AXIS + (i + 0.5) * pitch - wide / 2;
    return v > 0 ? "M" + left.toFixed(2) + " " + y(from).toFixed(2) + "h" + wide.toFixed(2) + "V" +
            y(low[i]).toFixed(2) + "h-" + wide.toFixed(2) + "z" :
                   "";
  }));
  for (const odd of [false, true]) /* these last: among a thousand they are wider than their place, to be seen */
    layers.forEach((layer, n) => svg.append("path")
                                     .attr("d", drawn[n].filter((d, i) => isOdd(list[i]) === odd).join(""))
                                     .attr("fill", layer.colour)
                                     .attr("data-layer", layer.name));
  drawRankMarks(svg, list, pitch, y(medians[key]), width);
  svg.append("rect")
      .attr("id", "compare-chosen")
      .attr("class", "chosen")
      .attr("y", 2)
      .attr("height", HIGH + FOOT - 4)
      .attr("rx", 2);
  svg.append("rect")
      .attr("class", "catch")
      .attr("x", AXIS)
      .attr("width", list.length * pitch)
      .attr("height", HIGH + FOOT)
      .on("mousemove", () => pointAt(Math.floor((d3.event.offsetX - AXIS) / pitch), d3.event))
      .on("mouseleave",
          () => {
            hideTip();
            legendOf(compare.chosen);
          })
      .on("click", () => chooseRank(list[Math.floor((d3.event.offsetX - AXIS) / pitch)].id));
  box.setAttribute("aria-label",
      ranks.length + " ranks, " + (ranks.every(r => isPeak(r, key)) ? "peak" : "live") + " from " +
          bytes(d3.min(list, r => r[key])) + " to " + bytes(d3.max(list, r => r[key])) + ", median " +
          bytes(medians[key]));
  box.dataset.median = medians[key];
  markChosen();
  legendOf(compare.chosen);
}

/* Below the bars: numbers as far as there is room, and who is odd. Across: the median. */
function drawRankMarks(svg, list, pitch, high, width) {
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find(n => n * pitch >= 30) || 1024;
  list.forEach((r, i) => {
    const x = AXIS + (i + 0.5) * pitch;
    if (isOdd(r))
      svg.append("path")
          .attr("class", "odd " + (r.bad ? "bad" : "warn"))
          .attr("data-rank", r.id)
          .attr("d", "M" + x + " " + (HIGH + 3) + "l5 8h-10z");
    if (i % every === 0)
      svg.append("text")
          .attr("class", "tick")
          .attr("x", x)
          .attr("y", HIGH + 25)
          .attr("text-anchor", "middle")
          .text(pitch > 70        ? r.name :
                  r.rank === null ? "·" :
                                    r.rank);
  });
  svg.append("line").attr("class", "median").attr("x1", AXIS).attr("x2", width - 8).attr("y1", high).attr("y2", high);
  svg.append("text")
      .attr("class", "median-name")
      .attr("x", width - 10)
      .attr("y", high - 5)
      .attr("text-anchor", "end")
      .text("median " + bytes(medians[compareKey()]));
}

const againstMedian = (r, key) => r[key] === medians[key] ? "as the median" :
                                                            bytes(Math.abs(r[key] - medians[key])) +
        (r[key] > medians[key] ? " more than the median" : " less than the median");

function pointAt(i, event) {
  const r = compare.list[i], key = compareKey();
  if (!r) return;
  showTip(event, [
    r.name + (severalHosts ? " on " + r.host : "") + (r.device === null ? "" : ", " + gpu(r.device)),
    bytes(r[key]) + (isPeak(r, key) ? " at the peak, " : " live, ") + againstMedian(r, key),
    (r.out_of_memory ? "ran out of memory, " : "") + r.end_words, r.finding
  ]);
  legendOf(r.id);
}

/* What the layers are: of a rank, or of all together. */
function legendOf(rank) {
  const key = compareKey(), of = layer => rank === null ? d3.sum(layer.values) : layer.values[rank];
  byId("compare-legend")
      .replaceChildren(el("span", {class: "when"},
                           rank === null ? "all together, " + bytes(d3.sum(ranks, r => r[key])) + ":" :
                                           ranks[rank].name + ", " + bytes(ranks[rank][key]) + ":"),
          ...[...compare.layers].reverse().map(layer => {
            const swatch = el("i", {class: "swatch"});
            swatch.style.background = layer.colour;
            return el("span", {class: "key", "data-name": layer.name, "data-bytes": of(layer)}, swatch,
                el("span", {class: "name", title: layer.name}, layer.name), el("b", null, bytes(of(layer))));
          }));
}

function markChosen() {
  const at = compare.list.findIndex(r => r.id === compare.chosen), box = byId("compare-chosen");
  box.setAttribute("visibility", at < 0 ? "hidden" : "visible");
  if (at < 0) return;
  const wide = Math.max(8, Math.min(BAR + 10, compare.pitch + 2));
  box.setAttribute("x", AXIS + (at + 0.5) * compare.pitch - wide / 2);
  box.setAttribute("width", wide);
  compare.at = at;
}

/* null: all of them. The flame graph and the table follow. */
function chooseRank(rank) {
  compare.chosen = rank;
  markChosen();
  legendOf(rank);
  byId("compare-chart").dataset.chosen = rank === null ? "" : rank;
  if (byId("flame-rank")) {
    byId("flame-rank").value = rank === null ? "" : String(rank);
    redoFlame();
  }
  rankTable.draw();
}

function compareKeyDown(e) {
  const move = {ArrowLeft: -1, ArrowRight: 1}[e.key];
  if (move)
    chooseRank(
        compare.list[Math.max(0, Math.min(compare.list.length - 1, compare.chosen === null ? 0 : compare.at + move))]
            .id);
  else if (e.key === "Home" || e.key === "End")
    chooseRank(compare.list[e.key === "Home" ? 0 : compare.list.length - 1].id);
  else if (e.key === "Escape")
    chooseRank(null);
  else if (e.key === "Enter" && compare.chosen !== null)
    revealRank(compare.chosen);
  else
    return;
  e.preventDefault();
}

function categoriesName() {
  const peaks = ranks.filter(r => isPeak(r, "table_bytes")).length;
  return (peaks === ranks.length ? "the peak, " : peaks ? "" : "live, ") + "by category";
}

function writeCompare() {
  const set = key => value => {
    compare[key] = value;
    drawCompare();
  };
  byId("compare-tools")
      .append(choice("Show", "compare-show",
                  [
                    ["peak_bytes", "the peak, by place"], ["live_bytes", "live, by place"],
                    ...(tensorsKnown ? [["categories", categoriesName()]] : [])
                  ],
                  compare.show, set("show")),
          choice("Order", "compare-order", [["rank", "by rank"], ["size", "by size"]], compare.order, set("order")),
          button("All ranks", "Choose no rank (key: Esc)", () => chooseRank(null), "compare-all"));
  byId("compare-chart").addEventListener("keydown", compareKeyDown);
  if (data.left_out.ranks)
    byId("compare-note").textContent =
        count(data.left_out.ranks) + " more ranks are not in this page, which is at most 10 MB.";
  themed.push(drawCompare);
  addEventListener("resize", later(drawCompare, 150));
  drawCompare();
}
