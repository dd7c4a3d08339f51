/*
 * The map of segments: what lies where in the memory that a framework has taken from the driver. Every segment is a strip as
 * wide as it has bytes; blocks are coloured by the place that holds them, free gaps are empty. A chosen segment is shown again
 * over the whole width.
 */

const STRIP = 18, GAP = 4, LEAST = 5, ROWS_OF_MAP = 14;

/* [site or -1 (free) or -2 (many small ones), bytes, live bytes, blocks] */
function blocksOf(segment) {
  const list = [], b = segment.blocks;
  for (let i = 0; i < b.length;)
    if (b[i] === -2) {
      list.push([-2, b[i + 1], b[i + 2], b[i + 3]]);
      i += 4;
    } else {
      list.push([b[i], b[i + 1], b[i] < 0 ? 0 : b[i + 1], 1]);
      i += 2;
    }
  return list;
}

const placeName = id => siteById.has(id) ? siteById.get(id).group : "place " + id + " (not in this page)";

/* Colours of places, found once per drawing: there are many more blocks than places. */
function blockColour(map, id) {
  if (!map.colours.has(id)) map.colours.set(id, placeColour(placeName(id)));
  return map.colours.get(id);
}

/* The lines of code that hold most of a map, and their bytes: places that read the same are one. */
function holdersOf(map) {
  const held = new Map();
  for (const segment of map.segments)
    for (const [site, , live] of segment.list)
      if (site >= 0) held.set(placeName(site), (held.get(placeName(site)) || 0) + live);
  return [...held].sort((a, b) => b[1] - a[1]);
}

/* Where each segment is drawn: one after the other in rows, none wider than a row. */
function placeSegments(map, width) {
  const all = map.segments.reduce((s, segment) => s + segment.bytes, 0),
        largest = map.segments.length ? map.segments[0].bytes : 1;
  const scale = Math.min(width / largest, 0.9 * width * Math.min(ROWS_OF_MAP, Math.ceil(all / largest)) / (all || 1));
  let x = 0, y = 0;
  for (const segment of map.segments) {
    segment.w = Math.min(width, Math.max(LEAST, segment.bytes * scale));
    if (x && x + segment.w > width + 0.5) {
      x = 0;
      y += STRIP + GAP;
    }
    segment.x = x;
    segment.y = y;
    x += segment.w + GAP;
  }
  return y + STRIP + GAP;
}

function drawBlocks(canvas, map, segment, x, y, w, h) {
  let at = 0;
  canvas.fillStyle = css("free");
  canvas.fillRect(x, y, w, h);
  for (const [site, size, live] of segment.list) {
    const left = x + w * at / segment.bytes, right = x + w * (at + size) / segment.bytes;
    at += size;
    if (site === -1) continue;
    canvas.fillStyle = site >= 0 ? blockColour(map, site) : css("c-other");
    const thick = site >= 0 ? h : h * live / size;
    canvas.fillRect(left, y + h - thick, Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.4), thick);
  }
  canvas.lineWidth = 1;
  canvas.strokeStyle = css(segment.pinned ? "bad" : segment.private ? "c-optimizer" : "line");
  canvas.strokeRect(x + 0.5, y + 0.5, Math.max(1, w - 1), h - 1);
}

/* A canvas as wide as its box, sharp on every screen. Returns [context, width]. */
function fit(canvas, height) {
  const width = Math.max(160, canvas.parentElement.clientWidth), ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return [context, width];
}

function drawMap(map) {
  const width = Math.max(160, map.canvas.parentElement.clientWidth), height = placeSegments(map, width),
        [context] = fit(map.canvas, height);
  for (const segment of map.segments) drawBlocks(context, map, segment, segment.x, segment.y, segment.w, STRIP);
  if (map.chosen) {
    context.strokeStyle = css("accent");
    context.lineWidth = 2;
    context.strokeRect(map.chosen.x - 1, map.chosen.y - 1, map.chosen.w + 2, STRIP + 2);
  }
  drawChosen(map);
}

function segmentLines(map, s) {
  const flags = [
    s.pinned && "pinned: live blocks keep much free memory in it", s.private && "of a CUDA graph's private pool",
    s.expandable && "expandable"
  ].filter(Boolean);
  return [
    bytes(s.bytes) + " segment at " + s.address,
    bytes(s.live_bytes) + " live, " + bytes(s.bytes - s.live_bytes) + " free, largest gap " + bytes(s.largest_gap),
    bytes(s.releasable) + " could be given back", flags.join("; "),
    siteById.has(s.site) ? "from " + placeName(s.site) : null
  ];
}

function drawChosen(map) {
  const s = map.chosen;
  map.detail.hidden = !s;
  if (!s) return;
  const [context, width] = fit(map.strip, 34);
  drawBlocks(context, map, s, 0, 0, width, 34);
  map.about.textContent = segmentLines(map, s).filter(Boolean).join(" · ");
  map.canvas.dataset.chosen = s.address;
}

/* The block of a segment at a share of its width. */
function blockAt(segment, share) {
  let at = 0;
  for (const block of segment.list) {
    if (share * segment.bytes < at + block[1] || block === segment.list[segment.list.length - 1]) return [block, at];
    at += block[1];
  }
  return [[-1, 0, 0, 0], 0];
}

function blockLines(segment, [[site, size, live, number], offset]) {
  const where = "at +" + bytes(offset) + " of the segment at " + segment.address;
  if (site === -1) return ["free: " + bytes(size), exact(size), where];
  if (site === -2) return [count(number) + " small blocks: " + bytes(size), bytes(live) + " of them live", where];
  const place = siteById.get(site);
  return [
    placeName(site), bytes(size) + " (" + exact(size) + ")",
    place && [place.category, place.phase !== "none" && place.phase].filter(Boolean).join(", "), where
  ];
}

function hoverMap(map, e) {
  const box = map.canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  const s = map.segments.find(seg => y >= seg.y && y < seg.y + STRIP && x >= seg.x && x < seg.x + seg.w);
  if (!s) return hideTip();
  showTip(
      e, [...blockLines(s, blockAt(s, (x - s.x) / s.w)), segmentLines(map, s)[0], s.pinned ? "pinned segment" : null]);
}

function chooseSegment(map, segment) {
  map.chosen = segment;
  drawMap(map);
}

function mapKey(map, e) {
  const at = map.segments.indexOf(map.chosen),
        next = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: map.segments.length - 1}[e.key];
  if (next !== undefined)
    chooseSegment(map, map.segments[Math.max(0, Math.min(map.segments.length - 1, next))]);
  else if (e.key === "Escape") {
    chooseSegment(map, null);
    delete map.canvas.dataset.chosen;
  } else
    return;
  e.preventDefault();
}

function mapTiles(f) {
  const tiles = [];
  const add = (name, value, title) => {
    if (value !== null && value !== undefined) tiles.push(tile(name, value, title));
  };
  add("reserved", f.reserved_bytes, "What the framework has taken from the driver");
  add("in tensors", f.allocated_bytes);
  add("cached but unused", f.free_in_segments, "Reserved, and in no tensor");
  add("largest free block", f.largest_free_block);
  add("could be given back", f.releasable_bytes, "What the allocator could return to the driver now");
  add("segments", f.segments === null ? null : count(f.segments));
  if (f.pinned_segments)
    add("free in pinned segments", f.pinned_bytes,
        count(f.pinned_segments) + (f.pinned_segments === 1 ? " segment" : " segments"));
  if (f.private_pool_bytes) add("private pools", f.private_pool_bytes, "Memory that only CUDA graphs may use");
  if (f.oom) add("newest refusal", f.oom.requested_bytes, "Asked for when memory ran out");
  if (f.would_fit_if_contiguous !== null) add("would have fit in one piece", f.would_fit_if_contiguous ? "yes" : "no");
  return el("div", {class: "tiles"}, ...tiles);
}

function writeMap(f) {
  const map = data.map.find(m => m.device === f.device);
  const card = el("article", {class: "card", "data-device": f.device},
      el("h3", null, gpu(f.device) + (f.framework ? ": " + f.framework : "")), mapTiles(f));
  byId("maps").append(card);
  if (!map || !map.segments.length) {
    card.append(el("p", {class: "hint"}, "What lies where is not known at this moment."));
    return;
  }
  for (const segment of map.segments) segment.list = blocksOf(segment);
  const holders = holdersOf(map);
  map.canvas = el("canvas", {
    class: "map",
    tabindex: "0",
    role: "img",
    "aria-label": count(map.segments.length) + " segments of " + gpu(f.device) + "; arrow keys choose one",
    onmousemove: e => hoverMap(map, e),
    onmouseleave: hideTip,
    onkeydown: e => mapKey(map, e),
    onclick: e => {
      const box = map.canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
      chooseSegment(map, map.segments.find(s => y >= s.y && y < s.y + STRIP && x >= s.x && x < s.x + s.w) || null);
    }
  });
  map.strip = el("canvas", {
    class: "map",
    title: "Click: the place in the table",
    onmouseleave: hideTip,
    onclick: e => {
      const box = map.strip.getBoundingClientRect();
      revealPlace(blockAt(map.chosen, (e.clientX - box.left) / box.width)[0][0]);
    },
    onmousemove: e => {
      const box = map.strip.getBoundingClientRect();
      showTip(e, blockLines(map.chosen, blockAt(map.chosen, (e.clientX - box.left) / box.width)));
    }
  });
  map.about = el("p", {class: "hint", "aria-live": "polite"});
  map.detail = el("div", {class: "strip", hidden: true}, map.about, el("div", null, map.strip));
  map.legend = el("div", {class: "legend"});
  card.append(el("div", null, map.canvas), map.detail, map.legend,
      el("p", {class: "hint"},
          "Largest segment first; a strip is as wide as it has bytes, colours are places, empty is free, a red frame is a pinned segment. Click or arrow keys enlarge one."));
  if (map.grain)
    card.append(el("p", {class: "hint"},
        "Neighbours smaller than " + bytes(map.grain) + " are drawn together, as high as they are live."));
  if (map.others)
    card.append(el(
        "p", {class: "hint"}, count(map.others) + " smaller segments (" + bytes(map.other_bytes) + ") are not drawn."));
  const draw = () => {
    map.colours = new Map();
    map.legend.replaceChildren(...holders.slice(0, 12).map(([name, held]) => {
      const swatch = el("i", {class: "swatch"});
      swatch.style.background = placeColour(name);
      return el("span", {class: "key", "data-bytes": held}, swatch, el("span", {class: "name", title: name}, name),
          el("b", null, bytes(held)));
    }));
    drawMap(map);
  };
  themed.push(draw);
  addEventListener("resize", later(() => drawMap(map), 150));
  draw();
}

function writeMaps() {
  if (!data.fragmentation.length) {
    byId("map").remove();
    document.querySelector("#nav a[href=\"#map\"]").remove();
    return;
  }
  data.fragmentation.forEach(writeMap);
}
