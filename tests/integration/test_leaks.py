"""Leaks and what is done about them, from the program to the report: suppressions; memory that goes by the wrong call."""
import os
import subprocess

import vt

MIB = 1 << 20

LEAK = r"""
#include <cuda_runtime_api.h>
static int __attribute__((noinline)) fill_cache(void) { void *p; return cudaMalloc(&p, 1 << 20); }
static int __attribute__((noinline)) forget(void) { void *p; return cudaMalloc(&p, 2 << 20); }
int main(void)
{
    int i, bad = 0;
    for (i = 0; i < 8; i++)
        bad |= fill_cache() | forget();
    return bad;
}
"""

RESET = r"""
#include <cuda_runtime_api.h>
static int __attribute__((noinline)) make(void) { void *p; return cudaMalloc(&p, 4 << 20); }
int main(void) { return make() || make() || cudaDeviceReset(); }
"""


class Leaks(vt.Case):
    def findings(self, report, family, confidence):
        return [f for f in report["findings"] if (f["family"], f["confidence"]) == (family, confidence)]

    def report_with(self, text):
        path = os.path.join(self.dir, "suppressions.txt")
        with open(path, "w") as file:
            file.write(text)
        os.environ["VRAMTRACK_SUPPRESSIONS"] = path
        try:
            return self.report()
        finally:
            del os.environ["VRAMTRACK_SUPPRESSIONS"]

    def test_suppressions(self):
        """What is named is left out, by the command and by the process itself; how much that was is said."""
        program = vt.compile(LEAK, "-g", "-lcudart", name="leak")
        done = self.run_program([program])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("24.00 MiB from 2 places: 16 allocations never freed", done.stderr)

        report = self.report_with("# known\nleak:^fill_cache$\nwhat is this\n")
        leak, = self.findings(report, "leak", "likely")
        self.assertIn("16.00 MiB from 1 place: 8 allocations never freed", leak["title"])
        self.assertTrue(any("1 place with 8.00 MiB" in n and "VRAMTRACK_SUPPRESSIONS" in n for n in report["notes"]), report["notes"])
        self.assertTrue(any(":3 is not understood" in n for n in report["notes"]), report["notes"])

        report = self.report_with("leak:forget\nleak:leak.c*\nleak:fill")
        self.assertEqual([f["title"] for f in report["findings"]], ["Nothing suspicious was found beside what is suppressed."])
        self.assertEqual(self.total(report, "device")["live_bytes"], 24 * MIB)

        path = os.path.join(self.dir, "suppressions.txt")
        self.setUp()
        done = self.run_program([program], VRAMTRACK_SUPPRESSIONS=path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("never freed", done.stderr)

    def test_reset_with_live_memory(self):
        program = vt.compile(RESET, "-g", "-lcudart", name="reset")
        done = self.run_program([program])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.report()
        self.assertEqual(self.findings(report, "leak", "likely"), [])
        misuse, = self.findings(report, "misuse", "possible")
        self.assertEqual(misuse["title"], "2 allocations (about 8.00 MiB) were live when the context was reset or destroyed.")
        self.assertIn("of 1 (device) by make", misuse["evidence"][0])
