/*
 * The page of a comparison: what is compared, categories and totals, the places that hold more or less, and a flame graph of
 * the change. Change is always after less before.
 */

const SITE_KEYS = [
  "stack", "user", "cut", "stack_before", "user_before", "level", "kind", "api", "what", "moved", "device", "before",
  "after", "count_before", "count_after"
];
const sites = data.sites.map((row, id) => {
  const site = {id};
  SITE_KEYS.forEach((key, i) => {
    site[key] = ["level", "kind", "api", "what"].includes(key) ? text(row[i]) : row[i];
  });
  site.label = labelOf(site);
  site.change = site.after - site.before;
  return site;
});
tellApart(sites);
rankPlaces(sites, site => Math.abs(site.change));

const BY = {
  live: "live",
  "at-peak": "at the highest point of each place",
  allocated: "ever allocated"
};
const changed = pair => pair.before && pair.change ?
    " (" + (pair.change > 0 ? "+" : "−") + percent(Math.abs(pair.change), pair.before) + ")" :
    "";

/* --- the head --- */

function sideCard(name, side) {
  const facts = [
    ["program", side.program], ["pid", side.pid], ["host", side.host], ["rank", side.rank],
    ["recordings", side.recordings > 1 ? count(side.recordings) : null],
    ["moment", data.by === "live" ? side.moment : null], ["steps", side.steps ? count(side.steps) : null]
  ];
  return el("article", {class: "card side"}, el("p", {class: "badges"}, el("span", {class: "badge"}, name)),
      el("h3", null, side.path),
      el("dl", {class: "items"}, ...facts.filter(f => f[1] !== null && f[1] !== "").map(([n,
        v]) => el("div", {class: "item"}, el("dt", null, n), el("dd", null, String(v))))),
      side.incomplete_recordings ?
          el("p", {class: "bad-end"}, "Incomplete: " + side.missing + " are missing, its figures may be too low.") :
          null,
      side.unreadable_files ?
          el("p", {class: "bad-end"}, count(side.unreadable_files) + " files there can not be read.") :
          null);
}

/* A tile with before, after and the change. */
const changeTile = (name, pair) =>
    el("div", {class: "tile change-tile", "data-name": name, "data-bytes": pair.change, title: exact(pair.change)},
        el("span", null, name),
        el("b", {class: pair.change > 0 ? "more" :
              pair.change < 0           ? "less" :
                                          null},
            signed(pair.change)),
        el("span", null, bytes(pair.before) + " → " + bytes(pair.after) + changed(pair)));

const moved = pair => pair.change > 0 ? "grew by " + bytes(pair.change) :
    pair.change < 0                   ? "shrank by " + bytes(-pair.change) :
                                        "did not change";

function writeHead() {
  const many = what => sites.filter(s => s.what === what).length, words = ["grew", "appeared", "shrank", "vanished"];
  document.title = "GPU memory: " + basename(data.before.path) + " → " + basename(data.after.path);
  byId("head").append(
      el("h1", null,
          "GPU memory " + moved(data.device_bytes) +
              (data.tensor_bytes.change && !data.device_bytes.change ? "; tensors " + moved(data.tensor_bytes) : "")),
      el("p", {class: "command"},
          "What was " + BY[data.by] + (data.per_step ? ", divided by the training steps of each side" : "")),
      el("div", {class: "sides"}, sideCard("before", data.before), sideCard("after", data.after)),
      el("div", {class: "tiles head-tiles"}, changeTile("GPU memory", data.device_bytes),
          data.tensor_bytes.before || data.tensor_bytes.after ? changeTile("tensors", data.tensor_bytes) : null,
          ...words.filter(many).map(what => tile("places that " + what, count(many(what)))),
          sites.some(s => s.moved === MOVED) ?
              tile("places that moved", count(sites.filter(s => s.moved === MOVED).length)) :
              null));
}

/* --- categories and totals --- */

function pairCells(pair, most) {
  return [
    bytesIn("td", pair.before), bytesIn("td", pair.after),
    el("td", {class: "n", title: exact(pair.change), "data-bytes": pair.change}, signed(pair.change) + changed(pair)),
    el("td", {class: "tight"}, changeBar(pair.change, most))
  ];
}

/* rows: [names, pair]. */
function changeTable(caption, heads, rows) {
  const most = d3.max(rows, r => Math.abs(r[1].change)) || 0;
  return table(caption, [...heads, "before", "after", "change", ""],
      rows.map(([names, pair]) => [...names, ...pairCells(pair, most)]));
}

function writeTotals() {
  const categories = data.categories ? Object.entries(data.categories).filter(([, p]) => p.before || p.after) : [];
  if (categories.length)
    byId("categories").append(changeTable("Device memory by what it was for", ["category"], categories.map(([
      name, pair
    ]) => [[name.replace(/_/g, " ")], pair])));
  else
    byId("categories").append(el("p", {class: "card quiet-text"}, "What it was for is not known of both sides."));
  byId("total-tables")
      .append(changeTable("By level, kind and device", ["level", "kind", "device"],
          data.totals.map(
              t => [[t.level, t.kind.replace(/_/g, " "), t.device === null ? "all" : gpu(t.device)], t.bytes])));
  if (data.ranks.length)
    byId("total-tables")
        .append(changeTable("By rank", ["rank"],
            [...data.ranks]
                .sort((a, b) => Math.abs(b.change) - Math.abs(a.change) || a.rank - b.rank)
                .map(r => [[String(r.rank)], {before: r.before || 0, after: r.after || 0, change: r.change}])));
}

/* --- the flame graph --- */

function diffRows(measure) {
  const value = pair => measure === "change" ? Math.abs(pair.after - pair.before) : pair[measure];
  const rows = sites.filter(site => value(site) > 0).map(site => ({
    grounds: [...(site.device === null ? [] : [gpu(site.device)]), kindName(site)],
    stack: site.stack,
    value: value(site),
    change: site.change
  }));
  for (const [label, pair] of [["(all others)", data.others.bytes], ["(not compared one by one)", data.not_compared]])
    if (value(pair) > 0) rows.push({grounds: [], label, value: value(pair), change: pair.change});
  return rows;
}

function writeStacks() {
  const offered =
      [["change", "what changed"], ["after", "after"], ["before", "before"]].filter(([key]) => diffRows(key).length);
  writeFlame({measures: offered, rows: diffRows, tools: [], differs: true});
  if (offered.length)
    byId("flame-help")
        .prepend(el("b", {class: "more"}, "Red"), " grew, ", el("b", {class: "less"}, "blue"), " shrank. ");
}

/* --- the places --- */

let places;
const MOVED = 1; /* other lines; 2: other callers */
const movedText = site => site.moved === MOVED ? "moved" : "called from elsewhere";

function writePlaces() {
  const most = d3.max(sites, site => Math.abs(site.change)) || 0;
  const filter = {what: "changed"},
        known = ["grew", "appeared", "shrank", "vanished", "unchanged"].filter(w => sites.some(s => s.what === w));
  const passes = site => filter.what === "all" ||
      (filter.what === "changed"      ? site.change !== 0 || site.moved === MOVED :
              filter.what === "moved" ? site.moved === MOVED :
                                        site.what === filter.what);
  const rest = (id, pair, more) =>
      ({id, before: pair.before, after: pair.after, change: pair.change, rest: true, ...more});
  const others = [
    data.others.sites ? rest(-1, data.others.bytes) : null,
    data.not_compared.before || data.not_compared.after ? rest(-2, data.not_compared) : null
  ].filter(Boolean);
  byId("places-title").textContent = "Places that hold more or less";
  if (!sites.some(passes)) filter.what = "all";
  places = makeTable("places", {
    columns: [
      {key: "label", name: "Place", words: true},
      {key: "what", name: "What happened", words: true, cell: site => el("td", null, el("span", {class: "badge what-" + site.what}, site.what),
        site.moved ? el("span", {class: "badge"}, movedText(site)) : null)},
      {key: "kind", name: "Kind", tight: true, words: true, value: kindName, cell: site => el("td", {class: "tight what"}, kindName(site))},
      {key: "before", name: "Before", bytes: true, tight: true, sum: true},
      {key: "after", name: "After", bytes: true, tight: true, sum: true},
      {key: "change", name: "Change", bytes: true, sum: true,
        show: signed,
        cell: (site, look) => el("td", {...look, title: exact(site.change), "data-bytes": site.change}, signed(site.change))},
      {key: "size", name: "More or less", tight: true, value: site => Math.abs(site.change), hint: "By how much, more or less",
        cell: site => el("td", {class: "tight"}, changeBar(site.change, most))},
      {key: "count_after", name: "Count", tight: true, cell: (site, look) => el("td", {...look, "data-value": site.count_after},
        site.count_before === site.count_after ? count(site.count_after) : count(site.count_before) + " → " + count(site.count_after))}
    ],
    rows: sites,
    others,
    othersName: list => list.some(o => o.id === -1) ? "all others (" + count(data.others.sites) + " places, not in this page), and what is not compared one by one" : "what is not compared one by one",
    row: "place",
    data: "site",
    sort: null,
    one: "place",
    many: "places",
    hint: "The whole stack",
    placeholder: "words in the stack, call",
    passes: site => site.rest || passes(site),
    words: site => [site.label, site.api, kindName(site), site.what, site.moved ? movedText(site) : "", ...stackWords(site.stack)],
    title: placeTitle,
    detail: site => {
      const box = placeDetail(site, [["call", site.api], ["level", site.level], ["kind", site.kind.replace(/_/g, " ")],
        ["device", site.device === null ? null : gpu(site.device)], ["before", bytes(site.before) + " in " + count(site.count_before)],
        ["after", bytes(site.after) + " in " + count(site.count_after)]]);
      if (site.stack_before) box.lastChild.append(el("h4", null, site.moved === MOVED ? "Before, on other lines" : "Before, called from elsewhere"), stackList(site.stack_before, false, site.user_before));
      return box;
    },
    tools: [choice("Show", "places-what", [["changed", "what changed"], ...known.map(w => [w, "what " + (w === "unchanged" ? "did not change" : w)]),
      ...(sites.some(s => s.moved === MOVED) ? [["moved", "what moved"]] : []), ["all", "all"]], filter.what, value => {
        filter.what = value;
        places.again();
      })]
  });
  places.draw();
}

function writeNotes() {
  const notes = [], left = data.left_out;
  if (left.sites)
    notes.push(count(left.sites) +
        " places are not listed one by one in this page, which is at most 10 MB: they are added up as \"all others\".");
  for (const key of ["totals", "ranks"])
    if (left[key])
      notes.push(count(left[key]) + " more " + key + " are not in this page; vramtrack diff --json has them all.");
  notes.push("Where tensors are known, they are compared and not the segments that they lie in.");
  putNotes(notes, null);
}

function writePage() {
  writeHead();
  writeTotals();
  writePlaces();
  writeStacks();
  writeNotes();
}
