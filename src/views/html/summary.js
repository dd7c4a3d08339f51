/*
 * The top of the page: the program, what is wrong and what would help, and for each GPU where all of its memory is. And its
 * end: totals, allocators, programs, failures, notes.
 */

function writeHead() {
  const p = data.process, items = [];
  const add = (name, value, title) => {
    if (value !== null && value !== "")
      items.push(el("div", {class: "item", title}, el("dt", null, name), el("dd", null, value)));
  };
  document.title = "GPU memory of " + data.program + " (pid " + p.pid + ")";
  add("pid", String(p.pid));
  add("host", p.host);
  if (p.rank !== null) add("rank", p.rank + (p.world_size > p.rank ? " of " + p.world_size : ""));
  add("ran for", seconds(p.duration_s) + " from its first CUDA call");
  add("ended", data.ended, p.end);
  add("figures of", data.moment + ", at " + seconds(data.moment_s), "The moment that the figures below belong to");
  if (data.training.steps) add("steps", count(data.training.steps), "counted by " + data.training.counted_by);
  add("started", new Date(p.start_unix * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC",
      "Its first CUDA call, from which all times count");
  if (p.python) add("Python", p.python);
  const loud = data.findings.some(f => f.family !== "none" && f.confidence !== "possible");
  const verdict = data.failures.some(f => f.kind === "oom" || f.kind === "framework_oom" || f.kind === "pending") ?
      "bad" :
      p.end === "killed" || data.missing || loud ? "warn" :
                                                   "good";
  byId("head").append(el("h1", null, el("span", {class: "dot " + verdict, "aria-hidden": "true"}), data.program),
      el("p", {class: "command", title: "The command line"}, p.cmdline.join(" ").slice(0, 600)),
      data.incomplete ? el("p", {class: "card incomplete", role: "alert"}, data.incomplete) : "",
      el("dl", {class: "items"}, ...items), headTiles());
}

/* A figure of a part of the recording: if it is lacking, the figure may be higher than what is left says. What was live depends
 * on parts that no word names (what a moment copied). */
const atLeast = (lacking, value, show) => !lacking ? show(value) : value ? "at least " + show(value) : NOT_RECORDED;
const sizeTile = (lacking, name, value, title) => tile(name, lacking ? atLeast(lacking, value, bytes) : value, title);

/* Live and peak of a level, both of the same: of the one GPU, or of all GPUs added up; the title has each one's. */
function levelTiles(level, name, rows, about) {
  const scopes = data.timeline.scopes.filter(s => s.level === level && s.class === "device" && s.peak_bytes);
  const gpus = [...new Set([...scopes, ...rows].map(x => x.device))].sort((a, b) => a - b), several = gpus.length > 1;
  const live = d => d3.sum(rows.filter(r => r.device === d), r => r.live_bytes),
        peak = d => d3.sum(scopes.filter(s => s.device === d), s => s.peak_bytes);
  const each = of => several ? gpus.map(d => gpu(d) + ": " + bytes(of(d))).join(", ") : about;
  return [
    sizeTile(data.missing !== null, name + ", live" + (several ? ", " + gpus.length + " GPUs" : ""), d3.sum(gpus, live),
        each(live)),
    sizeTile(lacks("peaks"), name + (several ? ", peaks of " + gpus.length + " GPUs added" : ", peak"),
        d3.sum(gpus, peak), each(peak))
  ];
}

/* The figures that most people come for: of the cards' memory, whatever kind of call gave it. */
function headTiles() {
  const card = ["device", "array", "async", "vmm_physical", "graph"],
        of = level => data.totals.filter(t => t.level === level && card.includes(t.kind));
  const sum = (rows, key) => rows.reduce((s, r) => s + r[key], 0), tensors = of("tensor"), driver = of("driver");
  const ooms =
      data.failures.filter(f => ["oom", "framework_oom", "pending"].includes(f.kind)).reduce((s, f) => s + f.count, 0);
  const host = data.totals.filter(t => t.level === "driver" && ["pinned", "registered"].includes(t.kind));
  return el("div", {class: "tiles head-tiles"},
      ...levelTiles("driver", "driver", driver, "What this process holds by CUDA calls"),
      ...(tensors.length ? levelTiles("tensor", "tensors", tensors, null) : []),
      sum(host, "peak_bytes") >= 1048576 ? tile("page-locked, live", sum(host, "live_bytes")) : null,
      tile("allocations", atLeast(lacks("totals"), sum(tensors.length ? tensors : driver, "alloc_calls"), count),
          tensors.length ? "Tensors made" : "Calls that allocated"),
      tile("out of memory",
          !ooms ? (lacks("failures") ? NOT_RECORDED : "never") :
                  atLeast(lacks("failures"), ooms, n => count(n) + (n === 1 ? " time" : " times"))));
}

/* --- findings --- */

function finding(f, i) {
  const named = new Set(),
        known = f.sites.filter(
            id => siteById.has(id) && !named.has(siteById.get(id).group) && named.add(siteById.get(id).group));
  return findingCard(data.missing && f.family === "none" ? {...f, family: "incomplete"} : f, {
    open: i < 2,
    advice: f.advice.map(
        a => [a.text + " ",
            a.saves_bytes === null ? null :
                                     el("span", {
                                       class: "saves" + (a.enough ? " enough" : ""),
                                       "data-bytes": a.saves_bytes,
                                       title: exact(a.saves_bytes)
                                     },
                                         "saves up to " + bytes(a.saves_bytes) + (a.enough ? ": enough" : ""))]),
    links: listOfLinks("Places", known.map(id => placeLink(id, siteById.get(id).group)))
  });
}

function writeFindings() { byId("findings").append(...data.findings.map(finding)); }

/* --- the account --- */

/* [class, name, bytes] of all that a card's memory is; what isn't known is left out, and adds to nothing. */
function partsOf(account) {
  const parts = [], add = (kind, name, n) => {
    if (n) parts.push([kind, name, n]);
  };
  for (const kind of ["parameters", "gradients", "optimizer", "activations", "inputs", "other"])
    add(kind, TENSOR_NAMES[kind] || kind, account.tensors[kind]);
  add("cached", "cached but unused", account.cached_unused);
  add("application", "application", account.application);
  for (const library of account.libraries) add("library", library.module || "a library", library.bytes);
  add("context", "CUDA context and code", account.context_and_code);
  for (const other of account.other_processes)
    add("process", (other.name ? basename(other.name) + " " : "") + "(pid " + other.pid + ")", other.bytes);
  add("reserved", "reserved by the driver", account.driver_reserved);
  add("unaccounted", "unaccounted", account.unaccounted);
  add("free", "free", account.free);
  return parts;
}

/* Of one GPU, at a moment that its heading names. */
function accountCard(device, moment) {
  const parts = partsOf(device.account), sum = parts.reduce((s, p) => s + p[2], 0), total = device.total_bytes;
  const own = parts.filter(p => !["process", "reserved", "unaccounted", "free"].includes(p[0])),
        held = own.reduce((s, p) => s + p[2], 0);
  const known = total !== null && sum === total;
  return el("article", {class: "card", "data-device": device.index, "data-sum": sum, "data-moment": moment.name},
      el("h3", null, gpu(device.index) + ": " + (device.name || "unknown") + " ",
          total === null ? null : bytesIn("span", total, {class: "of"}),
          el("span", {class: "of"}, (total === null ? "" : "; ") + momentWords(moment))),
      bar(parts, sum, gpu(device.index) + ": " + parts.map(p => p[1] + " " + bytes(p[2])).join(", ")),
      held && held < 0.6 * sum ? el("div", null, el("p", {class: "hint"}, "Of that, this process: " + bytes(held)),
                                     bar(own, held, "This process")) :
                                 null,
      el("ul", {class: "parts"},
          ...parts.map(([kind, name, n]) => el("li", {"data-kind": kind}, el("i", {class: "swatch k-" + kind}),
                           el("span", {class: "name", title: name}, name), bytesIn("span", n),
                           el("span", {class: "share"}, percent(n, sum))))),
      el("p", {class: "hint"},
          known              ? "Adds up to the card's " + bytes(total) + "." :
              total === null ? "The card's size is not known." :
                               "Adds up to " + bytes(sum) + " of " + bytes(total) + "; the rest is not known."));
}

const momentWords = moment => moment.when + " (" + moment.name + ", " + seconds(moment.time_s) + ")";

/* First when memory ran out, as the diagnosis is of that; then the shown moment, if the process held something else. */
function writeAccounts() {
  const list = byId("accounts"), {then, shown} = data;
  if (then) list.append(...data.then_devices.map(device => accountCard(device, then)));
  if (then && then.same)
    list.append(el("p", {class: "hint"}, "The process held the same " + momentWords(shown) + "."));
  else
    list.append(...data.devices.map(device => accountCard(device, shown)));
  if (!data.devices.length)
    list.append(el("p", {class: "card"}, lacks("devices") ? "GPUs are " + NOT_RECORDED + "." : "No GPU was used."));
}

/* --- failures --- */

function failureCard(f) {
  const facts = [];
  if (f.requested_bytes) facts.push("requested " + bytes(f.requested_bytes));
  if (f.total_bytes !== null) facts.push(bytes(f.free_bytes) + " free of " + bytes(f.total_bytes));
  if (f.allocated_bytes) facts.push("tensors held " + bytes(f.allocated_bytes));
  if (f.reserved_bytes) facts.push("the process held " + bytes(f.reserved_bytes));
  if (f.pointer_offset !== null) facts.push(exact(f.pointer_offset) + " inside of an allocation");
  if (!f.driver_visible && f.kind !== "unknown_pointer") facts.push("refused without a call of the driver");
  const bad = !["retry"].includes(f.kind);
  return el("article", {class: "card failure", "data-kind": f.kind},
      el("p", {class: "badges"}, el("span", {class: "badge " + (bad ? "bad" : "")}, f.kind.replace(/_/g, " ")),
          el("span", {class: "badge"}, count(f.count) + (f.count === 1 ? " time" : " times")),
          f.device >= 0 ? el("span", {class: "badge"}, gpu(f.device)) : null),
      el("h3", null, f.api + (f.code ? ": " + (f.code_name || "error " + f.code) : "")),
      el("p", {"data-bytes": f.requested_bytes}, facts.join(" · ")),
      f.frames ? el("details", {open: true}, el("summary", null, "Stack"), stackList(f.frames, f.cut)) : null,
      f.allocated_at ? el("details", null, el("summary", null, "Allocated at"), stackList(f.allocated_at)) : null,
      f.freed_at ? el("details", null, el("summary", null, "First freed at"), stackList(f.freed_at)) : null);
}

function writeFailures() {
  const list = byId("failure-list");
  list.append(...data.failures.map(failureCard));
  if (!data.failures.length)
    list.append(el("p", {class: "card quiet-text"},
        lacks("failures") ? "Failed calls are " + NOT_RECORDED + "." : "No call failed."));
  if (data.left_out.failures)
    list.append(el("p", {class: "hint"},
        count(data.left_out.failures) + " more are not in this page; vramtrack report shows them."));
}

/* --- tables of figures --- */

function writeFigures() {
  const n = value => el("td", {class: "n"}, count(value)), b = value => bytesIn("td", value);
  if (data.totals.length)
    byId("figure-tables")
        .append(table("Totals by level, kind and device" +
                (data.earlier ? " (peak, allocations, frees and failed: of the whole run; live and count: at " +
                            data.moment + ")" :
                                ""),
            ["level", "kind", "device", "live", "count", "peak", "allocations", "frees", "failed"],
            data.totals.map(
                t => [t.level, t.kind.replace(/_/g, " "), gpu(t.device), b(t.live_bytes), n(t.live_count),
                    b(t.peak_bytes), n(t.alloc_calls), n(t.free_calls), n(t.failed_allocs + t.failed_frees)])));
  else
    byId("figure-tables")
        .append(el("p", {class: "card quiet-text"},
            lacks("totals") ? "Totals are " + NOT_RECORDED + "." : "Nothing was allocated."));
  if (data.allocators.length)
    byId("figure-tables")
        .append(table("What frameworks' allocators say of themselves",
            ["library", "framework", "device", "allocated", "reserved", "reserved at most", "limit", "refused"],
            data.allocators.filter(Boolean).map(
                a => [a.library, a.framework, gpu(a.device), b(a.allocated_bytes),
                    ...(a.reserved_peak_bytes ? [b(a.reserved_bytes), b(a.reserved_peak_bytes)] :
                                                ["", ""]), /* not told */
                    a.limit_bytes === null ? "" : b(a.limit_bytes), n(a.ooms)])));
  if (data.programs.length)
    byId("figure-tables")
        .append(table("Compiled programs", ["name", "framework", "runs", "temporary", "arguments", "outputs", "code"],
            data.programs.filter(Boolean).map(p => [p.name, p.framework, n(p.runs), b(p.temporary_bytes),
                                                  b(p.argument_bytes), b(p.output_bytes), b(p.code_bytes)])));
}

function writeNotes() {
  const notes = [...data.notes], left = data.left_out;
  for (const [name, number] of Object.entries(left))
    notes.push(name === "sites" ? count(number) +
                " places are not listed one by one in this page, which is at most 10 MB: they are added up as \"all others\"." :
                                  count(number) + " more " + name +
                " are not in this page, which is at most 10 MB; vramtrack report has them all.");
  if (data.timeline.scopes_left_out)
    notes.push(count(data.timeline.scopes_left_out) + " curves are not in the timeline.");
  putNotes(notes, data.recording);
}
