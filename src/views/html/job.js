/*
 * The page of a job: its head, findings, flame graph and places. Ranks are in ranks.js, what makes them uneven in skew.js.
 */

const SITE_KEYS = [
  "stack", "user", "cut", "level", "kind", "api", "at_peak_bytes", "at_peak_count", "live_bytes", "live_count",
  "processes", "median_bytes", "most_bytes", "most_rank"
];
const sites = data.sites.map((row, id) => {
  const site = {id};
  SITE_KEYS.forEach((key, i) => {
    site[key] = ["level", "kind", "api"].includes(key) ? text(row[i]) : row[i];
  });
  site.label = labelOf(site);
  return site;
});
tellApart(sites);
rankPlaces(sites, site => Math.max(site.at_peak_bytes, site.live_bytes));

function writeHead() {
  const items = [], first = ranks[0], add = (name, value, title) => {
    if (value !== null && value !== "")
      items.push(el("div", {class: "item", title}, el("dt", null, name), el("dd", null, value)));
  };
  const moments = new Set(ranks.map(r => r.moment)), hosts = new Set(ranks.map(r => r.host));
  const bad = ranks.filter(r => r.bad), ooms = ranks.filter(r => r.out_of_memory).length;
  document.title = "GPU memory of " + first.program + ", " + data.processes + " processes";
  add("processes", count(data.processes));
  if (data.world_size !== null) add("world size", count(data.world_size));
  add(hosts.size > 1 ? "hosts" : "host", hosts.size > 1 ? count(hosts.size) : first.host);
  add("figures of", moments.size > 1 ? "each its own moment" : first.moment,
      "The moment that live figures belong to: where it ran out of memory, or its end");
  if (data.helpers.length) add("helpers", count(data.helpers.length + (data.left_out.helpers || 0)));
  if (data.other_recordings) add("other recordings there", count(data.other_recordings));
  byId("head").append(
      el("h1", null,
          el("span",
              {class: "dot " +
                    (bad.length              ? "bad" :
                            data.skew.length ? "warn" :
                                               "good"),
                "aria-hidden": "true"}),
          first.program + (data.programs > 1 ? " and " + count(data.programs - 1) + " more" : "")),
      el("p", {class: "command", title: "Where the recordings are"}, data.directory),
      el("dl", {class: "items"}, ...items),
      el("div", {class: "tiles head-tiles"}, tile("highest peak of a rank", d3.max(ranks, r => r.peak_bytes)),
          tile("median peak", medians.peak_bytes), tile("lowest peak", d3.min(ranks, r => r.peak_bytes)),
          tile("live, all together", d3.sum(ranks, r => r.live_bytes)),
          tile("out of memory", ooms ? count(ooms) + (ooms === 1 ? " rank" : " ranks") : "none"),
          tile("died or failed", count(bad.filter(r => r.end === "killed" || r.exit_code).length)),
          tile("uneven", count(data.skew.length))));
}

function writeFindings() {
  byId("findings").append(...data.findings.map((f, i) => findingCard(f, {
    open: i < 2,
    advice: f.advice.map(line => [line]),
    links: listOfLinks("Ranks", f.indices.map(rankLink))
  })));
}

/* --- the flame graph --- */

function jobRows(measure, rank) {
  const rows = [], ground = site => [kindName(site)];
  const amounts = rank === null ? null : amountsOf(rank), key = sumKey[measure];
  for (const site of sites) {
    const value = rank === null                ? site[measure] :
        amounts && amounts.values.has(site.id) ? amounts.values.get(site.id)[key] :
                                                 0;
    if (value > 0) rows.push({grounds: ground(site), stack: site.stack, value});
  }
  const others = rank === null ? data.others[measure] : amounts ? amounts.others[key] : 0;
  if (others > 0) rows.push({grounds: [], label: "(all others)", value: others});
  return rows;
}

function writeStacks() {
  const offered = [["at_peak_bytes", "at the peak of each"], ["live_bytes", "live"]].filter(
      ([key]) => data.others[key] > 0 || sites.some(site => site[key] > 0));
  const list = [...ranks].sort((a, b) => a.place - b.place || a.id - b.id).filter(r => data.amounts[r.id]);
  writeFlame({
    measures: offered,
    rows: measure => jobRows(measure, compare.chosen),
    tools: [choice("Of", "flame-rank",
        [["", "all ranks together"], ...list.map(r => [r.id, r.name + (severalHosts ? " on " + r.host : "")])], "",
        value => chooseRank(value === "" ? null : Number(value)))]
  });
}

/* --- the places --- */

let places;

function revealPlace(id) {
  if (sites[id]) places.reveal(sites[id]);
}

/* Who holds what of a place: the ranks, those with most first. */
function holdersOf(site) {
  const list = ranks.map(r => [r, (amountsOf(r.id) || {values: new Map()}).values.get(site.id)])
                   .filter(([, v]) => v && v[1])
                   .sort((a, b) => b[1][1] - a[1][1] || a[0].place - b[0].place);
  return list.slice(0, 6).flatMap(([r, v], i) => [i ? ", " : "", rankLink(r.id), " " + bytes(v[1])]);
}

function writePlaces() {
  places = makeTable("places", {
    columns: [
      {key: "label", name: "Place", words: true}, {
        key: "kind",
        name: "What",
        tight: true,
        words: true,
        value: kindName,
        cell: site => el("td", {class: "tight what"}, kindName(site))
      },
      {key: "at_peak_bytes", name: "At the peak, all", bytes: true, sum: true},
      {key: "median_bytes", name: "Median rank", bytes: true, tight: true},
      {key: "most_bytes", name: "Most", bytes: true}, {
        key: "most_rank",
        name: "by",
        tight: true,
        words: true,
        cell: (site, look) =>
            el("td", look, site.most_bytes > site.median_bytes && site.most_rank >= 0 ? rankLink(site.most_rank) : "")
      },
      {key: "processes", name: "Processes", tight: true},
      {key: "live_bytes", name: "Live, all", bytes: true, sum: true, tight: true}
    ],
    rows: sites,
    others: data.others.sites ? [data.others] : [],
    othersName: list => "all others (" + count(list[0].sites) + " places, not in this page)",
    row: "place",
    data: "site",
    sort: "at_peak_bytes",
    one: "place",
    many: "places",
    hint: "The whole stack",
    placeholder: "words in the stack, call",
    passes: () => true,
    words: site => [site.label, site.api, kindName(site), ...stackWords(site.stack)],
    title: placeTitle,
    detail: site => {
      const box = placeDetail(site, [
        ["call", site.api], ["level", site.level], ["kind", site.kind.replace(/_/g, " ")],
        ["in", count(site.processes) + " of " + count(data.processes) + " processes"],
        ["allocations", count(site.at_peak_count) + " at the peak, " + count(site.live_count) + " live"]
      ]);
      box.firstChild.append(el("dt", null, "most"), el("dd", null, ...holdersOf(site)));
      return box;
    }
  });
  places.draw();
}

function writeNotes() {
  const left = data.left_out, notes = [...data.notes];
  const say = (name, words) => {
    if (left[name]) notes.push(count(left[name]) + words);
  };
  notes.push(
      "The places are the 512 largest of each process, each weighed at its own peak; ranks reach theirs at different times.");
  say("sites",
      " places are not listed one by one in this page, which is at most 10 MB: they are added up as \"all others\".");
  say("amounts", " amounts of single ranks at single places are added up as \"all others\" where one rank is shown.");
  say("amounts_of_ranks", " ranks have no flame graph of their own in this page.");
  say("ranks", " more ranks are not in this page; vramtrack report --json has them all.");
  say("findings", " more findings are not in this page.");
  if (!data.all_places) notes.push("There were more places than are told apart: what is missing is in no place.");
  if (data.unreadable_files)
    notes.push(data.unreadable_files === 1 ?
            "1 file there named *.vtr can not be read, and is left out." :
            count(data.unreadable_files) + " files there named *.vtr can not be read, and are left out.");
  putNotes(notes, data.directory);
}

function writePage() {
  writeHead();
  writeFindings();
  writeRanks();
  writeCompare();
  writeSkew();
  writeStacks();
  writePlaces();
  writeNotes();
}
