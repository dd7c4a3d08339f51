/*
 * The table of a recording's places: filtered by level and GPU, each with its whole stack. What found no room in the page is a
 * row of its own, so that sums are those of the recording.
 */

for (const site of sites) site.grown = site.growth ? site.growth.bytes : 0;

const whatIs = site => site.level === "tensor" ?
    TENSOR_NAMES[site.category] || site.category :
    site.kind.replace(/_/g, " ") + (site.owner && site.owner !== "unknown" ? ", " + site.owner : "");

const PLACE_COLUMNS = [
  {key: "label", name: "Place", words: true},
  {
    key: "category",
    name: "What",
    tight: true,
    words: true,
    value: whatIs,
    cell: site => el("td", {class: "tight what"}, whatIs(site))
  },
  {key: "live_bytes", name: "Live", bytes: true, sum: true},
  {key: "live_count", name: "Count", tight: true, sum: true},
  {key: "at_peak_bytes", name: "At the peak", bytes: true, sum: true},
  {key: "peak_bytes", name: "Own peak", bytes: true, tight: true},
  {key: "total_bytes", name: "Allocated", bytes: true, tight: true, sum: true},
  {key: "alloc_calls", name: "Calls", tight: true, sum: true},
  {
    key: "grown",
    name: "Growth",
    bytes: true,
    tight: true,
    cell: (site, look) => el("td", {...look, "data-bytes": site.grown}, growthText(site))
  },
];

function growthText(site) {
  const g = site.growth;
  if (!g || !g.bytes || Math.abs(g.allocs) < 2) return ""; /* one allocation is no growth */
  return signed(g.bytes) +
      (g.steps              ? " in " + count(g.steps) + " steps" :
              g.bytes_per_s ? " (" + signed(Math.round(g.bytes_per_s)) + "/s)" :
                              "");
}

function detailOf(site) {
  const facts = [
    ["id", String(site.id)], ["call", site.api], ["level", site.level], ["kind", site.kind.replace(/_/g, " ")],
    ["device", gpu(site.device)], ["phase", site.phase === "none" ? null : site.phase], ["range", site.range],
    ["why " + whatIs(site), site.category_reason], ["freed", count(site.free_calls) + " of " + count(site.alloc_calls)],
    ["threads, streams", site.threads + ", " + site.streams], ["growth", growthText(site) || null],
    ["leaked", site.leaked_bytes ? bytes(site.leaked_bytes) : null], ["finding", site.verdict],
    ["memory", site.holds_tensors ? "a framework hands it on as tensors" : null]
  ];
  const split = site.category_bytes ? Object.entries(site.category_bytes) : [];
  if (split.length > 1) facts.push(["categories", split.map(([name, n]) => name + " " + bytes(n)).join(", ")]);
  return placeDetail(site, facts);
}

let places;
const shownPlaces = {
  level: hasTensors ? "all" : "driver",
  device: ""
};
const passes = row => (shownPlaces.level === "every" || inLevel(row, shownPlaces.level)) &&
    (shownPlaces.device === "" || row.device === Number(shownPlaces.device));

/* Opens a place that is named elsewhere, whatever the filters say. */
function revealPlace(id) {
  const site = siteById.get(id);
  if (!site) return;
  if (!passes(site)) {
    Object.assign(shownPlaces, {level: "every", device: ""});
    byId("places-level").value = "every";
    if (byId("places-device")) byId("places-device").value = "";
  }
  places.reveal(site);
}

function writePlaces() {
  const devices = [...new Set([...sites, ...data.others].map(s => s.device))].sort((a, b) => a - b);
  const set = key => value => {
    shownPlaces[key] = value;
    places.again();
  };
  const tools = [choice("Level", "places-level",
      [...(hasTensors ? LEVELS : LEVELS.slice(2)), ["every", "everything, address space too"]], shownPlaces.level,
      set("level"))];
  if (devices.length > 1)
    tools.push(
        choice("On", "places-device", [["", "all devices"], ...devices.map(d => [d, gpu(d)])], "", set("device")));
  places = makeTable("places", {
    columns: PLACE_COLUMNS,
    rows: sites,
    others: data.others,
    othersName: list => "all others (" + count(list.reduce((s, o) => s + o.sites, 0)) + " places, not in this page)",
    row: "place",
    data: "site",
    sort: "live_bytes",
    one: "place",
    many: "places",
    hint: "The whole stack",
    placeholder: "words in the stack, call, category",
    passes,
    together: rows => shownPlaces.level === "every" ?
        ["together, without address space and what would count twice", rows.filter(row => row.shown)] :
        ["together", rows],
    empty: lacks("places") ? "Places are " + NOT_RECORDED + "." : "Nothing was allocated.",
    words: site => [site.label, site.api, site.kind, site.level, site.category, whatIs(site), site.owner, site.verdict,
        site.phase, site.range, ...stackWords(site.stack)],
    title: placeTitle,
    beside: site => [site.verdict && site.verdict !== "none" ?
            el("span", {class: "badge family-" + site.verdict}, site.verdict) :
            null].filter(Boolean),
    detail: detailOf,
    tools
  });
  places.draw();
  if (data.earlier)
    byId("places-tools")
        .after(el("p", {class: "hint", id: "places-when"},
            "Own peak, allocated and calls are of the whole run; live and count are of the moment " + data.moment +
                "."));
}

function writePage() {
  writeHead();
  writeFindings();
  writeAccounts();
  writeTimeline();
  writeStacks();
  writeMaps();
  writePlaces();
  writeFailures();
  writeFigures();
  writeNotes();
}
