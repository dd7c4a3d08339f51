"""vramtrack top --json: lines with the figures of the report."""
import hashlib
import json
import os
import subprocess

import vt
from top_case import KEYS, Top

MIB = 1 << 20


class Json(Top):
    def lines(self, *arguments):
        done = self.command("top", "--json", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(l) for l in done.stdout.splitlines()]

    def test_same_as_the_report(self):
        program = self.begin("grow 1024", "keep 512", "many 7", "step", "fail")
        line, = self.lines("--once", program.pid)
        report = self.report(program.recording())
        self.assertEqual((line["schema"], line["recording"], line["places"]), ("vramtrack-top/1", program.recording(), 3))
        for key in ("training", "devices", "totals", "failures"):
            self.assertEqual(line[key], report[key], key)
        for part in (line, report):
            for moment in part["moments"]:
                if moment["name"] == "end":
                    moment["time_s"] = None  # now
            part["process"]["duration_s"] = None
            for site in part["sites"]:
                site["growth"]["bytes_per_s"] = None
        self.assertEqual((line["process"], line["moments"]), (report["process"], report["moments"]))
        self.assertEqual([s["id"] for s in line["sites"]], [s["id"] for s in report["sites"]])
        for mine, its in zip(line["sites"], report["sites"]):
            both = set(mine) & set(its)
            self.assertGreaterEqual(len(both), 21)
            self.assertEqual({k: mine[k] for k in both}, {k: its[k] for k in both})
        total = sum(s["live_bytes"] for s in line["sites"])
        self.assertEqual([round(s["share"] * total) for s in line["sites"]], [s["live_bytes"] for s in line["sites"]])
        self.assertEqual([(s["allocs_per_s"], s["live_change_bytes"]) for s in line["sites"]], [(None, None)] * 3)
        self.assertRegex(line["sites"][0]["place"], r"^make \(top_program-\w+\.c:\d+\) < grow \(top_program-\w+\.c:\d+\)$")
        self.assertEqual(line["events_while_read"], 0)

    def test_verdicts(self):
        """With --once they are there, as in the report; a stream does not spend the time on them, and says nothing."""
        program = self.begin("keep 512", *["grow 1024", "step"] * 40)
        line, = self.lines("--once", program.pid)
        self.assertEqual({s["place"].split(" < ")[1].split(" ")[0]: s["verdict"] for s in line["sites"]}, {"grow": "growth", "keep": None})
        self.assertEqual([s["verdict"] for s in line["sites"]], [s["verdict"] for s in self.report(program.recording())["sites"]])
        program.kill()
        self.assertEqual([[s["verdict"] for s in l["sites"]] for l in self.lines(program.recording())], [[None, None]])

    def test_stream(self):
        program = self.begin("grow 1024")
        stream = subprocess.Popen([vt.COMMAND, "top", "--json", "--interval", "0.05", str(program.pid)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(stream.communicate)
        self.addCleanup(stream.kill)
        def next_line():
            return json.loads(stream.stdout.readline())
        self.assertEqual(next_line()["sites"][0]["live_bytes"], MIB)
        program.tell("grow 2048", "grow 1024")
        seen = next_line()
        while seen["sites"][0]["live_bytes"] != 4 * MIB:
            seen = next_line()
        self.assertGreater(seen["sites"][0]["allocs_per_s"], 0)
        self.assertIn(seen["sites"][0]["live_change_bytes"], (3 * MIB, MIB))
        program.kill()
        while seen["process"]["end"] == "running":
            seen = next_line()
        self.assertEqual((seen["process"]["end"], seen["sites"][0]["live_bytes"]), ("killed", 4 * MIB))
        self.assertEqual((stream.stdout.read(), stream.wait()), ("", 0))

    def test_busy_process(self):
        """Figures of a process that never rests stay within what it does."""
        program = self.begin("grow 1024", "loop")
        for _ in range(20):
            line, = self.lines("--once", program.pid)
            sites = {s["place"].split(" < ")[1].split(" ")[0]: s for s in line["sites"] if " < " in s["place"]}
            self.assertEqual(sites["grow"]["live_bytes"], MIB)
            loops = [s for name, s in sites.items() if name == "loop"]
            self.assertIn(loops[0]["live_bytes"] if loops else 0, (0, 65536))

    def test_list(self):
        program = self.begin("grow 1024")
        line, = self.lines("--once")
        mine, = [p for p in line["processes"] if p["pid"] == program.pid]
        self.assertEqual((mine["recording"], mine["driver_live_bytes"], mine["driver_peak_bytes"], mine["ooms"], mine["problem"]),
                         (program.recording(), MIB, MIB, 0, None))

    def test_never_writes(self):
        program = self.begin("grow 1024")
        program.kill()
        def state():
            with open(program.recording(), "rb") as f:
                return hashlib.sha256(f.read()).hexdigest(), os.stat(program.recording()).st_mtime_ns
        before = state()
        os.chmod(program.recording(), 0o400)
        self.lines("--once", program.recording())
        terminal = self.top(program.recording())
        terminal.see(KEYS, "ended: killed")
        terminal.keys("s", "Enter", "q")
        terminal.over(0)
        self.assertEqual(state(), before)
