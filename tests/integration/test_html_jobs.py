"""`vramtrack report --html` of a job, in a real browser: figures are those of the merged JSON report, and everything can be used."""
import json
import os
import re
import signal
import subprocess

import phase_programs
import test_categories
import test_html
import test_jobs_parts
import vt

MIB = 1 << 20
plain = test_html.plain


class JobPage(test_html.Page):
    """A page of the recordings in the test's directory."""

    def ranks(self, count, *acts, hosts=None, **env):
        running = [self.start_program([vt.compile("job_program.c", "-lcudart", "-lcuda"), *acts], SIM_DEVICES=8, VRAMTRACK_REPORT="off",
                                      RANK=rank, LOCAL_RANK=rank % 8, WORLD_SIZE=count, **env) for rank in range(count)]
        for process in running:
            process.communicate(timeout=120)

    def job(self, *options):
        done = subprocess.run([vt.COMMAND, "report", "--json", *options, self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        job = json.loads(done.stdout)
        self.assertEqual(job["schema"], "vramtrack-job/1")
        return job

    def rows(self, table):
        """The rows of a table as {id: {column: value}}, in order."""
        return {int(i): row for i, row in self.browser.run(
            "[...document.querySelectorAll('#%s-table tr[id]')].map(r => [r.id.replace(/.*-/, ''), Object.fromEntries("
            "[...r.querySelectorAll('td[data-key]')].map(c => [c.dataset.key, c.dataset.bytes ?? c.dataset.value ?? c.textContent]))])" % table)}

    def numbers(self, table, *keys):
        return [tuple(int(row[k]) for k in keys) for row in self.rows(table).values()]

    def total(self):
        return int(self.browser.run("byId('flame-chart').dataset.total"))

    def tiles(self):
        return dict(zip(self.texts("#head .tile span"), self.texts("#head .tile b")))


class Job(JobPage):
    def uneven(self):
        self.ranks(8, "weights:512", "grads:256", "fork:1", "temp:64", "5=snapshots:128", "3=full", "1=stray:2", "2=kill")
        job = self.job()
        self.assertEqual(sorted(f["family"] for f in job["findings"]), ["died", "out_of_memory", "rank_skew", "stray_context"])
        return job, self.show(self.write(self.dir))

    def test_figures(self):
        """Ranks, findings, skew, places, bars and the flame graph are those of the JSON report."""
        job, b = self.uneven()
        ranks = {r["rank"]: r for r in job["ranks"]}
        self.assertEqual([r["rank"] for r in job["ranks"] if sum(d["peak_bytes"] > 0 for d in r["devices"]) > 1], [1])
        self.assertEqual(len(self.texts("#ranks-gpus")), 1)
        self.assertRegex(self.texts("#ranks-gpus")[0], r"^\* and others, whose peaks are added: rank 1: [\d.]+ MiB on GPU 1, 2\.00 MiB on GPU 0\.$")
        self.assertEqual(b.run("[...document.querySelectorAll('td[data-key=device]')].map(x => x.textContent).filter(x => x.includes('*'))"), ["1*"])
        ids = {b.run("ranks[%d].rank" % i): i for i in range(8)}
        self.assertEqual({r: b.run("[ranks[%d].pid, ranks[%d].peak_bytes]" % (i, i)) for r, i in ids.items()},
                         {n: [r["pid"], r["peak_bytes"]] for n, r in ranks.items()})
        table = self.rows("ranks")
        for number, r in ranks.items():
            row = table[ids[number]]
            self.assertEqual((int(row["pid"]), int(row["device"]), int(row["peak_bytes"]), int(row["live_bytes"])),
                             (r["pid"], r["device"], r["peak_bytes"], r["live_bytes"]))
            self.assertEqual(row["end_words"], ("ran out of memory, " if r["out_of_memory"] else "") + r["end_words"])
            self.assertEqual(row["finding"], r["finding"] or "")
        odd = [r for r in ranks if r in (2, 3, 5)]
        self.assertEqual(list(table), [ids[n] for n in odd + [0, 1, 4, 6, 7]])  # what is odd comes first
        self.assertEqual(self.texts("#ranks .badge.bad"), ["out of memory" if r == 3 else "died" for r in odd if r != 5])
        self.assertEqual(self.texts("#ranks .badge.uneven"), ["more than the median"])
        self.assertIn("8 helper processes (workers, compilers) are not listed, at most 1.00 MiB each.", self.texts("#ranks .hint"))

        self.assertEqual(self.texts("#findings h3"), [f["title"] for f in job["findings"]])
        self.assertEqual(self.texts("#findings details li"), [e for f in job["findings"] for e in f["evidence"]])
        self.assertEqual(self.texts("#findings .advice li"), [a for f in job["findings"] for a in f["advice"]])
        self.assertEqual(self.texts("#findings .links a"), ["rank %d" % r for f in job["findings"] for r in f["ranks"]])
        self.assertEqual(self.tiles()["out of memory"], "1 rank")

        skew, = job["skew"]
        self.assertEqual(self.values(".skew h3 [data-bytes]"), [skew["bytes"], skew["difference"], skew["median_bytes"]])
        self.assertEqual(self.texts(".skew h3 a"), ["rank %d" % skew["rank"], "rank %d" % skew["median_rank"]])
        rows = [[s["bytes"], s["median_bytes"], s["difference"]] for s in skew["sites"]]
        self.assertEqual(self.values(".skew tbody tr:not([data-site=null]) td[data-bytes]")[:3 * len(rows)], sum(rows, []))
        self.assertEqual(sum(self.values(".skew tbody td[data-bytes]:nth-child(4)")), skew["difference"])

        places = [(s["at_peak_bytes"], s["median_bytes"], s["most_bytes"], s["processes"]) for s in job["sites"]]
        self.assertEqual(self.numbers("places", "at_peak_bytes", "median_bytes", "most_bytes", "processes"), places)
        self.assertEqual(self.total(), sum(p[0] for p in places))
        self.choose("#flame-measure", "live_bytes")
        self.assertEqual(self.total(), sum(r["live_bytes"] for r in ranks.values()))

        # The bars: with what is in no place, a rank's layers are its figure.
        for show, key in (("peak_bytes", "peak_bytes"), ("live_bytes", "live_bytes")):
            self.choose("#compare-show", show)
            self.assertEqual(self.values("#compare-legend .key") and sum(self.values("#compare-legend .key")), sum(r[key] for r in ranks.values()))
            for number, r in ranks.items():
                b.run("chooseRank(%d); 0" % ids[number])
                self.assertEqual(sum(self.values("#compare-legend .key")), r[key])
            b.run("chooseRank(null); 0")
        self.choose("#compare-show", "peak_bytes")
        top, line = b.run("[Math.min(...[...document.querySelectorAll('#compare-chart path[data-layer]')].map(p => p.getBBox()).filter(x => x.width)"
                          ".map(x => x.y)), Number(document.querySelector('#compare-chart .median').getAttribute('y1'))]")
        self.assertAlmostEqual((250 - top) / (250 - line), 896 / 832, 3)  # 250: where the bars stand
        self.assertEqual(self.values("#compare-chart", "median"), [ranks[job["median_rank"]]["peak_bytes"]])
        self.assertEqual(sorted(self.values("#compare-chart .odd", "rank")), sorted(ids[n] for n in (2, 3, 5)))
        self.assert_quiet()

    def test_use(self):
        """Sorting, filters, a rank's own flame graph; by mouse and by keyboard."""
        job, b = self.uneven()
        ranks, five = {r["rank"]: r for r in job["ranks"]}, b.run("ranks.findIndex(r => r.rank === 5)")
        b.click("#ranks-table [data-sort=peak_bytes]")
        self.assertEqual([p for p, in self.numbers("ranks", "peak_bytes")], sorted((r["peak_bytes"] for r in ranks.values()), reverse=True))
        b.click("#ranks-table [data-sort=place]")
        self.assertEqual([b.run("ranks[%d].rank" % i) for i in self.rows("ranks")], list(range(8)))
        self.choose("#ranks-which", "bad")
        self.assertEqual(sorted(b.run("ranks[%d].rank" % i) for i in self.rows("ranks")), [2, 3])
        self.choose("#ranks-which", "all")
        b.run("byId('ranks-search').focus()")
        b.type("killed")
        b.wait("byId('ranks-table').dataset.rows === '1'")
        self.assertEqual([b.run("ranks[%d].rank" % i) for i in self.rows("ranks")], [2])
        b.click("#findings .links a")  # what a finding names, whatever the filter says
        named = job["findings"][0]["ranks"][0]
        self.assertEqual(b.run("document.activeElement.closest('tr').id"), "rank-%d" % b.run("ranks.findIndex(r => r.rank === %d)" % named))
        self.assertIn(ranks[named]["recording"], self.texts(".rank-detail dd"))

        self.choose("#flame-rank", str(five))
        self.assertEqual(self.total(), 896 * MIB)
        b.click("#flame-chart .frame[data-label^='keep_snapshots']")
        self.assertEqual(int(b.run("String(flame.zoom.value)")), 128 * MIB)
        self.choose("#flame-measure", "live_bytes")
        self.assertEqual(self.total(), ranks[5]["live_bytes"])
        b.run("byId('compare-chart').focus()")
        b.key("ArrowRight")
        self.assertEqual(b.run("ranks[compare.chosen].rank"), 6)
        self.assertEqual((b.run("byId('flame-rank').value"), self.total()), (b.run("String(compare.chosen)"), ranks[6]["live_bytes"]))
        b.key("Escape")
        self.assertEqual((b.run("byId('flame-rank').value"), self.total()), ("", sum(r["live_bytes"] for r in ranks.values())))
        b.hover("#compare-chart .catch", 0.03)
        b.wait("!byId('tip').hidden")
        self.assertTrue(self.texts("#tip")[0].startswith("rank 0, GPU 0"), self.texts("#tip"))
        self.choose("#compare-order", "size")
        self.assertEqual(b.run("compare.list[0].rank"), 5)
        b.click(".skew-table a")  # a place of the difference
        self.assertEqual(b.run("document.activeElement.closest('tr').id.startsWith('place-')"), True)
        self.assertIn("rank 5", self.texts(".site-detail dd a"))
        self.choose("#places-search", "")
        b.run("filterPlaces('make_grads')")
        self.assertEqual(len(self.rows("places")), 1)
        b.click("#theme")
        self.assertEqual(b.run("document.documentElement.dataset.theme"), "dark")
        self.assert_quiet()

    def test_hostile_names(self):
        """Names of all ranks are text, as in the page of one recording."""
        for rank in range(2):
            self.record(RANK=rank, LOCAL_RANK=0, WORLD_SIZE=2)
        page = self.write(self.dir)
        with open(page, encoding="utf-8") as f:
            text = f.read()
        block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
        self.assertRegex(block, r"\A[\x20-\x7e\n]*\Z")
        self.assertNotIn("<", block)
        self.assertRegex(text, r"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
                               r"script-src 'sha256-\S+' 'sha256-\S+'; style-src 'sha256-\S+'; base-uri 'none'; form-action 'none'\">")
        b = self.show(page)
        b.run("for (const s of sites) places.open.add(s.id); places.draw(); for (const r of ranks) rankTable.open.add(r.id); rankTable.draw();")
        label = "%s (%s:2)" % (plain(test_html.HOSTILE_FUNCTION), plain(os.path.basename(test_html.HOSTILE_FILE)))
        self.assertIn(label, self.texts("#places .stack li"))
        self.assertTrue([t for t in self.texts("#places .stack li") if t.startswith("BROK\\xff\\xfeNAME (")])
        everything = b.run("document.body.innerText + [...document.querySelectorAll('*')].flatMap(e => [...e.attributes].map(a => a.value)).join('')")
        self.assertIsNone(re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", everything))
        self.assertEqual(b.run("document.querySelectorAll('main img, main svg:not(.flame svg, .ranks-chart svg), main script, title *').length"), 0)
        job = self.job()
        categories = ("parameters", "gradients", "optimizer", "activations", "inputs", "other")
        self.choose("#compare-show", "categories")
        of = dict(zip(self.texts("#compare-legend .key .name"), self.values("#compare-legend .key")))
        self.assertEqual({k: of.get(k if k != "other" else "other tensors", 0) for k in categories},
                         {k: sum(r["breakdown"]["categories"][k] for r in job["ranks"]) for k in categories})
        self.assertEqual(of.get("cached but unused", 0), sum(r["breakdown"]["cached"] for r in job["ranks"]))
        self.assertEqual(of.get("not tensors", 0), sum(r["breakdown"]["not_tensors"] for r in job["ranks"]))
        self.assert_quiet()

    def test_incomplete_recordings(self):
        """What is cut off or can not be read is said, and no rank of it looks whole."""
        self.ranks(4, "weights:64", "grads:32")
        one, two = self.recordings()[:2]
        os.truncate(one, os.path.getsize(one) // 2)
        os.truncate(two, 100)
        done = subprocess.run([vt.COMMAND, "report", "--json", self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        job = json.loads(done.stdout)
        page = os.path.join(self.dir, "job.html")
        self.assertEqual(subprocess.run([vt.COMMAND, "report", "--html", page, self.dir], stderr=subprocess.PIPE, timeout=120).returncode, done.returncode)
        self.show(page)
        cut = [r for r in job["ranks"] if r["missing"]]
        self.assertEqual((len(cut), len(self.texts("#ranks .badge.uneven"))), (1, 1))
        self.assertEqual(self.texts("#ranks tbody tr:first-child .badge"), ["recording incomplete"])
        notes = self.texts("#note-list li")
        self.assertEqual([n for n in job["notes"] if plain(n) not in notes], [])
        self.assertEqual(job["unreadable_files"], 1)
        self.assertIn("1 file there named *.vtr can not be read, and is left out.", notes)
        self.assert_quiet()

    def test_phone(self):
        _, b = self.uneven()
        b.resize(360, 740, mobile=True)
        for state in ("", "for (const s of sites) places.open.add(s.id); places.draw(); rankTable.open.add(0); rankTable.draw()", "toggleTheme()"):
            b.run(state + ";0")
            self.assertEqual(b.run("[document.documentElement.scrollWidth, innerWidth]"), [360, 360])
            wide = b.run("[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 361 && !e.closest("
                         "'.scroll, .flame, .ranks-chart, svg')).map(e => e.tagName + '.' + e.className).slice(0, 5)")
            self.assertEqual(wide, [])
        self.assertGreater(len(b.call("Page.printToPDF")["data"]), 20000)
        self.assert_quiet()


class Parts(JobPage):
    def test_what_memory_consists_of(self):
        """Table and bars have the figures of the merged report: at a rank's own peak, or at its end where it was killed."""
        for rank in range(2):
            phase_programs.Base.python(self, test_jobs_parts.Parts.TRAIN, status=-signal.SIGKILL if rank else 0, head=test_categories.HEAD, RANK=rank,
                                       LOCAL_RANK=0, WORLD_SIZE=2, SLURM_JOB_ID=7, KILL=1)
        job, b = self.job(), self.show(self.write(self.dir))
        ranks = {r["rank"]: r for r in job["ranks"]}
        ids = {b.run("ranks[%d].rank" % i): i for i in range(2)}
        self.assertEqual({n: r["breakdown"]["moment"] for n, r in ranks.items()}, {0: "peak", 1: "end"})
        for number, row in ((n, self.rows("ranks")[i]) for n, i in ids.items()):
            parts = ranks[number]["breakdown"]
            shown = dict(parts["categories"], cached=parts["cached"], not_tensors=parts["not_tensors"])
            self.assertEqual({k: int(row.get("c_" + k, 0)) for k in shown}, shown)
        self.assertEqual(self.texts("#ranks-when"), ["What memory consists of (parameters to not tensors): "
                                                     "at each rank's own peak; at the end, if killed or still running."])
        self.assertEqual(b.run("[...document.querySelectorAll('#compare-show option')].map(o => o.textContent)"),
                         ["the peak, by place", "live, by place", "by category"])
        self.choose("#compare-show", "categories")
        for number, i in ids.items():
            b.run("chooseRank(%d); 0" % i)
            parts, of = ranks[number]["breakdown"], dict(zip(self.texts("#compare-legend .key .name"), self.values("#compare-legend .key")))
            self.assertEqual(sum(of.values()), parts["bytes"])
            self.assertEqual((of.get("not tensors", 0), of.get("cached but unused", 0), of["parameters"]),
                             (parts["not_tensors"], parts["cached"], parts["categories"]["parameters"]))
        b.run("chooseRank(null); rankTable.open.add(%d); rankTable.draw(); 0" % ids[0])
        facts = dict(zip(self.texts(".rank-detail dt"), self.texts(".rank-detail dd")))
        self.assertEqual((facts["live at"], facts["categories at"]), ("end", "peak"))
        self.assert_quiet()


class Many(JobPage):
    def generate(self, ranks, uneven, *more):
        subprocess.run([vt.compile("job_recordings.c"), self.dir, str(ranks), str(uneven), *more], check=True)

    def test_1024(self):
        """A thousand ranks are in a page, which says of each what it holds."""
        self.generate(1024, 700)
        job, b = self.job(), self.show(self.write(self.dir))
        self.assertEqual(b.run("[ranks.length, sites.length, Object.keys(data.left_out).length]"), [1024, 200, 0])
        self.assertEqual(next(iter(self.rows("ranks"))), b.run("ranks.findIndex(r => r.rank === 700)"))  # what is odd comes first
        self.assertEqual(self.total(), sum(s["at_peak_bytes"] for s in job["sites"]))
        for number in (0, 700, 1023):
            self.choose("#flame-rank", str(b.run("ranks.findIndex(r => r.rank === %d)" % number)))
            self.assertEqual(self.total(), next(r["peak_bytes"] for r in job["ranks"] if r["rank"] == number))
        sevens = b.run("Object.fromEntries(ranks.map(r => [r.rank, amountsOf(r.id).values.get(sites.findIndex(s => s.label.startsWith('layer_7 ')))[1]]))")
        self.assertEqual({k: v for k, v in sevens.items() if v != 4 * MIB}, {"700": 516 * MIB})
        self.assertEqual(self.texts(".skew h3 a")[0], "rank 700")
        b.click("#ranks-show")
        self.assertEqual(len(self.rows("ranks")), 250)
        self.assertGreaterEqual(b.run("Number(document.querySelector('#compare-chart svg').getAttribute('width'))"), 1024)
        self.assert_quiet()

    def test_too_much(self):
        """Ranks that differ in everything: at most 10 MB, sums stay exact, and the page says what it lacks."""
        self.generate(1024, 700, "differ")
        job, b = self.job(), self.show(self.write(self.dir))
        self.assertEqual(self.total(), sum(s["at_peak_bytes"] for s in job["sites"]))
        self.assertGreater(b.run("data.left_out.amounts"), 10000)
        self.assertIn("%s amounts of single ranks" % format(b.run("data.left_out.amounts"), ","), " ".join(self.texts("#note-list li")))
        for number in (3, 700, 1023):
            self.choose("#flame-rank", str(b.run("ranks.findIndex(r => r.rank === %d)" % number)))
            self.assertEqual(self.total(), next(r["peak_bytes"] for r in job["ranks"] if r["rank"] == number))
            self.assertIn("(all others)", b.run("[...document.querySelectorAll('#flame-chart .frame')].map(g => g.dataset.label)"))
        self.assert_quiet()


class Command(JobPage):
    LOOKS = False

    def run_report(self, *options):
        done = subprocess.run([vt.COMMAND, "report", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, cwd=self.dir)
        return done.returncode, done.stdout, done.stderr

    def test_file(self):
        """Nothing is replaced that is not asked for, and never a recording."""
        self.ranks(2, "weights:64", "1=full")
        self.assertEqual(self.run_report("--html", "r.html", "."), (0, "", ""))
        with open(os.path.join(self.dir, "r.html")) as f:
            first = f.read()
        self.assertTrue(first.startswith("<!DOCTYPE html>") and first.endswith("</html>\n"))
        self.assertIn('"page":"job"', first)
        self.assertEqual(self.run_report("--html", "r.html", "."), (2, "", "vramtrack report: r.html is there already (--force replaces it)\n"))
        self.assertEqual(self.run_report("--html", "r.html", "--force", "."), (0, "", ""))
        self.assertEqual(self.run_report("--html", "-", "."), (0, first, ""))
        recording = os.path.basename(self.recordings()[1])
        status, _, error = self.run_report("--html", recording, "--force", ".")
        self.assertEqual((status, error), (2, "vramtrack report: %s is the recording itself\n" % recording))
        self.assertEqual(self.run_report("--html", "y.html", "--fail-on", "oom", ".")[0], 1)
        self.assertEqual(self.run_report("--html", "z.html", "--moment", "never", ".")[0], 2)
        self.assertEqual(sorted(f for f in os.listdir(self.dir) if "html" in f), ["r.html", "y.html"])
