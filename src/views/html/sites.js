/*
 * The table of places: sorted by any column, filtered by words, level and GPU, each with its whole stack. What found no room
 * in the page is a row of its own, so that sums are those of the recording.
 */

const PAGE_ROWS = 50;
const places = {
  sort: "live_bytes",
  down: true,
  words: "",
  level: "all",
  device: "",
  limit: PAGE_ROWS,
  open: new Set()
};

const COLUMNS = [
  {key: "label", name: "Place"},
  {key: "category", name: "What", tight: true},
  {key: "live_bytes", name: "Live", bytes: true},
  {key: "live_count", name: "Count", tight: true},
  {key: "at_peak_bytes", name: "At the peak", bytes: true},
  {key: "peak_bytes", name: "Own peak", bytes: true, tight: true},
  {key: "total_bytes", name: "Allocated", bytes: true, tight: true},
  {key: "alloc_calls", name: "Calls", tight: true},
  {key: "grown", name: "Growth", bytes: true, tight: true},
];

for (const site of sites) site.grown = site.growth ? site.growth.bytes : 0;

const whatIs = site => site.level === "tensor" ?
    site.category :
    site.kind.replace(/_/g, " ") + (site.owner && site.owner !== "unknown" ? ", " + site.owner : "");

/* All that a filter looks at, in small letters; made once. */
function wordsOf(site) {
  if (site.words === undefined) {
    const parts =
        [site.label, site.api, site.kind, site.level, site.category, site.owner, site.verdict, site.phase, site.range];
    for (const {frame} of stackOf(site.stack)) parts.push(frame.label, frame.file);
    site.words = parts.filter(Boolean).join("\n").toLowerCase();
  }
  return site.words;
}

const passes = row => (places.level === "every" || inLevel(row, places.level)) &&
    (places.device === "" || row.device === Number(places.device));

function chosenPlaces() {
  const words = places.words.toLowerCase().split(/\s+/).filter(Boolean), key = places.sort;
  const list = sites.filter(site => passes(site) && words.every(word => wordsOf(site).includes(word)));
  const value = key === "category" ? whatIs : site => site[key];
  list.sort((a, b) => {
    const x = value(a), y = value(b), order = typeof x === "number" ? x - y : d3.ascending(x, y);
    return (places.down ? -order : order) || a.id - b.id;
  });
  return list;
}

function growthText(site) {
  const g = site.growth;
  if (!g || !g.bytes || Math.abs(g.allocs) < 2) return ""; /* one allocation is no growth */
  return (g.bytes > 0 ? "+" : "") + bytes(g.bytes) +
      (g.steps              ? " in " + count(g.steps) + " steps" :
              g.bytes_per_s ? " (" + bytes(Math.round(g.bytes_per_s)) + "/s)" :
                              "");
}

function detailOf(site) {
  const facts = [
    ["id", String(site.id)], ["call", site.api], ["level", site.level], ["kind", site.kind.replace(/_/g, " ")],
    ["device", gpu(site.device)], ["phase", site.phase === "none" ? null : site.phase], ["range", site.range],
    ["why " + site.category, site.category_reason],
    ["freed", count(site.free_calls) + " of " + count(site.alloc_calls)],
    ["threads, streams", site.threads + ", " + site.streams], ["growth", growthText(site) || null],
    ["leaked", site.leaked_bytes ? bytes(site.leaked_bytes) : null], ["finding", site.verdict],
    ["memory", site.holds_tensors ? "a framework hands it on as tensors" : null]
  ];
  const split = site.category_bytes ? Object.entries(site.category_bytes) : [];
  if (split.length > 1) facts.push(["categories", split.map(([name, n]) => name + " " + bytes(n)).join(", ")]);
  return el("div", {class: "site-detail"},
      el("dl", null, ...facts.filter(f => f[1] !== null && f[1] !== "" && f[1] !== undefined).flatMap(([n,
        v]) => [el("dt", null, n), el("dd", null, v)])),
      stackList(site.stack, site.cut, site.user));
}

function placeRow(site) {
  const open = places.open.has(site.id), swatch = el("i", {class: "swatch"});
  swatch.style.background = placeColour(site.label);
  const toggle = el("button", {
    type: "button",
    class: "place",
    "aria-expanded": String(open),
    title: "The whole stack",
    onclick: () => {
      if (!places.open.delete(site.id)) places.open.add(site.id);
      drawPlaces();
      const again = byId("place-" + site.id);
      if (again) again.querySelector("button").focus();
    }
  },
      swatch, el("span", null, site.label));
  const cells = COLUMNS.slice(2).map(c => c.key === "grown" ?
          el("td", {class: "n tight", "data-key": c.key, "data-bytes": site.grown}, growthText(site)) :
          c.bytes ? bytesIn("td", site[c.key], {class: "n" + (c.tight ? " tight" : ""), "data-key": c.key}) :
                    el("td", {class: "n" + (c.tight ? " tight" : ""), "data-key": c.key, "data-value": site[c.key]},
                        count(site[c.key])));
  const rows = [el("tr", {id: "place-" + site.id, "data-site": site.id, class: open ? "open" : null},
      el("td", null, toggle,
          site.verdict && site.verdict !== "none" ? el("span", {class: "badge family-" + site.verdict}, site.verdict) :
                                                    null),
      el("td", {class: "tight what"}, whatIs(site)), ...cells)];
  if (open) rows.push(el("tr", {class: "detail-row"}, el("td", {colspan: COLUMNS.length}, detailOf(site))));
  return rows;
}

function sumRow(name, rows, kind) {
  const sum = key => rows.reduce((s, r) => s + (r[key] || 0), 0);
  return el("tr", {class: "sum", "data-sum": kind}, el("td", null, name), el("td", {class: "tight"}),
      ...COLUMNS.slice(2).map(c => ["live_bytes", "at_peak_bytes", "total_bytes"].includes(c.key) ?
              bytesIn("td", sum(c.key), {class: "n" + (c.tight ? " tight" : ""), "data-key": c.key}) :
              ["live_count", "alloc_calls"].includes(c.key) ?
              el("td", {class: "n" + (c.tight ? " tight" : ""), "data-key": c.key, "data-value": sum(c.key)},
                  count(sum(c.key))) :
              el("td", {class: c.tight ? "tight" : null})));
}

function headCell(column) {
  const sorted = places.sort === column.key;
  return el("th", {
    scope: "col",
    class: column.tight ? "tight" : null,
    "aria-sort": sorted ? (places.down ? "descending" : "ascending") : "none"
  },
      el("button", {
        type: "button",
        "data-sort": column.key,
        onclick: () => {
          places.down = sorted ? !places.down : column.key !== "label" && column.key !== "category";
          places.sort = column.key;
          drawPlaces();
          document.querySelector("[data-sort=\"" + column.key + "\"]").focus();
        }
      },
          column.name, el("span", {class: "arrow", "aria-hidden": "true"}, sorted ? (places.down ? " ▾" : " ▴") : "")));
}

function drawPlaces() {
  const list = chosenPlaces(), shown = list.slice(0, places.limit),
        others = places.words ? [] : data.others.filter(passes);
  const body = el("tbody", null, ...shown.flatMap(placeRow));
  if (list.length > shown.length)
    body.append(sumRow(count(list.length - shown.length) + " more in this list", list.slice(places.limit), "more"));
  if (others.length)
    body.append(sumRow("all others (" + count(others.reduce((s, o) => s + o.sites, 0)) + " places, not in this page)",
        others, "others"));
  if (list.length + others.length > 1) body.append(sumRow("together", [...list, ...others], "all"));
  if (!list.length && !others.length)
    body.append(el("tr", null, el("td", {colspan: COLUMNS.length}, "No place is like that.")));
  byId("places-table")
      .replaceChildren(
          el("table", {class: "places"}, el("thead", null, el("tr", null, ...COLUMNS.map(headCell))), body));
  byId("places-table").dataset.rows = list.length;
  byId("places-more")
      .replaceChildren(el("span", {class: "hint"}, count(shown.length) + " of " + count(list.length) + " places"));
  if (list.length > shown.length)
    byId("places-more").append(button("Show more", null, () => {
      places.limit += 4 * PAGE_ROWS;
      drawPlaces();
    }, "places-show"));
}

/* Opens a place that is named elsewhere, whatever the filters say. */
function revealPlace(id) {
  const site = siteById.get(id);
  if (!site) return;
  if (!passes(site)) {
    places.level = "every";
    places.device = "";
    byId("places-level").value = "every";
    if (byId("places-device")) byId("places-device").value = "";
  }
  places.words = byId("places-search").value = "";
  places.limit = Math.max(places.limit, chosenPlaces().indexOf(site) + 1);
  places.open.add(id);
  drawPlaces();
  byId("place-" + id).scrollIntoView({block: "center"});
  byId("place-" + id).querySelector("button").focus();
}

/* The table shows the places with these words. */
function filterPlaces(words) {
  places.words = byId("places-search").value = words;
  places.limit = PAGE_ROWS;
  drawPlaces();
  byId("places").scrollIntoView();
}

function writePlaces() {
  const tools = byId("places-tools"),
        devices = [...new Set([...sites, ...data.others].map(s => s.device))].sort((a, b) => a - b);
  const set = key => value => {
    places[key] = value;
    places.limit = PAGE_ROWS;
    drawPlaces();
  };
  const search = el("input", {
    type: "search",
    id: "places-search",
    placeholder: "words in the stack, call, category",
    autocomplete: "off",
    spellcheck: "false",
    oninput: later(() => set("words")(search.value), 120)
  });
  tools.append(choice("Level", "places-level",
      [...(hasTensors ? LEVELS : LEVELS.slice(2)), ["every", "everything, address space too"]],
      hasTensors ? "all" : "driver", set("level")));
  places.level = hasTensors ? "all" : "driver";
  if (devices.length > 1)
    tools.append(
        choice("On", "places-device", [["", "all devices"], ...devices.map(d => [d, gpu(d)])], "", set("device")));
  tools.append(el("label", {class: "choice grow"}, el("span", null, "Filter"), search));
  themed.push(drawPlaces);
  drawPlaces();
}
