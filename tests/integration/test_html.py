"""`vramtrack report --html` in a real browser: figures are those of the JSON report, everything can be used, nothing breaks out."""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import unittest

import browser
import hostile_names
import torch_case
import vt

MIB = 1 << 20
NAME = "tr<b>'&.py"
HOSTILE_FILE = 'x</script><script>window.broken=1</script><img src="http://127.0.0.1:1/x" onerror="window.broken=2">\n\x01\u202e\\.py'
HOSTILE_FUNCTION = "f\u202e</title><svg onload=window.broken=3>`${window.broken=4}`"

PROGRAM = hostile_names.program(HOSTILE_FILE, HOSTILE_FUNCTION, '''\
cudart.cudaFree(own)
cudart.cudaFree(own)
for _ in range(int(os.environ.get("REPEAT", 1))): work()
os._exit(0)
''')

UNSAFE = re.compile("[\0-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
KEYS = ("live_bytes", "live_count", "at_peak_bytes", "peak_bytes", "total_bytes", "alloc_calls")


def plain(text):
    """As the page shows a name."""
    return UNSAFE.sub(lambda c: "\\u{%x}" % ord(c[0]), text)


class Page(torch_case.Base):
    """A page of a recording, opened in a browser."""

    LOOKS = True  # at pages, with a browser

    def setUp(self):
        super().setUp()
        if self.LOOKS and not browser.find():
            self.assertFalse(os.environ.get("VT_NEED_BROWSER"), "no Chromium here, and VT_NEED_BROWSER asks for one")
            self.skipTest("no Chromium or Chrome here (Debian: chromium); VT_CHROMIUM names one")

    def record(self, **env):
        return hostile_names.record(self, PROGRAM, **env)

    def write(self, recording, *options):
        page = os.path.join(self.dir, "report.html")
        done = subprocess.run([vt.COMMAND, "report", "--html", page, *options, recording], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertLessEqual(os.path.getsize(page), 10000000)
        return page

    def show(self, page, width=1280, height=900, **look):
        self.browser = browser.Browser(width, height, **look)
        self.addCleanup(self.browser.close)
        self.browser.open(page).wait('document.documentElement.dataset.ready === "yes"')
        return self.browser

    def assert_quiet(self):
        """Nothing on the console, and nothing asked for but the file itself."""
        self.assertEqual(self.browser.console, [])
        self.assertEqual([r[:8] for r in self.browser.requests if not r.startswith("data:")], ["file:///"])
        self.assertIsNone(self.browser.run("window.broken === undefined ? null : window.broken"))

    def texts(self, selector):
        return self.browser.run("[...document.querySelectorAll(%s)].map(e => e.textContent)" % json.dumps(selector))

    def values(self, selector, name="bytes"):
        return [None if v is None else int(v) for v in
                self.browser.run("[...document.querySelectorAll(%s)].map(e => e.dataset.%s ?? null)" % (json.dumps(selector), name))]

    def choose(self, selector, value):
        self.browser.run("(e => { e.value = %s; e.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector(%s))" %
                         (json.dumps(value), json.dumps(selector)))

    def table(self):
        """The rows of places as {id: {column: value}}, in order."""
        return {int(i): row for i, row in self.browser.run(
            "[...document.querySelectorAll('#places-table tr[data-site]')].map(r => [r.dataset.site, Object.fromEntries("
            "[...r.querySelectorAll('td[data-key]')].map(c => [c.dataset.key, Number(c.dataset.bytes ?? c.dataset.value)]))])")}


class Html(Page):
    def shown(self, report, level="all"):
        memory = [s for s in report["sites"] if s["kind"] not in ("vmm_mapped", "vmm_reserved_va", "imported")]
        return [s for s in memory if (s["level"] == "tensor" or not s["holds_tensors"] if level == "all" else s["level"] == level)]

    def test_figures(self):
        """Account, totals, findings, places, flame graph, segments and failures are those of the JSON report."""
        recording = self.record()
        report, b = self.report(recording), self.show(self.write(recording))
        failed = self.report(recording, moment="oom-1")  # the account of the diagnosis comes first
        self.assertEqual(b.run("[...document.querySelectorAll('#accounts article')].map(e => e.dataset.moment)"), ["oom-1", "end"])
        times = {m["name"]: m["time_s"] for m in report["moments"]}
        self.assertEqual([re.search("; .*", t)[0] for t in self.texts("#accounts h3")],
                         ["; when memory ran out (oom-1, %.3f s)" % times["oom-1"], "; at the end (end, %.3f s)" % times["end"]])
        for moment, device in [("oom-1", d) for d in failed["devices"]] + [("end", d) for d in report["devices"]]:
            account, card = device["account"], "#accounts [data-moment='%s'][data-device='%d'] " % (moment, device["index"])
            parts = [v for v in account["tensors"].values() if v] + [account[k] for k in ("cached_unused", "application") if account[k]] + \
                [x["bytes"] for x in account["libraries"]] + [account["context_and_code"]] + [x["bytes"] for x in account["other_processes"]] + \
                [account[k] for k in ("driver_reserved", "unaccounted", "free")]
            parts = [p for p in parts if p]
            self.assertEqual(self.values(card + ".parts .n"), parts)
            self.assertEqual(sum(parts), device["total_bytes"])
            self.assertEqual(self.values(card + "> .bar .part"), parts)
            self.assertEqual(self.values("#accounts article", "sum"), 2 * [device["total_bytes"]])
        self.assertEqual(self.texts("#findings h3"), [plain(f["title"]) for f in report["findings"]])
        self.assertEqual(self.values("#findings .saves"), [a["saves_bytes"] for f in report["findings"] for a in f["advice"] if a["saves_bytes"]])
        advice = [a for f in report["findings"] for a in f["advice"]]
        saves = ["saves up to %s%s" % (b.run("bytes(%d)" % a["saves_bytes"]), ": enough" if a["enough"] else "") if a["saves_bytes"] else "" for a in advice]
        self.assertEqual(self.texts("#findings .advice li"), [plain(a["text"]) + " " + s for a, s in zip(advice, saves)])
        self.assertEqual(self.values("#figure-tables .card:first-child td[data-bytes]"),
                         [v for t in report["totals"] for v in (t["live_bytes"], t["peak_bytes"])])

        self.assertEqual(self.texts("#figure-tables .card:first-child th"),
                         ["level", "kind", "device", "live", "count", "peak", "allocations", "frees", "failed"])
        made = sum(t["alloc_calls"] for t in report["totals"] if t["level"] == "tensor" and t["kind"] == "device")
        self.assertEqual(self.texts(".head-tiles [data-name=allocations] b"), [format(made, ",")])

        self.choose("#places-level", "every")
        self.assertEqual(self.values("tr[data-sum=all] td[data-key=live_bytes]"), [sum(s["live_bytes"] for s in self.shown(report))])
        self.assertEqual(self.table(), {s["id"]: dict({k: s[k] for k in KEYS}, grown=s["growth"]["bytes"]) for s in report["sites"]})
        for level in ("all", "driver", "tensor"):
            self.choose("#places-level", level)
            expected = self.shown(report, level)
            self.assertEqual(set(self.table()), {s["id"] for s in expected})
            sums = b.run("Object.fromEntries([...document.querySelectorAll('tr[data-sum=all] td[data-key]')].map("
                         "c => [c.dataset.key, Number(c.dataset.bytes ?? c.dataset.value)]))")
            self.assertEqual(sums, {k: sum(s[k] for s in expected) for k in KEYS if k != "peak_bytes"})
            for key in ("live_bytes", "at_peak_bytes", "total_bytes"):
                self.choose("#flame-level", level)
                self.choose("#flame-measure", key)
                self.assertEqual(int(b.run("byId('flame-chart').dataset.total")), sum(s[key] for s in expected))
        driver = sum(t["live_bytes"] for t in report["totals"] if t["level"] == "driver")
        self.choose("#flame-level", "driver")
        self.choose("#flame-measure", "live_bytes")
        self.assertEqual(int(b.run("byId('flame-chart').dataset.total")), driver)

        f, = report["fragmentation"]
        tiles = self.values("#maps .tile")
        self.assertEqual(tiles[:5], [f[k] for k in ("reserved_bytes", "allocated_bytes", "free_in_segments", "largest_free_block",
                                                    "releasable_bytes")])
        self.assertEqual(b.run("data.map[0].segments.reduce((s, x) => s + x.list.reduce((t, y) => t + y[1], 0), 0)"), f["reserved_bytes"])
        self.assertEqual(b.run("data.map[0].segments.reduce((s, x) => s + x.list.reduce((t, y) => t + y[2], 0), 0)"), f["allocated_bytes"])
        self.assertEqual(len(report["failures"]), 2)
        self.assertEqual(self.texts("#failure-list .badge:first-child"), [x["kind"].replace("_", " ") for x in report["failures"]])
        self.assertEqual(self.values("#failure-list p[data-bytes]"), [x["requested_bytes"] for x in report["failures"]])
        self.choose("#timeline-view", "totals")
        peaks = {t["level"]: t["peak_bytes"] for t in report["totals"] if t["kind"] == "device"}
        self.assertEqual(dict(zip(self.texts("#timeline-legend .key .name"), self.values("#timeline-legend .key"))),
                         {"tensors": peaks["tensor"], "driver allocations": peaks["driver"]})
        ends = {s["level"]: s["points"][-1] for s in b.run("data.timeline.scopes") if s["class"] == "device"}
        self.assertEqual(ends, {t["level"]: t["live_bytes"] for t in report["totals"] if t["kind"] == "device"})
        for scope in b.run("data.timeline.scopes"):
            self.assertEqual(max(scope["points"][2::3]), scope["peak_bytes"])
        for layers in b.run("data.timeline.layers"):
            width = len(layers["names"]) + 1
            self.assertEqual(sum(layers["points"][-width + 1:]), sum(s["live_bytes"] for s in self.shown(report) if s["device"] == 0))
            for layer, highest in enumerate(layers["highest"]):  # a point is where the sum is highest, and not each layer
                self.assertGreaterEqual(highest, max(layers["points"][1 + layer::width]))
            if layers["by"] == "category":
                at_peak = self.report(recording, "peak")["devices"][0]["account"]["tensors"]
                for name, highest in zip(layers["names"], layers["highest"]):
                    self.assertGreaterEqual(highest, at_peak.get(name, 0))
        self.assert_quiet()

    def test_hostile_names(self):
        """Whatever a name says, it is text: in every part of the page, in the order that it is written in."""
        recording = self.record()
        page = self.write(recording)
        with open(page, encoding="utf-8") as f:
            text = f.read()
        block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
        self.assertRegex(block, r"\A[\x20-\x7e\n]*\Z")
        self.assertNotIn("<", block)
        json.loads(block)
        self.assertRegex(text, r"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
                               r"script-src 'sha256-\S+' 'sha256-\S+'; style-src 'sha256-\S+'; base-uri 'none'; form-action 'none'\">")
        self.assertEqual(len(re.findall("<script", text)), 3)
        b = self.show(page)
        self.choose("#places-level", "every")
        b.run("for (const s of sites) places.open.add(s.id); places.limit = 1e9; drawPlaces();")
        label = "%s (%s:2)" % (plain(HOSTILE_FUNCTION), plain(os.path.basename(HOSTILE_FILE)))
        self.assertIn(label, self.texts("#places .stack li"))
        self.assertTrue([t for t in self.texts("#places .stack li") if t.startswith("BROK\\xff\\xfeNAME (")])
        self.assertIn(label, b.run("[...document.querySelectorAll('#flame-chart .frame')].map(g => g.dataset.label)"))
        b.hover("#flame-chart .frame[data-label^='f']")
        self.assertIn(label, b.run("byId('tip').textContent"))
        everything = b.run("document.body.innerText + [...document.querySelectorAll('*')].flatMap(e => [...e.attributes].map(a => a.value)).join('')")
        self.assertIsNone(re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", everything))
        self.assertEqual(b.run("document.querySelectorAll('main img:not(.chart img), main svg:not(.flame svg), main script, title *').length"), 0)
        # The policy holds even against a script that gets in.
        b.run("{ const s = document.createElement('script'); s.textContent = 'window.broken = 5'; document.body.append(s); }")
        self.assertTrue(any("Content Security Policy" in said for _, said in b.console))
        b.console.clear()
        self.assert_quiet()

    def test_use(self):
        """Zoom, search, sorting, filters, stacks and colours, by mouse and by keyboard."""
        recording = self.record()
        report, b = self.report(recording), self.show(self.write(recording))
        window = lambda: tuple(map(float, b.run("[byId('timeline-chart').dataset.from, byId('timeline-chart').dataset.to]")))
        whole = window()
        b.run("byId('timeline-chart').focus()")
        b.key("+")
        zoomed = window()
        self.assertAlmostEqual(zoomed[1] - zoomed[0], (whole[1] - whole[0]) / 2, 4)
        b.key("ArrowRight")
        self.assertGreater(window()[0], zoomed[0])
        b.key("0")
        b.wait("byId('timeline-chart').dataset.to === '%.6f'" % whole[1])
        left, top, width, height = b.box("#timeline-chart")
        b.mouse("mouseMoved", left + width * 0.4, top + 100)
        b.mouse("mousePressed", left + width * 0.4, top + 100, button="left", buttons=1, clickCount=1)
        b.mouse("mouseMoved", left + width * 0.6, top + 100, button="left", buttons=1)
        b.mouse("mouseReleased", left + width * 0.6, top + 100, button="left", clickCount=1)
        b.wait("byId('timeline-chart').dataset.to < %f" % whole[1])
        self.assertLess(window()[1] - window()[0], (whole[1] - whole[0]) / 2)
        b.click("#timeline-all")
        b.wait("byId('timeline-chart').dataset.to === '%.6f'" % whole[1])
        for view in ("category", "place", "totals"):
            self.choose("#timeline-view", view)
            b.hover("#timeline-chart", 0.7)
            b.wait("byId('timeline-legend').textContent.startsWith('at ')")

        # The flame graph: by mouse, by keys, search, upside down.
        self.choose("#flame-level", "tensor")
        tensors = sum(s["live_bytes"] for s in self.shown(report, "tensor"))
        work = sum(s["live_bytes"] for s in self.shown(report, "tensor") if any((f["function"] or "") == "work" for f in s["frames"]))
        b.click("#flame-chart .frame[data-label^='work']")
        self.assertTrue(b.run("byId('flame-chart').dataset.zoom").startswith("work ("))
        self.assertEqual(int(b.run("String(flame.zoom.value)")) <= work, True)
        b.click("#flame-places")  # the places of a frame, in the table
        self.assertEqual(set(self.table()), {s["id"] for s in self.shown(report) if any((f["function"] or "") == "work" for f in s["frames"])})
        self.choose("#places-search", "")
        b.run("byId('places-search').dispatchEvent(new Event('input'))")
        b.wait("places.words === ''")
        b.run("byId('flame-chart').focus()")
        b.key("Escape")
        self.assertEqual(b.run("byId('flame-chart').dataset.zoom"), "all")
        b.run("flame.chosen = flame.root; drawFlame()")
        for _ in range(2):
            b.key("ArrowDown")
        b.key("Enter")
        self.assertEqual(b.run("byId('flame-chart').dataset.zoom"), "tensors")
        b.click("#flame-reset")
        b.key("/")
        self.assertEqual(b.run("document.activeElement.id"), "flame-search")
        b.type("WORK (")
        b.wait("byId('flame-found').dataset.bytes !== ''")
        self.assertEqual(int(b.run("byId('flame-found').dataset.bytes")), work)
        self.assertGreater(b.run("document.querySelectorAll('#flame-chart .match').length"), 0)
        self.choose("#flame-search", "")
        b.run("byId('flame-search').dispatchEvent(new Event('input'))")
        b.wait("byId('flame-found').textContent === ''")
        deepest = b.run("flame.root.leaves()[0].data.label")
        b.click("#flame-inverted")
        self.assertEqual(int(b.run("byId('flame-chart').dataset.total")), tensors)
        self.assertIn(deepest, b.run("flame.root.descendants().filter(n => n.depth === 3).map(n => n.data.label)"))
        b.click("#flame-inverted")
        self.choose("#flame-stacks", "native")
        self.assertEqual(b.run("flame.root.descendants().filter(n => n.data.frame && n.data.frame.python).length"), 0)
        self.choose("#flame-stacks", "python")
        self.assertEqual(b.run("flame.root.descendants().filter(n => n.data.frame && !n.data.frame.python).length"), 0)

        # The table.
        self.assertEqual(b.run("growthText({growth: {bytes: -2097152, allocs: -2, bytes_per_s: -1048576}})"), "\u22122.00 MiB (\u22121.00 MiB/s)")
        ids = lambda: list(self.table())
        sites = {s["id"]: s for s in report["sites"]}
        self.assertEqual([sites[i]["live_bytes"] for i in ids()], sorted((s["live_bytes"] for s in self.shown(report)), reverse=True))
        b.click("[data-sort=alloc_calls]")
        self.assertEqual([sites[i]["alloc_calls"] for i in ids()], sorted((s["alloc_calls"] for s in self.shown(report)), reverse=True))
        b.key("Enter", "\r")  # the button is still in focus
        self.assertEqual([sites[i]["alloc_calls"] for i in ids()], sorted(s["alloc_calls"] for s in self.shown(report)))
        self.assertEqual(b.run("document.querySelector('th[aria-sort=ascending]').textContent.trim().split(' ')[0]"), "Calls")
        b.run("document.activeElement.blur()")
        b.key("f")
        b.type("grab")
        b.wait("byId('places-table').dataset.rows === '1'")
        self.assertEqual([sites[i]["total_bytes"] for i in ids()], [7 * MIB])
        b.click("#places-table button.place")
        shown = self.texts("#places-table .stack li:not(.hidden-frame)")
        self.assertTrue(shown[0].startswith("grab (train.py:") and shown[-1].startswith("<module> (train.py:"), shown)
        site, = ids()
        visible = [f for f in sites[site]["frames"]]
        self.assertEqual(len(self.texts("#places-table .stack li")), len(visible))

        # Segments, by keys; colours.
        b.run("document.querySelector('#maps canvas').focus()")
        b.key("ArrowRight")
        b.wait("!document.querySelector('#maps .strip').hidden")
        self.assertIn("segment at 0x", b.run("document.querySelector('#maps .strip p').textContent"))
        b.hover("#maps .strip canvas", 0.01)
        b.wait("!byId('tip').hidden")
        background = lambda: b.run("getComputedStyle(document.body).backgroundColor")
        light = background()
        b.click("#theme")
        dark = background()
        self.assertNotEqual(light, dark)
        b.run("document.activeElement.blur()")
        b.key("t")
        self.assertEqual(background(), light)
        b.resize(1280, 900, dark=True)
        b.run("delete document.documentElement.dataset.theme")
        self.assertEqual(background(), dark)
        self.assert_quiet()

    def test_looks(self):
        """Names stay inside of their frames, tools that belong together on one line, and colours that mean something else look so."""
        b = self.show(self.write(self.record()), width=420)
        cut = "[...document.querySelectorAll('#flame-chart .frame')].filter(f => f.querySelector('text').textContent.endsWith('\u2026'))"
        self.assertGreater(b.run(cut + ".length"), 0)
        self.assertEqual(b.run(cut + ".filter(f => f.querySelector('text').getComputedTextLength() + 4 > f.querySelector('rect').getBBox().width)"
                               ".map(f => f.dataset.label)"), [])
        for width in (1280, 1000, 700):
            b.resize(width, 900)
            self.assertLess(b.run("Math.abs(byId('flame-reset').getBoundingClientRect().top - byId('flame-search').getBoundingClientRect().top)"), 4)
            self.assertLess(b.run("byId('flame-reset').getBoundingClientRect().height"), 32)
        for dark in (False, True):
            b.resize(1280, 900, dark=dark)
            near = b.run("(() => { const far = (a, b) => { const x = d3.rgb(css('c-' + a)), y = d3.rgb(css('c-' + b)); return Math.hypot(x.r - y.r, x.g - y.g, x.b - y.b); };"
                         "return layerColours.slice(0, 9).flatMap((a, i, all) => [...all.slice(i + 1), 'rest', 'free'].filter(b => far(a, b) < 38).map(b => a + ' ' + b)); })()")
            self.assertEqual(near, [])
        largest = b.run("(() => { data.timeline.layers.push({device: -9, by: 'category', names: ['libcublas.so', 'libcudnn.so'], points: [0, 9, 1], highest: [9, 1]});"
                        "const view = layersView(-9, 'category'); return view.colours[view.names.indexOf('libcublas.so')] === css('c-library'); })()")
        self.assertTrue(largest)  # as in the account
        self.assert_quiet()

    def test_events_lost(self):
        """Where old events were not kept, the timeline is the recording's own, and the page says so; peaks stay exact."""
        recording = self.record(VRAMTRACK_EVENTS=128, REPEAT=20)
        report, b = self.report(recording), self.show(self.write(recording))
        self.assertGreater(b.run("data.timeline.events_lost"), 100)
        self.assertIn("Single events are kept from", b.run("byId('timeline-note').textContent"))
        live = {t["level"]: t["live_bytes"] for t in report["totals"] if t["kind"] == "device"}
        for scope in b.run("data.timeline.scopes"):
            self.assertEqual(max(scope["points"][2::3]), scope["peak_bytes"])
            self.assertEqual(scope["points"][::3], sorted(scope["points"][::3]))
            if scope["class"] == "device":
                self.assertEqual(scope["points"][-1], live[scope["level"]])
        for layers in b.run("data.timeline.layers"):
            self.assertEqual(sum(layers["points"][-len(layers["names"]):]), sum(s["live_bytes"] for s in self.shown(report) if s["device"] == 0))
            self.assertGreater(layers["points"][0], 0)
        self.assert_quiet()

    def test_phone_and_paper(self):
        recording = self.record()
        b = self.show(self.write(recording), 360, 740)
        b.resize(360, 740, mobile=True)
        for state in ("", "for (const s of sites) places.open.add(s.id); drawPlaces()", "toggleTheme()"):
            b.run(state + ";0")
            self.assertEqual(b.run("[document.documentElement.scrollWidth, innerWidth]"), [360, 360])
            wide = b.run("[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 361 && !e.closest("
                         "'.scroll, .flame, svg, canvas, .dygraph-axis-label')).map(e => e.tagName + '.' + e.className).slice(0, 5)")
            self.assertEqual(wide, [])
        self.assertGreater(len(b.call("Page.printToPDF")["data"]), 20000)
        self.assert_quiet()


class Command(Page):
    LOOKS = False

    def run_report(self, *options):
        done = subprocess.run([vt.COMMAND, "report", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, cwd=self.dir)
        return done.returncode, done.stdout, done.stderr

    def test_file(self):
        """The file is whole or not there; one that is there stays, unless --force says otherwise."""
        recording = self.record()
        page = os.path.join(self.dir, "r.html")
        self.assertEqual(self.run_report("--html", "r.html", recording), (0, "", ""))
        with open(page) as f:
            first = f.read()
        self.assertTrue(first.startswith("<!DOCTYPE html>") and first.endswith("</html>\n"))
        self.assertEqual(self.run_report("--html", "r.html", recording), (2, "", "vramtrack report: r.html is there already (--force replaces it)\n"))
        self.assertEqual(self.run_report("--html", "r.html", "--force", recording), (0, "", ""))
        self.assertEqual(self.run_report("--html", "-", recording), (0, first, ""))
        self.assertEqual(self.run_report("--html", recording, "--force", recording)[0], 2)
        self.assertEqual(self.run_report("--html", "none/r.html", recording), (2, "", "vramtrack report: none/r.html: No such file or directory\n"))
        self.assertEqual(self.run_report("--html", "x", "--json", recording),
                         (2, "", "vramtrack report: --html goes without --json\n"))
        self.assertEqual(self.run_report("--html", "x", "--all", "."),
                         (2, "", "vramtrack report: --html goes without --all\n"))
        self.assertEqual(self.run_report("--force", recording), (2, "", "vramtrack report: --force is for --html\n"))
        self.assertEqual(self.run_report("--html", "", recording), (2, "", "vramtrack report: --html needs a file name\n"))
        self.assertEqual(self.run_report("--html", "y.html", "--moment", "never", recording)[0], 2)
        self.assertEqual(self.run_report("--html", "y.html", "--fail-on", "misuse", recording)[0], 1)
        self.assertEqual(sorted(f for f in os.listdir(self.dir) if "html" in f), ["r.html", "y.html"])


@unittest.skipIf(vt.SAN == "tsan", "one thread and a lot of data: TSan has nothing to look for")
class Full(Page):
    """A recording that is as full as it gets, made by bench/recording."""

    def make(self, sites, events, live, distinct=20000, depth=40):
        program = os.path.join(vt.BUILD, "bench", "recording")
        numbers = [str(n) for n in (sites, depth, distinct)]
        return subprocess.run([program, "-e", str(events), "-l", str(live), self.dir, *numbers, vt.COMMAND], check=True,
                              stdout=subprocess.PIPE, text=True, timeout=120).stdout.strip()

    def test_full(self):
        """A million events, 100,000 live blocks, 10,000 places: everything is there, in a file of at most 10 MB."""
        recording = self.make(10000, 1 << 20, 100000)
        b = self.show(self.write(recording))
        report = self.report(recording)
        self.assertEqual(b.run("sites.length + data.others.reduce((s, o) => s + o.sites, 0)"), len(report["sites"]))
        live = sum(s["live_bytes"] for s in report["sites"] if s["level"] == "tensor")
        self.choose("#flame-level", "tensor")
        self.assertEqual(int(b.run("byId('flame-chart').dataset.total")), live)
        self.choose("#places-level", "tensor")
        self.assertEqual(self.values("tr[data-sum=all] td[data-key=live_bytes]"), [live])
        self.assertEqual(b.run("data.map[0].segments.reduce((s, x) => s + x.list.reduce((t, y) => t + y[2], 0), 0)"), live)
        self.assertEqual(self.values("#places-table", "rows"), [10000])
        self.assertEqual(len(self.table()), 50)
        b.click("#places-show")
        self.assertEqual(len(self.table()), 250)
        self.assert_quiet()

    def test_too_much(self):
        """More places than a page can hold: those that hold most, and all others added up; and the page says so."""
        recording = self.make(40000, 100000, 80000, 5000, 6)
        b = self.show(self.write(recording))
        report = self.report(recording)
        listed, others = b.run("sites.length"), b.run("data.others.reduce((s, o) => s + o.sites, 0)")
        self.assertEqual(listed + others, len(report["sites"]))
        self.assertGreater(listed, 5000)
        self.assertGreater(others, 5000)
        live = sum(s["live_bytes"] for s in report["sites"] if s["level"] == "tensor")
        self.choose("#flame-level", "tensor")
        self.assertEqual(int(b.run("byId('flame-chart').dataset.total")), live)
        self.choose("#places-level", "tensor")
        self.assertEqual(self.values("tr[data-sum=all] td[data-key=live_bytes]"), [live])
        self.assertEqual(self.values("tr[data-sum=others] td[data-key=live_count]", "value"),
                         [b.run("data.others.reduce((s, o) => s + (o.level === 'tensor' ? o.live_count : 0), 0)")])
        self.assertIn("%s places are not listed one by one in this page" % format(others, ","), " ".join(self.texts("#note-list li")))
        self.assert_quiet()
