/*
 * The places of one recording, and what they are weighed by.
 */

const textKeys = new Set(data.site_texts);
const sites = data.sites.map(row => {
  const site = {};
  data.site_keys.forEach((key, i) => {
    site[key] = textKeys.has(key) ? text(row[i]) : row[i];
  });
  site.label = site.name || labelOf(site);
  site.group =
      site.label; /* as the text report, the timeline and the map call it; rows of one group differ in what is called */
  return site;
});
tellApart(sites);
const siteById = new Map(sites.map(site => [site.id, site]));

/* What the recording lacks: figures of that are too low, and what is empty may be missing. */
const STOPPED = "what came after recording stopped";
const lacks = part =>
    data.missing !== null && data.missing.split(", ").some(missing => missing === part || missing === STOPPED);
const NOT_RECORDED = "not in the recording";

/* Categories of tensors, called the same everywhere. What is in none is "other" in the account. */
const TENSOR_NAMES = {
  optimizer: "optimizer state",
  other: "other tensors",
  unknown: "other tensors"
};

/* What a place is weighed by; with the recorded moments, which are added below. */
const measures = [
  ["live_bytes", "live at " + data.moment], ["at_peak_bytes", "at the peak"], ["total_bytes", "ever allocated"],
  ["leaked_bytes", "leaked"]
];
for (const moment of data.at) {
  const key = "at " + moment.name;
  for (const site of sites) site[key] = 0;
  for (let i = 0; i < moment.values.length; i += 2) sites[moment.values[i]][key] = moment.values[i + 1];
  measures.push([key, "at " + moment.name]);
}

const LEVELS =
    [["all", "tensors and what is outside of them"], ["tensor", "tensors"], ["driver", "driver allocations"]];
const inLevel = (row, level) => row.memory && (level === "all" ? row.shown : row.level === level);
const hasTensors = sites.some(s => s.level === "tensor") || data.others.some(o => o.level === "tensor");

rankPlaces(sites.filter(site => site.shown), site => Math.max(site.live_bytes, site.at_peak_bytes));

/* What the flame graph is made of. */
function flameRows(measure, level) {
  const list = [], grounds = row => [gpu(row.device), kindName(row)];
  for (const site of sites)
    if (site[measure] > 0 && inLevel(site, level))
      list.push({grounds: grounds(site), stack: site.stack, value: site[measure]});
  for (const other of data.others)
    if (other[measure] > 0 && inLevel(other, level))
      list.push(
          {grounds: grounds(other), label: "(all others: " + count(other.sites) + " places)", value: other[measure]});
  const moment = data.at.find(m => "at " + m.name === measure);
  if (moment && moment.others[level] > 0) list.push({grounds: [], label: "(all others)", value: moment.others[level]});
  return list;
}

function writeStacks() {
  const has = key => sites.some(s => s[key] > 0 && s.memory) || data.others.some(o => o[key] > 0);
  let level = "all";
  writeFlame({
    measures: measures.filter(([key]) => has(key)),
    rows: measure => flameRows(measure, level),
    tools: hasTensors ? [choice("Of", "flame-level", LEVELS, level,
                            value => {
                              level = value;
                              redoFlame();
                            })] :
                        []
  });
  if (!byId("flame"))
    document.querySelector("#nav a[href=\"#flame\"]").remove();
  else if (data.at_more)
    byId("flame-tools").after(el("p", {id: "flame-moments", class: "hint"}, momentsHint()));
}

/* Which recorded moments can't be chosen here, and how to see one of them. */
function momentsHint() {
  const named = data.at_left.map(name => "\u201c" + name + "\u201d"), more = data.at_more - named.length;
  return count(data.at.length) + " of " + count(data.at.length + data.at_more) +
      " other recorded moments can be chosen here, not " + named.join(", ") +
      (more ? " and " + count(more) + " more" : "") +
      ": vramtrack report --html PAGE --moment NAME FILE makes the page of another one.";
}
