/*
 * The ranks of a job, what each holds at each place, and their table. A rank is meant by its index in data.ranks: a number need
 * not be there, nor be the only one.
 */

const ranks = data.ranks.map((rank, i) => ({
  ...rank,
  id: i,
  name: rank.rank === null ? "pid " + rank.pid : "rank " + rank.rank,
  place: rank.rank === null ? 1e9 + i : rank.rank,
  bad: rank.out_of_memory                   ? "out of memory" :
      rank.end === "killed"                 ? "died" :
      rank.end === "exit" && rank.exit_code ? "failed" :
                                              "",
  table_bytes: rank.breakdown ? rank.breakdown.bytes : rank.peak_bytes /* what the columns of the table add up to */
}));
const severalHosts = new Set(ranks.map(r => r.host)).size > 1, tensorsKnown = ranks.some(r => r.breakdown);
const median = data.median === null ? null : ranks[data.median];
for (const s of data.skew)
  if (ranks[s.index]) ranks[s.index].uneven = s.difference > 0 ? "more" : "less";

/* Where no rank is the median one, the lower one of two. */
const medianOf = list => list.length ? [...list].sort((a, b) => a - b)[Math.floor((list.length - 1) / 2)] : 0;
const medians = {};
for (const [key, at] of [["peak_bytes", data.median], ["live_bytes", data.median_live], ["table_bytes", data.median]])
  medians[key] = ranks[at] ? ranks[at][key] : medianOf(ranks.map(r => r[key]));

/* --- what a rank holds at each place --- */

const sumKey = {
  at_peak_bytes: 1,
  live_bytes: 2
};

function decode(list, values) {
  for (let i = 3; i < list.length; i += 3) values.set(list[i], [0, list[i + 1], list[i + 2]]);
  return {values, others: [0, list[1], list[2]]};
}
const baseAmounts = data.base_amounts.length ? decode(data.base_amounts[0], new Map()) : null;

/* {values: by number of the place, [, at the peak, live]; others}; null: it is not in the page. */
function amountsOf(rank) {
  const list = data.amounts[rank];
  return list ? decode(list, new Map(list[0] ? baseAmounts.values : [])) : null;
}

/* --- the table --- */

/* Null: it had memory on one at most. */
function peaksByGpu(r) {
  const used = r.devices.filter(d => d.peak_bytes).sort((a, b) => b.main - a.main);
  return used.length > 1 ? used.map(d => bytes(d.peak_bytes) + " on " + gpu(d.index)).join(", ") : null;
}

/* A peak that no single GPU had must not be taken for one. */
function writeSplits() {
  const several = ranks.filter(peaksByGpu), shown = several.slice(0, 4), more = several.length - shown.length;
  if (shown.length)
    byId("ranks-tools")
        .after(el("p", {class: "hint", id: "ranks-gpus"},
            "* and others, whose peaks are added: " + shown.map(r => r.name + ": " + peaksByGpu(r)).join("; ") +
                (more ? "; and " + count(more) + " more" : "") + "."));
}

let rankTable;
const rankFilter = {
  which: "all"
};
const isOdd = r => r.bad !== "" || !!r.uneven || !!r.missing;
const rankPasses = r => rankFilter.which === "all" ||
    (rankFilter.which === "odd"           ? isOdd(r) :
            rankFilter.which === "uneven" ? !!r.uneven :
                                            r.bad !== "");

function rankBadges(r) {
  const list = [];
  if (r.bad) list.push(el("span", {class: "badge bad"}, r.bad));
  if (r.uneven) list.push(el("span", {class: "badge uneven"}, r.uneven + " than the median"));
  if (r.missing) list.push(el("span", {class: "badge uneven"}, "recording incomplete"));
  if (r === median && ranks.length > 2) list.push(el("span", {class: "badge"}, "median"));
  return list;
}

function rankDetail(r) {
  const devices = r.devices.map(d => gpu(d.index) + (d.main && r.devices.length > 1 ? " (mostly used)" : "") +
          ": peak " + bytes(d.peak_bytes) + ", live " + bytes(d.live_bytes) +
          (d.context_bytes === null ? "" : ", context " + bytes(d.context_bytes)) + (d.uuid ? ", " + d.uuid : ""));
  const facts = [
    ["program", r.program], ["host", r.host], ["local rank", r.local_rank], ["live at", r.moment],
    ["categories at", r.breakdown && r.breakdown.moment], ["end", r.end_words],
    ["steps", r.steps ? count(r.steps) : null], ["finding", r.finding], ["missing from the recording", r.missing],
    ["recording", r.recording]
  ];
  return el("div", {class: "rank-detail"},
      el("dl", null, ...facts.filter(f => f[1] !== null && f[1] !== "").flatMap(([n,
        v]) => [el("dt", null, n), el("dd", null, String(v))]),
          ...devices.flatMap((d, i) => [el("dt", null, i ? "" : "GPUs"), el("dd", null, d)])),
      button("Its flame graph", "The stacks of this rank alone", () => {
        chooseRank(r.id);
        byId("flame").scrollIntoView();
      }));
}

function revealRank(id) {
  rankFilter.which = byId("ranks-which").value = "all";
  rankTable.reveal(ranks[id]);
}

const rankLink = id => ranks[id] ? el("a", {
  href: "#rank-" + id,
  onclick: e => {
    e.preventDefault();
    revealRank(id);
  }
},
                                       ranks[id].name) :
                                   "a rank that is not in this page";

function writeRanks() {
  for (const r of ranks) {
    r.against = r.peak_bytes - medians.peak_bytes;
    for (const name of CATEGORY_NAMES) r["c_" + name] = r.breakdown ? r.breakdown.categories[name] : null;
    for (const name of ["cached", "not_tensors"]) r["c_" + name] = r.breakdown ? r.breakdown[name] : null;
  }
  const text = (key, name, more) =>
      ({key, name, tight: true, words: true, cell: (r, look) => el("td", look, r[key]), ...more});
  const known = (key, name) => ({
    key,
    name,
    tight: true,
    bytes: true,
    sum: true,
    cell: (r, look) => r[key] === null ? el("td", look, "") : bytesIn("td", r[key], look)
  });
  const columns = [
    {key: "place", name: "Rank", up: true, words: true}, ...(severalHosts ? [text("host", "Host")] : []),
    ...(data.programs > 1 ? [text("program", "Program")] : []), {
      key: "pid",
      name: "pid",
      tight: true,
      up: true,
      cell: (r, look) => el("td", {...look, "data-value": r.pid}, String(r.pid))
    },
    {
      key: "device",
      name: "GPU",
      tight: true,
      up: true,
      value: r => r.device === null ? -1 : r.device,
      cell: (r, look) => el("td", {...look, "data-value": r.device, title: peaksByGpu(r)},
          r.device === null ? "" : r.device + (peaksByGpu(r) ? "*" : ""))
    },
    {key: "peak_bytes", name: "Peak", bytes: true},
    ...(ranks.some(r => r.against) ? [{
      key: "against",
      name: "To the median",
      bytes: true,
      tight: true,
      cell: (r, look) =>
          el("td", {...look, title: exact(r.against), "data-bytes": r.against}, r.against ? signed(r.against) : "")
    }] :
                                     []),
    {key: "live_bytes", name: "Live", bytes: true, sum: true}, {
      key: "end_words",
      name: "End",
      words: true,
      cell: (r, look) => el("td", {...look, class: r.bad ? "bad-end" : null},
          (r.out_of_memory ? "ran out of memory, " : "") + r.end_words)
    },
    ...CATEGORY_NAMES.filter(n => ranks.some(r => r["c_" + n]))
        .map(n => known("c_" + n, n === "other" ? "Other" : n[0].toUpperCase() + n.slice(1))),
    ...[["c_cached", "Cached"], ["c_not_tensors", "Not tensors"]].filter(([key]) => ranks.some(r => r[key])).map(([
      key, name
    ]) => known(key, name)),
    ...(ranks.some(r => r.steps) ? [{key: "steps", name: "Steps", tight: true}] : []),
    ...(ranks.some(r => r.finding) ?
            [text("finding", "Finding",
                {cell: (r, look) => el("td", {...look, class: "tight verdict", title: r.finding}, r.finding || "")})] :
            [])
  ];
  rankTable = makeTable("ranks", {
    columns,
    rows: [...ranks].sort((a, b) => isOdd(b) - isOdd(a) || (isOdd(a) ? a.id - b.id : a.place - b.place || a.id - b.id)),
    row: "rank",
    sort: null,
    one: "rank",
    many: "ranks",
    hint: "Its recording and GPUs",
    placeholder: "rank, host, pid, end, finding",
    passes: rankPasses,
    words: r => [r.name, r.host, "pid " + r.pid, r.end_words, r.finding, r.bad, r.uneven, r.program],
    title: r => [el("i", {class: "dot small-dot " + (r.bad ? "bad" : isOdd(r) ? "warn" : "good")}), el("span", null, r.name)],
    beside: rankBadges,
    look: r => [r.bad ? "bad-rank" : "", r.id === compare.chosen ? "chosen-rank" : ""].filter(Boolean).join(" "),
    detail: rankDetail,
    tools: [choice("Show", "ranks-which", [["all", "all"], ["odd", "those with something"], ["uneven", "uneven ones"], ["bad", "out of memory, died"]], "all", value => {
      rankFilter.which = value;
      rankTable.again();
    })]
  });
  rankTable.draw();
  writeSplits();
  if (tensorsKnown)
    byId("ranks-tools")
        .after(el("p", {class: "hint", id: "ranks-when"},
            "What memory consists of (parameters to not tensors): " + data.breakdown_at + "."));
  if (data.helpers.length || data.left_out.helpers)
    byId("ranks-tools")
        .after(el("p", {class: "hint"},
            count(data.helpers.length + (data.left_out.helpers || 0)) +
                " helper processes (workers, compilers) are not listed, at most " +
                bytes(d3.max(data.helpers, h => h.peak_bytes) || 0) + " each."));
}
