"""`vramtrack diff --html` in a real browser: figures are those of the comparison as JSON, and everything can be used."""
import json
import os
import re
import subprocess

import hostile_names
import test_diff
import test_html
import vt

MIB = 1 << 20
plain = test_html.plain


class DiffPage(test_html.Page):
    def record(self, *acts, program=None):
        before = set(self.recordings())
        done = self.run_program([program or vt.compile("job_program.c", "-lcudart", "-lcuda"), *acts], SIM_DEVICES=4, VRAMTRACK_REPORT="off")
        self.assertEqual(done.returncode, 0, done.stderr)
        path, = set(self.recordings()) - before
        return path

    def run_diff(self, *arguments):
        done = subprocess.run([vt.COMMAND, "diff", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, cwd=self.dir)
        return done.returncode, done.stdout, done.stderr

    def compare(self, *arguments, width=1280):
        """The comparison as JSON, and its page in a browser."""
        status, text, error = self.run_diff("--json", *arguments)
        self.assertEqual((status, error), (0, ""))
        self.assertEqual(self.run_diff("--html", "diff.html", "--force", *arguments), (0, "", ""))
        page = os.path.join(self.dir, "diff.html")
        self.assertLessEqual(os.path.getsize(page), 10000000)
        return json.loads(text), self.show(page, width)

    def places(self):
        """The rows of places, in order: (before, after, change)."""
        return [tuple(map(int, row)) for row in self.browser.run(
            "[...document.querySelectorAll('#places-table tr[data-site]')].map(r => ['before', 'after', 'change'].map("
            "key => r.querySelector('[data-key=' + key + ']').dataset.bytes))")]

    def sums(self, kind="all"):
        return self.values("#places-table tr[data-sum=%s] td[data-bytes]" % kind)


class Diff(DiffPage):
    def pairs(self, sites):
        return [tuple(s["bytes"][k] for k in ("before", "after", "change")) for s in sites]

    def test_figures(self):
        one = self.record("weights:64", "grads:32", "kept:8")
        two = self.record("weights:64", "grads:48", "snapshots:100")
        found, b = self.compare(one, two)
        self.assertEqual(self.texts("h1"), ["GPU memory grew by 108.00 MiB"])
        self.assertEqual(self.values(".change-tile"), [found["device_bytes"]["change"]])
        self.assertEqual(self.texts(".side h3"), [one, two])
        self.assertEqual(self.values("#categories td[data-bytes]"), [v for p in found["categories"].values() if p["before"] or p["after"]
                                                                     for v in (p["before"], p["after"], p["change"])])
        self.assertEqual(self.values("#total-tables td[data-bytes]"), [v for t in found["totals"] for v in
                                                                       (t["bytes"]["before"], t["bytes"]["after"], t["bytes"]["change"])])
        changed = [s for s in found["sites"] if s["bytes"]["change"]]
        self.assertEqual((self.places(), len(changed)), (self.pairs(changed), 3))
        self.assertEqual(self.texts("#places-table .badge"), [s["what"] for s in changed])
        self.assertEqual(self.sums(), [40 * MIB, 148 * MIB, 108 * MIB])
        for choice, words in (("all", ("appeared", "grew", "vanished", "unchanged")), ("vanished", ("vanished",)), ("grew", ("grew",))):
            self.choose("#places-what", choice)
            self.assertEqual(self.places(), self.pairs([s for s in found["sites"] if s["what"] in words]))
        self.choose("#places-what", "all")
        b.click("#places-table [data-sort=before]")
        self.assertEqual([p[0] for p in self.places()], sorted((s["bytes"]["before"] for s in found["sites"]), reverse=True))
        b.click("#places-table [data-sort=size]")
        self.assertEqual(self.places(), self.pairs(found["sites"]))
        b.run("byId('places-search').focus()")
        b.type("make_grads")
        b.wait("byId('places-table').dataset.rows === '1'")
        b.click("#places-table .place")
        self.assertIn("32.00 MiB in 1", self.texts(".site-detail dd"))

        # The flame graph: as wide as what is chosen, coloured by the change.
        for measure in ("before", "after", "change"):
            self.choose("#flame-measure", measure)
            self.assertEqual(int(b.run("byId('flame-chart').dataset.total")), sum(abs(s["bytes"][measure]) for s in found["sites"]))
        change = lambda name: b.run("Number(document.querySelector('#flame-chart .frame[data-label^=%s]').dataset.change)" % name)
        self.assertEqual([change(n) for n in ("all", "keep_snapshots", "make_grads", "keep_results")], [108 * MIB, 100 * MIB, 16 * MIB, -8 * MIB])
        red, blue = (b.run("(c => c.r > c.b)(d3.rgb(document.querySelector('#flame-chart .frame[data-label^=%s] rect').getAttribute('fill')))" % n)
                     for n in ("keep_snapshots", "keep_results"))
        self.assertEqual((red, blue), (True, False))
        b.click("#flame-chart .frame[data-label^=keep_snapshots]")
        b.click("#flame-places")
        self.assertEqual(self.places(), [(0, 100 * MIB, 100 * MIB)])
        self.assert_quiet()

    def test_moved_lines(self):
        """A place whose lines have changed is one place, with both stacks."""
        one = self.record("64", "32", program=vt.compile(test_diff.EDITED % (5, 9), "-lcudart", name="edited-one"))
        two = self.record("80", "32", program=vt.compile(test_diff.EDITED % (25, 39), "-lcudart", name="edited-two"))
        found, b = self.compare(one, two)
        self.assertEqual([s["moved"] for s in found["sites"]], [True, True])
        self.assertEqual(self.places(), self.pairs(found["sites"]))
        self.choose("#places-what", "moved")
        self.assertEqual(len(self.places()), 2)
        b.click("#places-table .place")
        self.assertTrue([t for t in self.texts(".site-detail li") if t.startswith("load (edited.c:25)")], self.texts(".site-detail li"))
        self.assertTrue([t for t in self.texts(".site-detail li") if t.startswith("load (edited.c:5)")])
        self.assert_quiet()

    def test_jobs(self):
        """Two jobs: ranks too; on a phone."""
        tool = vt.compile("job_recordings.c")
        sides = []
        for name, ranks in (("a", 8), ("b", 9)):
            sides.append(os.path.join(self.dir, name))
            os.mkdir(sides[-1])
            subprocess.run([tool, sides[-1], str(ranks), "5"], check=True)
        found, b = self.compare(*sides, width=360)
        b.resize(360, 740, mobile=True)
        self.assertEqual(self.values("#total-tables .card + .card td[data-bytes]:nth-child(4)"),
                         sorted((r["change"] for r in found["ranks"]), key=abs, reverse=True))
        self.choose("#places-what", "all")
        self.assertEqual(self.sums(), [found["device_bytes"][k] for k in ("before", "after", "change")])
        for state in ("", "for (const s of sites) places.open.add(s.id); places.draw()", "toggleTheme()"):
            b.run(state + ";0")
            self.assertEqual(b.run("[document.documentElement.scrollWidth, innerWidth]"), [360, 360])
        self.assert_quiet()

    def test_hostile_names(self):
        paths = [hostile_names.record(self, test_html.PROGRAM, REPEAT=i) for i in range(2)]
        found, b = self.compare(*paths)
        with open(os.path.join(self.dir, "diff.html"), encoding="utf-8") as f:
            text = f.read()
        block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
        self.assertRegex(block, r"\A[\x20-\x7e\n]*\Z")
        self.assertNotIn("<", block)
        self.choose("#places-what", "all")
        b.run("for (const s of sites) places.open.add(s.id); places.draw();")
        self.assertEqual(self.places(), self.pairs(found["sites"]))
        label = "%s (%s:2)" % (plain(test_html.HOSTILE_FUNCTION), plain(os.path.basename(test_html.HOSTILE_FILE)))
        self.assertIn(label, self.texts("#places .stack li"))
        everything = b.run("document.body.innerText + [...document.querySelectorAll('*')].flatMap(e => [...e.attributes].map(a => a.value)).join('')")
        self.assertIsNone(re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", everything))
        self.assertEqual(b.run("document.querySelectorAll('main img, main svg:not(.flame svg), main script, title *').length"), 0)
        self.assert_quiet()


class Command(DiffPage):
    LOOKS = False

    def test_file(self):
        one, two = self.record("weights:64"), self.record("weights:96")
        self.assertEqual(self.run_diff("--html", "d.html", one, two), (0, "", ""))
        with open(os.path.join(self.dir, "d.html")) as f:
            first = f.read()
        self.assertTrue(first.startswith("<!DOCTYPE html>") and first.endswith("</html>\n"))
        self.assertEqual(self.run_diff("--html", "d.html", one, two), (2, "", "vramtrack diff: d.html is there already (--force replaces it)\n"))
        self.assertEqual(self.run_diff("--html", "d.html", "--force", one, two), (0, "", ""))
        self.assertEqual(self.run_diff("--html", "-", one, two), (0, first, ""))
        for path in (one, two):
            self.assertEqual(self.run_diff("--html", path, "--force", one, two), (2, "", "vramtrack diff: %s is the recording itself\n" % path))
        self.assertEqual(self.run_diff("--html", "x", "--json", one, two), (2, "", "vramtrack diff: --html goes without --json\n"))
        self.assertEqual(self.run_diff("--html", "", one, two), (2, "", "vramtrack diff: --html needs a file name\n"))
        self.assertEqual(self.run_diff("--force", one, two), (2, "", "vramtrack diff: --force is for --html\n"))
        status, text, error = self.run_diff("--html", "e.html", "--fail-on-growth", "5%", one, two)
        self.assertEqual((status, text), (1, ""))
        self.assertIn("memory grew by 32.00 MiB", error)
        self.assertEqual(sorted(f for f in os.listdir(self.dir) if "html" in f), ["d.html", "e.html"])
