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
  if (p.rank !== null) add("rank", p.rank + (p.world_size !== null ? " of " + p.world_size : ""));
  add("ran for", seconds(p.duration_s));
  add("ended", data.ended, p.end);
  add("figures of", data.moment + ", at " + seconds(data.moment_s), "The moment that the figures below belong to");
  if (data.training.steps) add("steps", count(data.training.steps), "counted by " + data.training.counted_by);
  add("started", new Date(p.start_unix * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC");
  if (p.python) add("Python", p.python);
  const verdict = data.failures.some(f => f.kind === "oom" || f.kind === "framework_oom" || f.kind === "pending") ?
      "bad" :
      p.end === "killed" ? "warn" :
                           "good";
  byId("head").append(el("h1", null, el("span", {class: "dot " + verdict, "aria-hidden": "true"}), data.program),
      el("p", {class: "command", title: "The command line"}, p.cmdline.join(" ").slice(0, 600)),
      el("dl", {class: "items"}, ...items), headTiles());
}

function tile(name, value, title) {
  return el("div", {class: "tile", title, "data-name": name, "data-bytes": typeof value === "number" ? value : null},
      el("span", null, name), el("b", null, typeof value === "number" ? bytes(value) : value));
}

/* The figures that most people come for: of the cards' memory, whatever kind of call gave it. */
function headTiles() {
  const card = ["device", "array", "async", "vmm_physical", "graph"],
        of = level => data.totals.filter(t => t.level === level && card.includes(t.kind));
  const peak = level => data.timeline.scopes.filter(s => s.level === level && s.class === "device")
                            .reduce((most, s) => Math.max(most, s.peak_bytes), 0);
  const sum = (rows, key) => rows.reduce((s, r) => s + r[key], 0), tensors = of("tensor"), driver = of("driver");
  const ooms =
      data.failures.filter(f => ["oom", "framework_oom", "pending"].includes(f.kind)).reduce((s, f) => s + f.count, 0);
  const host = data.totals.filter(t => t.level === "driver" && ["pinned", "registered"].includes(t.kind));
  return el("div", {class: "tiles head-tiles"},
      tile("driver, live", sum(driver, "live_bytes"), "What this process holds by CUDA calls"),
      tile("driver, peak", peak("driver"), "The highest of one GPU"),
      tensors.length ? tile("tensors, live", sum(tensors, "live_bytes")) : null,
      tensors.length ? tile("tensors, peak", peak("tensor"), "The highest of one GPU") : null,
      sum(host, "peak_bytes") >= 1048576 ? tile("page-locked, live", sum(host, "live_bytes")) : null,
      tile("allocations", count(sum(tensors.length ? tensors : driver, "alloc_calls")),
          tensors.length ? "Tensors made" : "Calls that allocated"),
      tile("out of memory", ooms ? count(ooms) + (ooms === 1 ? " time" : " times") : "never"));
}

/* --- findings --- */

/* A link to a row of the table of places. */
const placeLink = (id, name) => el("a", {
  href: "#place-" + id,
  class: "name",
  title: name,
  onclick: e => {
    e.preventDefault();
    revealPlace(id);
  }
},
    name);

function finding(f, i) {
  const advice = f.advice.map(
      a => el("li", null, a.text + " ",
          a.saves_bytes === null ? null :
                                   el("span", {
                                     class: "saves" + (a.enough ? " enough" : ""),
                                     "data-bytes": a.saves_bytes,
                                     title: exact(a.saves_bytes)
                                   },
                                       "saves up to " + bytes(a.saves_bytes) + (a.enough ? ": enough" : ""))));
  const named = new Set(),
        known = f.sites.filter(
            id => siteById.has(id) && !named.has(siteById.get(id).label) && named.add(siteById.get(id).label));
  return el("article", {class: "card finding " + f.family, "data-family": f.family},
      el("p", {class: "badges"}, el("span", {class: "badge family"}, f.family.replace("_", " ")),
          el("span", {class: "badge"}, f.confidence)),
      el("h3", null, f.title),
      advice.length ? el("div", {class: "advice"}, el("h4", null, "What would help"), el("ul", null, ...advice)) : null,
      f.evidence.length || known.length ?
          el("details", {open: i < 2}, el("summary", null, "Evidence"),
              el("ul", null, ...f.evidence.map(line => el("li", null, line))),
              known.length ?
                  el("p", {class: "links"}, "Places: ",
                      ...known.slice(0, 12).flatMap((id, n) => n ? [", ", placeLink(id, siteById.get(id).label)] :
                                                                   [placeLink(id, siteById.get(id).label)]),
                      known.length > 12 ? " and " + (known.length - 12) + " more" : null) :
                  null) :
          null);
}

function writeFindings() { byId("findings").append(...data.findings.map(finding)); }

/* --- the account --- */

/* [class, name, bytes] of all that a card's memory is; what isn't known is left out, and adds to nothing. */
function partsOf(account) {
  const parts = [], add = (kind, name, n) => {
    if (n) parts.push([kind, name, n]);
  };
  for (const kind of ["parameters", "gradients", "optimizer", "activations", "inputs", "other"])
    add(kind,
        kind === "optimizer" ? "optimizer state" :
            kind === "other" ? "other tensors" :
                               kind,
        account.tensors[kind]);
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

function bar(parts, whole, label) {
  return el("div", {class: "bar", role: "img", "aria-label": label}, ...parts.map(([kind, name, n]) => {
    const part = el("div", {
      class: "part k-" + kind,
      "data-bytes": n,
      onmouseleave: hideTip,
      onmousemove: e => showTip(e, [name, bytes(n) + " (" + percent(n, whole) + ")", exact(n)])
    },
        n / whole > 0.09 ? el("span", null, name) : null);
    part.style.flexGrow = String(n / whole * 1000);
    return part;
  }));
}

function accountCard(device) {
  const parts = partsOf(device.account), sum = parts.reduce((s, p) => s + p[2], 0), total = device.total_bytes;
  const own = parts.filter(p => !["process", "reserved", "unaccounted", "free"].includes(p[0])),
        held = own.reduce((s, p) => s + p[2], 0);
  const known = total !== null && sum === total;
  return el("article", {class: "card", "data-device": device.index, "data-sum": sum},
      el("h3", null, gpu(device.index) + ": " + (device.name || "unknown") + " ",
          total === null ? null : bytesIn("span", total, {class: "of"})),
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

function writeAccounts() {
  byId("accounts").append(...data.devices.map(accountCard));
  if (!data.devices.length) byId("accounts").append(el("p", {class: "card"}, "No GPU was used."));
}

/* --- stacks for people --- */

/* The frames of a stack as a list, innermost first; those that reports leave out are folded away. */
function stackList(node, cut, user) {
  const list = stackOf(node), items = [];
  let hidden = 0;
  list.forEach(({frame, hidden: skipped}, i) => {
    hidden += skipped;
    items.push(el("li", {
      class: (skipped ? "hidden-frame" : "") + (frame.python ? " python" : "") + (i === user ? " user" : ""),
      title: [frame.label, frame.file && frame.file + (frame.line ? ":" + frame.line : ""), frame.module]
                 .filter(Boolean)
                 .join("\n")
    },
        el("span", null, frame.label)));
  });
  if (cut) items.push(el("li", {class: "cut"}, "... cut: as many frames as the recording keeps"));
  if (!list.length) items.push(el("li", null, "(no stack)"));
  const box = el("div", {class: "stack" + (data.all_frames ? " every" : "")}, el("ol", null, ...items));
  if (hidden)
    box.prepend(el("button", {
      type: "button",
      class: "quiet small",
      "aria-pressed": String(data.all_frames),
      onclick: e => {
        e.target.setAttribute("aria-pressed", String(box.classList.toggle("every")));
      }
    },
        "all " + list.length + " frames"));
  return box;
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
  if (!data.failures.length) list.append(el("p", {class: "card quiet-text"}, "No call failed."));
  if (data.left_out.failures)
    list.append(el("p", {class: "hint"},
        count(data.left_out.failures) + " more are not in this page; vramtrack report shows them."));
}

/* --- tables of figures --- */

function table(caption, head, rows) {
  return el("div", {class: "card scroll"},
      el("table", {class: "plain"}, el("caption", null, caption),
          el("thead", null, el("tr", null, ...head.map(h => el("th", {scope: "col"}, h)))),
          el("tbody", null,
              ...rows.map(r => el("tr", null, ...r.map(c => c instanceof Node ? c : el("td", null, c)))))));
}

function writeFigures() {
  const n = value => el("td", {class: "n"}, count(value)), b = value => bytesIn("td", value);
  byId("figure-tables")
      .append(table("Totals by level, kind and device",
          ["level", "kind", "device", "live", "allocations", "peak", "allocated", "freed", "failed"],
          data.totals.map(
              t => [t.level, t.kind.replace(/_/g, " "), gpu(t.device), b(t.live_bytes), n(t.live_count),
                  b(t.peak_bytes), n(t.alloc_calls), n(t.free_calls), n(t.failed_allocs + t.failed_frees)])));
  if (data.allocators.length)
    byId("figure-tables")
        .append(table("What frameworks' allocators say of themselves",
            ["library", "framework", "device", "allocated", "reserved", "reserved at most", "limit", "refused"],
            data.allocators.filter(Boolean).map(
                a => [a.library, a.framework, gpu(a.device), b(a.allocated_bytes), b(a.reserved_bytes),
                    b(a.reserved_peak_bytes), a.limit_bytes === null ? "" : b(a.limit_bytes), n(a.ooms)])));
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
  byId("note-list")
      .append(...notes.map(note => el("li", null, note)),
          el("li", null,
              "Made by vramtrack " + data.version + (data.recording ? " from " + data.recording : "") + "."));
}
