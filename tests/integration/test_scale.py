"""A million live allocations, ten thousand sites, and a recording that is too small: exact totals within the budget."""
import os
import subprocess
import unittest

import vt

MIB = 1 << 20


class Scale(vt.Case):
    def steps(self, *steps, **options):
        done = self.run_program([vt.compile("scale_steps.c", "-lcuda")] + list(steps), VRAMTRACK_REPORT="off", **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def totals(self, report):
        return {(t["kind"], t["device"]): (t["live_count"], t["live_bytes"], t["alloc_calls"]) for t in report["totals"] if t["level"] == "driver"}

    def notes(self, report):
        return " ".join(report["notes"])

    @unittest.skipIf(vt.SAN, "memory is measured without sanitizers")
    def test_million_live(self):
        """DESIGN section 8: at most 64 MiB and 100 bytes per live allocation more than without the library."""
        count = 1000000
        bare = self.steps("hold=%d" % count, "rss", preload=False)
        self.assertEqual(self.recordings(), [])
        under = self.steps("hold=%d" % count, "rss")
        for before, after in zip(bare.split(), under.split()):
            self.assertLessEqual((int(after) - int(before)) * 1024, 64 * MIB + 100 * count)
        report = self.report()
        self.assertEqual(self.totals(report), {("device", 0): (count, count * 4096, count)})
        site, = report["sites"]
        self.assertEqual((site["live_count"], site["at_peak_bytes"]), (count, count * 4096))
        self.assertEqual(report["notes"], [])

    def test_ten_thousand_sites(self):
        self.steps("sites=10000")
        report = self.report()
        self.assertEqual(self.totals(report), {("device", 0): (10000, 10000 * 4096, 10000)})
        self.assertEqual(len(report["sites"]), 10000)
        self.assertEqual({(s["live_count"], s["live_bytes"]) for s in report["sites"]}, {(1, 4096)})
        self.assertEqual(len({tuple((f["function"], f["line"], f["offset"]) for f in s["frames"]) for s in report["sites"]}), 10000)
        self.assertEqual(len([f for f in report["sites"][0]["frames"] if f["function"] == "descend"]), 17)

    def test_more_live_than_the_file_holds(self):
        count = 20000 if vt.SAN else 300000
        self.steps("hold=%d" % count, "managed", VRAMTRACK_LIMIT_MB=8, VRAMTRACK_EVENTS=100000)
        self.assertLessEqual(os.path.getsize(self.recordings()[0]), 8 * MIB)
        report = self.report()
        self.assertEqual(self.totals(report), {("device", 0): (count, count * 4096, count), ("managed", 0): (1, 8192, 1)})
        self.assertEqual(sum(s["live_bytes"] for s in self.sites_in(report, "hold_memory")), count * 4096)
        if not vt.SAN:
            self.assertRegex(self.notes(report), r"live allocations: \d+ of %d are missing" % (count + 1))
            text = subprocess.run([vt.COMMAND, "report", self.recordings()[0]], stdout=subprocess.PIPE, text=True)
            self.assertIn("are missing from the file", text.stdout)

    def test_more_sites_than_the_file_holds(self):
        """Where no site can be told apart any more the totals are exact all the same, of each kind and device."""
        self.steps("sites=10000", "device=1", "hold=100", "managed", "device=0", "hold=7", SIM_DEVICES=2, VRAMTRACK_LIMIT_MB=8)
        self.assertLessEqual(os.path.getsize(self.recordings()[0]), 8 * MIB)
        report = self.report()
        self.assertEqual(self.totals(report), {("device", 0): (10007, 10007 * 4096, 10007), ("device", 1): (100, 100 * 4096, 100),
                                               ("managed", 1): (1, 8192, 1)})
        self.assertRegex(self.notes(report), r"sites: \d+ allocations came from places that found no room within the size limit\.")
        for kind, device in (("device", 0), ("device", 1), ("managed", 1)):
            sites = [s for s in report["sites"] if (s["kind"], s["device"]) == (kind, device)]
            self.assertEqual(sum(s["live_count"] for s in sites), self.totals(report)[kind, device][0])
            named = [s for s in sites if s["frames"]]
            self.assertLessEqual(max([s["live_count"] for s in named], default=0), 100, "one place is blamed for what others allocated")

    def test_limit_holds_with_everything_large(self):
        self.steps("sites=3000", "hold=50000", "oom", "hold=1", "oom", "hold=50000", "sites=60000", VRAMTRACK_LIMIT_MB=8)
        self.assertLessEqual(os.path.getsize(self.recordings()[0]), 8 * MIB)
        report = self.report()
        count = 163001
        self.assertEqual(self.totals(report), {("device", 0): (count, count * 4096, count)})
        self.assertEqual(self.total(report, "device")["failed_allocs"], 2)
