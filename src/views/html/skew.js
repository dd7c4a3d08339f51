/*
 * Ranks that differ from the median one, and the places that make the difference.
 */

function skewRow(name, d, most) {
  return el("tr", {"data-site": d.site}, el("td", null, name),
      d.bytes === undefined ? el("td") : bytesIn("td", d.bytes, {title: exact(d.bytes) + " in " + count(d.count)}),
      d.bytes === undefined ?
          el("td") :
          bytesIn("td", d.median_bytes, {title: exact(d.median_bytes) + " in " + count(d.median_count)}),
      el("td", {class: "n", "data-bytes": d.difference, title: exact(d.difference)}, signed(d.difference)),
      el("td", {class: "tight"}, changeBar(d.difference, most)));
}

function skewCard(s) {
  const most = Math.max(Math.abs(s.rest), d3.max(s.sites, d => Math.abs(d.difference)) || 0);
  const left = s.site_count - s.sites.length;
  return el("article", {class: "card skew", "data-rank": s.index},
      el("p", {class: "badges"}, el("span", {class: "badge uneven"}, s.difference > 0 ? "more" : "less"),
          el("span", {class: "badge"}, s.confidence)),
      el("h3", null, rankLink(s.index), " ", s.measure === "peak" ? "at its peak" : "live", ": ",
          bytesIn("span", s.bytes, {class: null}), ", ", el("span", {"data-bytes": s.difference}, signed(s.difference)),
          " against ", rankLink(s.against), " (", bytesIn("span", s.median_bytes, {class: null}), ")"),
      el("div", {class: "scroll"},
          el("table", {class: "skew-table"},
              el("thead", null,
                  el("tr", null,
                      ...["Place", ranks[s.index] ? ranks[s.index].name : "this rank",
                          ranks[s.against] ? ranks[s.against].name : "median", "Difference", ""]
                          .map((h, i) => el("th", {scope: "col",
                            class: i === 4 ? "tight" :
                                i          ? "n" :
                                             null},
                                   h)))),
              el("tbody", null,
                  ...s.sites.map(d => skewRow(d.site >= 0 ? placeLink(d.site, sites[d.site].label) : d.name, d, most)),
                  s.rest || left ? skewRow(left > 0 ? count(left) + " smaller places, and what is in none" :
                                                      "in no place: cached, smaller places, another instant",
                                       {difference: s.rest, site: null}, most) :
                                   null))));
}

const SKEW_CARDS = 8;

function writeSkew() {
  const box = byId("skews"),
        show = many => box.replaceChildren(...data.skew.slice(0, many).map(skewCard),
            ...(data.skew.length > many ?
                    [button("Show all " + count(data.skew.length), null, () => show(data.skew.length), "skew-show")] :
                    []));
  show(SKEW_CARDS);
  if (!data.skew.length)
    box.append(el("p", {class: "card quiet-text"}, "No rank differs from the median by 64 MiB and a tenth."));
  if (data.left_out.skew)
    box.append(el("p", {class: "hint"},
        count(data.left_out.skew) + " more are not in this page; vramtrack report --json has them all."));
}
