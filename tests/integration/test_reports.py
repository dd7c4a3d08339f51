"""Reports around what programs are called with and how they end: command lines of every length, accounts that add up."""
import os
import subprocess

import vt

MIB, GIB = 1 << 20, 1 << 30

HOLD = r"""
#include <cuda_runtime_api.h>
#include <stdlib.h>
static void *__attribute__((noinline)) hold(long mib) { void *p = 0; return cudaMalloc(&p, (size_t)mib << 20) ? 0 : p; }
int main(int argc, char **argv)
{
    void *p = hold(argc > 1 ? atol(argv[1]) : 1);
    if (argc > 2)
        cudaFree(p);
    return p == 0 || (argc > 2 && !hold(atol(argv[2])));
}
"""


class Reports(vt.Case):
    def report_text(self, *options):
        return subprocess.run([vt.COMMAND, "report", *options, self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, errors="replace", timeout=120)

    def test_command_lines_of_every_length(self):
        """A command line that ended near the place where the report cuts it ran over a buffer, in the program itself."""
        program = vt.compile(HOLD, "-lcudart", name="hold")
        for length in range(380, 421):
            with self.subTest(length=length):
                self.setUp()
                rest = length - len(program) - len(" 1 1 ") - 1
                self.assertGreater(rest, 40)
                done = self.run_program([program, "1", "1", "a" * (rest // 2), "b" * (rest - rest // 2 - 1)])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("vramtrack: peak 1.00 MiB on GPU 0", done.stderr)
                shown = self.report_text()
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                self.assertIn("\n  command    %s 1 1 aaa" % program, shown.stdout)

    def test_account_adds_up(self):
        """What is free is not an old reading set against what is live now; with NVML it is read at the end."""
        program = vt.compile(HOLD, "-lcudart", name="hold")
        for arguments, live, nvml in (["10240"], 10240, 0), (["10240", "16"], 16, 0), (["3", "12288"], 12288, 0), (["3", "12288"], 12288, 1):
            with self.subTest(arguments=arguments, nvml=nvml):
                self.setUp()
                done = self.run_program([program] + arguments, VRAMTRACK_NVML=nvml)
                self.assertEqual(done.returncode, 0, done.stderr)
                for moment in None, "peak":
                    device = self.report(moment=moment)["devices"][0]
                    account = device["account"]
                    parts = [account["application"], account["unaccounted"], account["free"], account["context_and_code"] or 0]
                    self.assertEqual(sum(parts), device["total_bytes"])
                    if moment is None:
                        self.assertEqual(account["application"], live * MIB)
                    self.assertLess(account["unaccounted"] + (account["context_and_code"] or 0), GIB)
                self.assertIn(" free\n" if nvml else " free (computed)\n", self.report_text().stdout)
