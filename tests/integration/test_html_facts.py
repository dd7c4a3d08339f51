"""What the page of one recording says, and does not say: of incomplete recordings, several GPUs, places that read alike, many moments."""
import json
import os
import re
import subprocess

import test_html
import torch_case
import vt

MIB = 1 << 20
HEAD_LINES = torch_case.HEAD.count("\n")


class Facts(test_html.Page):
    def test_incomplete(self):
        """What was cut off is not said to be nothing: not in the head, not in any part."""
        recording = self.record()
        cut = os.path.join(self.dir, "cut.vtr")
        with open(recording, "rb") as f, open(cut, "wb") as to:
            to.write(f.read(60000))
        missing = "totals, places, peaks, failures, devices"
        b = self.show(self.write(cut))
        self.assertEqual(self.texts("#head .incomplete"), ["The recording is incomplete: %s are missing, what follows may be too little." % missing])
        self.assertEqual(set(self.texts(".head-tiles .tile b")), {"not in the recording"})
        self.assertEqual(self.texts("#findings .badge.family"), ["incomplete"])
        self.assertEqual(b.run("document.querySelectorAll('.dot.good, .finding.none').length"), 0)
        for part, said in (("accounts", "GPUs are"), ("timeline-legend", "Curves are"), ("places-table tbody", "Places are"),
                           ("failure-list", "Failed calls are"), ("figure-tables", "Totals are")):
            self.assertEqual(self.texts("#" + part), [said + " not in the recording."])
        self.assertIsNone(re.search("never|No GPU|No call|Nothing was", b.run("document.querySelector('main').innerText")))
        self.assertEqual([a for a in b.run("[...document.querySelectorAll('#nav a')].map(a => a.getAttribute('href').slice(1))")
                          if not b.run("!!byId('%s')" % a)], [])
        self.assert_quiet()

        whole = self.report(recording)
        with open(recording, "rb") as f, open(cut, "wb") as to:
            to.write(f.read()[:-4096])
        b = self.show(self.write(cut, "--force"))
        self.assertEqual(self.texts("#head .incomplete"), ["The recording is incomplete: what was cut off is missing, what follows may be too little."])
        live = sum(t["live_bytes"] for t in whole["totals"] if t["level"] == "driver" and t["kind"] == "device")
        self.assertEqual(self.texts(".head-tiles [data-name='driver, live'] b"), ["at least " + b.run("bytes(%d)" % live)])
        self.assertEqual(self.texts(".head-tiles [data-name='out of memory'] b"), ["1 time"])
        self.assert_quiet()

    def test_a_leak_is_no_good_end(self):
        """A program that exits with 0 and grows is not marked as well; before its end nothing is said to be well either."""
        self.python("kept = []\ndef keep(): kept.append(malloc(8 * MIB))\n"
                    "recorder = ctypes.CDLL(None)\n"
                    "for _ in range(40):\n    keep()\n    recorder.vramtrack_step()\nos._exit(0)\n", VRAMTRACK_REPORT="off")
        recording, = self.recordings()
        loud = [f["family"] for f in self.report(recording)["findings"] if f["confidence"] != "possible" and f["family"] != "none"]
        self.assertEqual(loud, ["growth"])
        b = self.show(self.write(recording))
        self.assertEqual(b.run("[...document.querySelectorAll('#head .dot')].map(x => x.className)"), ["dot warn"])
        self.assertRegex(" ".join(self.texts("#head .item")), r"ran for\s*\d+\.\d{3} s from its first CUDA call")
        self.assertEqual(b.run("!!byId('places-when')"), False)
        b = self.show(self.write(recording, "--force", "--moment", "peak"))
        self.assertNotIn("Nothing suspicious", b.run("document.querySelector('main').innerText"))
        self.assertEqual(self.texts("#places-when"),
                         ["Own peak, allocated and calls are of the whole run; live and count are of the moment peak."])
        self.assert_quiet()

    def test_the_moment_asked_for(self):
        """Where memory ran out comes first, unless somebody asks for another moment: then that comes alone."""
        recording, moments = self.record(), "[...document.querySelectorAll('#accounts article')].map(x => x.dataset.moment)"
        self.assertEqual(self.show(self.write(recording)).run(moments)[0], "oom-1")
        for moment in ("end", "peak"):
            self.assertEqual(self.show(self.write(recording, "--force", "--moment", moment)).run(moments), [moment])
        self.assert_quiet()

    def test_several_gpus(self):
        """Live and peak in the head are of the same GPUs."""
        self.python("""cudart = ctypes.CDLL("libcudart.so.13")
def grab(n):
    p = pointer()
    assert not cudart.cudaMalloc(ctypes.byref(p), size_t(n))
    return p
cudart.cudaFree(grab(30 * MIB))
kept = [grab(4 * MIB)]
cudart.cudaSetDevice(1)
kept.append(grab(7 * MIB))
os._exit(0)
""", VRAMTRACK_REPORT="off", SIM_DEVICES=2)
        b = self.show(self.write(*self.recordings()))
        tiles = b.run("[...document.querySelectorAll('.head-tiles .tile[data-bytes]')].map(t => [t.dataset.name, Number(t.dataset.bytes), t.title])")
        self.assertEqual(tiles[:2], [["driver, live, 2 GPUs", 11 * MIB, "GPU 0: 4.00 MiB, GPU 1: 7.00 MiB"],
                                     ["driver, peaks of 2 GPUs added", 37 * MIB, "GPU 0: 30.00 MiB, GPU 1: 7.00 MiB"]])
        self.assert_quiet()

    def test_places_that_read_alike(self):
        """One helper allocates for two callers: told apart in the same words and colours by the table, the timeline and the map."""
        self.python("""def zeros(n): return malloc(n)
def train(): return zeros(30 * MIB)
def validate(): return zeros(20 * MIB)
kept = [train(), validate()]
os._exit(0)
""", VRAMTRACK_REPORT="off", VRAMTRACK_STACKS="python")
        recording, = self.recordings()
        b, helper = self.show(self.write(recording)), torch_case.HEAD.split("torch_malloc(device")[0].count("\n") + 1
        names = ["malloc (train.py:%d) < %s (train.py:%d)" % (helper, by, HEAD_LINES + line) for by, line in (("train", 2), ("validate", 3))]
        text = subprocess.run([vt.COMMAND, "report", recording], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
        for name in names:
            self.assertIn(name, text)
        self.choose("#places-level", "tensor")
        self.choose("#timeline-view", "place")
        rows = {"table": "#places-table tr[data-site] button.place", "timeline": "#timeline-legend .key", "map": "#maps .legend .key"}
        seen = {}
        for part, selector in rows.items():
            seen[part] = b.run("[...document.querySelectorAll(%s)].map(e => [e.querySelector('i + *').textContent, e.querySelector('i').style.background])" %
                               json.dumps(selector))
            self.assertEqual([name for name, _ in seen[part]][:2], names, part)
        self.assertNotEqual(seen["table"][0][1], seen["table"][1][1])
        self.assertEqual([colour for _, colour in seen["timeline"]][:2], [colour for _, colour in seen["table"]])
        self.assertEqual([colour for _, colour in seen["map"]], [colour for _, colour in seen["table"]])
        # Tensors of no category have one name, and a finding without evidence has no list of it.
        self.choose("#timeline-view", "category")
        self.assertEqual(self.texts("#timeline-legend .key .name"), ["other tensors"])
        self.assertEqual(self.texts("td.what"), 2 * ["other tensors"])
        self.assertIn("other tensors", self.texts("#accounts .parts .name"))
        findings = self.report(recording)["findings"]
        self.assertEqual([f for f in findings if f["evidence"] or f["sites"]], [])
        self.assertEqual((self.texts("#findings summary"), self.texts("#findings .links")), ([], []))
        self.assert_quiet()

    def test_many_moments(self):
        """The moments that the diagnosis uses can be chosen, and those that can't are counted and named."""
        self.python("""vram, cudart = ctypes.CDLL(None), ctypes.CDLL("libcudart.so.13")
kept = [malloc(3 * MIB)]
for i in range(9): vram.vramtrack_moment(b"m%d" % i)
cudart.cudaMalloc(ctypes.byref(pointer()), size_t(1 << 50))
""", VRAMTRACK_REPORT="off")
        recording, = self.recordings()
        names = [m["name"] for m in self.report(recording)["moments"] if m["name"] not in ("end", "peak")]
        b = self.show(self.write(recording))
        shown = b.run("data.shown.name")
        offered, others = b.run("data.at.map(m => m.name)"), [n for n in names if n != shown]
        self.assertEqual(len(offered), 6)
        self.assertEqual(offered[0], "oom-1")
        self.assertEqual(sorted(offered + b.run("data.at_left")), sorted(others))
        self.assertEqual(self.texts("#flame-moments"),
                         ["6 of %d other recorded moments can be chosen here, not %s: vramtrack report --html PAGE --moment NAME FILE makes the page "
                          "of another one." % (len(others), ", ".join("\u201c%s\u201d" % n for n in others if n not in offered))])
        self.assert_quiet()

    def test_narrow_window(self):
        """At 1,000 pixels no word is broken and no column is cut off."""
        b = self.show(self.write(self.record()), 1000, 900)
        self.choose("#places-level", "every")
        self.assertEqual(b.run("[byId('places-table').scrollWidth - byId('places-table').clientWidth]"), [0])
        broken = b.run("""[...document.querySelectorAll('td.what, #places-table th button, .parts .name')].flatMap(cell => {
            const node = cell.firstChild, out = [];
            for (const word of node.data.matchAll(/[A-Za-z]+/g)) {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) out.push(node.data);
            }
            if (cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).textOverflow === 'ellipsis') out.push(node.data);
            return out;
        })""")
        self.assertEqual(broken, [])
        self.assert_quiet()
