/*
 * Parts that several pages are made of: tiles, cards of findings, bars, stacks, plain tables, notes.
 */

function tile(name, value, title) {
  return el("div", {class: "tile", title, "data-name": name, "data-bytes": typeof value === "number" ? value : null},
      el("span", null, name), el("b", null, typeof value === "number" ? bytes(value) : value));
}

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

/* "Places: a, b and 3 more"; null: there are none. */
const listOfLinks = (name, links) => !links.length ?
    null :
    el("p", {class: "links"}, name + ": ", ...links.slice(0, 12).flatMap((link, i) => i ? [", ", link] : [link]),
        links.length > 12 ? " and " + count(links.length - 12) + " more" : null);

/* A finding; advice: a list of children each; links: an element or null. */
function findingCard(f, {advice, links, open}) {
  return el("article", {class: "card finding " + f.family, "data-family": f.family},
      el("p", {class: "badges"}, el("span", {class: "badge family"}, f.family.replace(/_/g, " ")),
          el("span", {class: "badge"}, f.confidence)),
      el("h3", null, f.title),
      advice.length ? el("div", {class: "advice"}, el("h4", null, "What would help"),
                          el("ul", null, ...advice.map(children => el("li", null, ...children)))) :
                      null,
      f.evidence.length ? el("details", {open}, el("summary", null, "Evidence"),
                              el("ul", null, ...f.evidence.map(line => el("li", null, line))), links) :
                          links);
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

/* A bar from the middle: to the right more, to the left less. */
function changeBar(n, most) {
  const bar = el("i", {class: "change-bar " + (n > 0 ? "grew" : "shrank")}), share = most ? Math.abs(n) / most : 0;
  bar.style.width = (share * 50).toFixed(2) + "%";
  bar.style.left = (n > 0 ? 50 : 50 - share * 50).toFixed(2) + "%";
  return el("div", {class: "change", "aria-hidden": "true"}, bar);
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

/* --- tables of figures, and notes --- */

function table(caption, head, rows) {
  return el("div", {class: "card scroll"},
      el("table", {class: "plain"}, el("caption", null, caption),
          el("thead", null, el("tr", null, ...head.map(h => el("th", {scope: "col"}, h)))),
          el("tbody", null,
              ...rows.map(r => el("tr", null, ...r.map(c => c instanceof Node ? c : el("td", null, c)))))));
}

function putNotes(notes, source) {
  byId("note-list")
      .append(...notes.map(note => el("li", null, note)),
          el("li", null, "Made by vramtrack " + data.version + (source ? " from " + source : "") + "."));
}
