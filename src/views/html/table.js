/*
 * Long tables: sorted by any column, filtered by words, drawn as far as one looks, with rows that open.
 *
 *   makeTable("places", {
 *     columns   [{key, name, bytes, tight, value(row), cell(row, attributes), sum, show(n)}], the first one is the row's name;
 *               value: what is sorted by, row[key] if it is not given; sum: the sum of a list is of use, as `show` has it
 *     rows      all rows; each has an id, and the element of a row is "place-<id>" with `row: "place"`
 *     sort      what it is sorted by at first; null: as the rows come
 *     passes    row => is it asked for, but for the words
 *     words     row => texts that a filter looks at
 *     title     row => children of the button that opens the row; beside: what stands behind it
 *     detail    row => what is shown below
 *     together  rows => [name, rows] of the sum at the end; "together" and all of them if it is left out
 *     empty     what is said if there are no rows at all
 *     others    rows that stand for many, counted in sums (may be left out); othersName: how they are called
 *   })
 */

const PAGE_ROWS = 50;

function makeTable(name, spec) {
  const table =
      {sort: spec.sort, down: spec.down !== false, words: "", limit: PAGE_ROWS, open: new Set(), columns: spec.columns};
  const box = byId(name + "-table"), more = byId(name + "-more"), cache = new Map();
  const wordsOf = row => {
    if (!cache.has(row)) cache.set(row, spec.words(row).filter(Boolean).join("\n").toLowerCase());
    return cache.get(row);
  };

  table.chosen = () => {
    const words = table.words.toLowerCase().split(/\s+/).filter(Boolean),
          column = spec.columns.find(c => c.key === table.sort);
    const list = spec.rows.filter(row => spec.passes(row) && words.every(word => wordsOf(row).includes(word)));
    if (!column) return list;
    const value = column.value || (row => row[column.key]);
    return list.sort((a, b) => {
      const x = value(a), y = value(b),
            order = typeof x === "number" && typeof y === "number" ? x - y : d3.ascending(x, y);
      return (table.down ? -order : order) || a.id - b.id;
    });
  };

  const look = column => ({class: (column.words ? "" : "n") + (column.tight ? " tight" : ""), "data-key": column.key});
  const cell = (column, row) => column.cell ? column.cell(row, look(column)) :
      column.bytes                          ? bytesIn("td", row[column.key], look(column)) :
                     el("td", {...look(column), "data-value": row[column.key]}, count(row[column.key]));

  function rowsOf(row) {
    const open = table.open.has(row.id), id = spec.row + "-" + row.id;
    const toggle = el("button", {
      type: "button",
      class: "place",
      "aria-expanded": String(open),
      title: spec.hint,
      onclick: () => {
        if (!table.open.delete(row.id)) table.open.add(row.id);
        table.draw();
        if (byId(id)) byId(id).querySelector("button").focus();
      }
    },
        ...spec.title(row));
    const list = [el("tr", {
      id,
      ["data-" + (spec.data || spec.row)]: row.id,
      class: [open ? "open" : "", spec.look ? spec.look(row) : ""].filter(Boolean).join(" ") || null
    },
        el("td", null, toggle, ...(spec.beside ? spec.beside(row) : [])),
        ...spec.columns.slice(1).map(c => cell(c, row)))];
    if (open) list.push(el("tr", {class: "detail-row"}, el("td", {colspan: spec.columns.length}, spec.detail(row))));
    return list;
  }

  function sumRow(text, rows, kind) {
    const sum = key => rows.reduce((s, r) => s + (r[key] || 0), 0);
    return el("tr", {class: "sum", "data-sum": kind}, el("td", null, text),
        ...spec.columns.slice(1).map(c => !c.sum ? el("td", {class: c.tight ? "tight" : null}) :
                c.show  ? el("td", {...look(c), title: exact(sum(c.key)), "data-bytes": sum(c.key)},
                              c.show(sum(c.key))) :
                c.bytes ? bytesIn("td", sum(c.key), look(c)) :
                          el("td", {...look(c), "data-value": sum(c.key)}, count(sum(c.key)))));
  }

  function head(column) {
    const sorted = table.sort === column.key;
    return el("th", {
      scope: "col",
      class: [column.tight ? "tight" : "", column.words ? "words" : ""].filter(Boolean).join(" ") || null,
      "aria-sort": sorted ? (table.down ? "descending" : "ascending") : "none"
    },
        el("button", {
          type: "button",
          "data-sort": column.key,
          title: column.hint,
          onclick: () => {
            table.down = sorted ? !table.down : !column.words && !column.up;
            table.sort = column.key;
            table.draw();
            box.querySelector("[data-sort=\"" + column.key + "\"]").focus();
          }
        },
            column.name,
            el("span", {class: "arrow", "aria-hidden": "true"}, sorted ? (table.down ? " ▾" : " ▴") : "")));
  }

  table.draw = () => {
    const list = table.chosen(), shown = list.slice(0, table.limit),
          others = table.words || !spec.others ? [] : spec.others.filter(spec.passes);
    const body = el("tbody", null, ...shown.flatMap(rowsOf));
    if (list.length > shown.length)
      body.append(sumRow(count(list.length - shown.length) + " more in this list", list.slice(table.limit), "more"));
    if (others.length) body.append(sumRow(spec.othersName(others), others, "others"));
    if (list.length + others.length > 1 && spec.columns.some(c => c.sum))
      body.append(sumRow(...(spec.together || (rows => ["together", rows]))([...list, ...others]), "all"));
    if (!list.length && !others.length)
      body.append(el("tr", null,
          el("td", {colspan: spec.columns.length},
              (!spec.rows.length && spec.empty) || "No " + spec.one + " is like that.")));
    box.replaceChildren(
        el("table", {class: "places"}, el("thead", null, el("tr", null, ...spec.columns.map(head))), body));
    box.dataset.rows = list.length;
    more.replaceChildren(
        el("span", {class: "hint"}, count(shown.length) + " of " + count(list.length) + " " + spec.many));
    if (list.length > shown.length)
      more.append(button("Show more", null, () => {
        table.limit += 4 * PAGE_ROWS;
        table.draw();
      }, name + "-show"));
  };

  table.again = () => {
    table.limit = PAGE_ROWS;
    table.draw();
  };

  /* Opens a row that is named elsewhere; it passes. */
  table.reveal = row => {
    table.words = byId(name + "-search").value = "";
    table.limit = Math.max(table.limit, table.chosen().indexOf(row) + 1);
    table.open.add(row.id);
    table.draw();
    const element = byId(spec.row + "-" + row.id);
    element.scrollIntoView({block: "center"});
    element.querySelector("button").focus();
  };

  const search = el("input", {
    type: "search",
    id: name + "-search",
    placeholder: spec.placeholder,
    autocomplete: "off",
    spellcheck: "false",
    oninput: later(
        () => {
          table.words = search.value;
          table.again();
        },
        120)
  });
  byId(name + "-tools")
      .append(...(spec.tools || []), el("label", {class: "choice grow"}, el("span", null, "Filter"), search));
  themed.push(() => table.draw());
  return table;
}

/* The table of places shows those with these words. */
function filterPlaces(words) {
  places.words = byId("places-search").value = words;
  places.again();
  byId("places").scrollIntoView();
}

const drawPlaces = () => places.draw();

/* A place as a row's name: with its colour. */
function placeTitle(site) {
  const swatch = el("i", {class: "swatch"});
  swatch.style.background = placeColour(groupOf(site));
  return [swatch, el("span", null, site.label)];
}

/* Facts as [name, value], and the stack. */
const placeDetail = (site, facts) => el("div", {class: "site-detail"},
    el("dl", null, ...facts.filter(f => f[1] !== null && f[1] !== "" && f[1] !== undefined).flatMap(([n,
      v]) => [el("dt", null, n), el("dd", null, v)])),
    stackList(site.stack, site.cut, site.user));

/* What a filter looks at in a stack. */
const stackWords = node => stackOf(node).flatMap(({frame}) => [frame.label, frame.file]);
