"""The lines of an account add up to the card, as they are printed: in the golden reports, the examples, and reports of the
simulated GPU. Each line is rounded to its last digit, so the sum may be off by half of that for each."""
import glob
import os
import re
import subprocess

import vt

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"(\d+(?:\.(\d+))?) (%s)" % "|".join(UNITS)
HEAD = re.compile(r"^GPU \d+: .*, %s; .*\(" % SIZE)
LINE = re.compile(r"^  +%s  \S" % SIZE)

POOLS = r"""
#include <cuda_runtime_api.h>
#include <stdint.h>
int main(int argc, char **argv)
{
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    void *first = 0, *second = 0, *plain = 0;
    cudaMalloc(&plain, 100 << 20);
    cudaDeviceGetDefaultMemPool(&pool, 0);
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
    cudaMallocAsync(&first, 300 << 20, 0);
    cudaMallocAsync(&second, 200 << 20, 0);
    cudaFreeAsync(first, 0);
    cudaStreamSynchronize(0);
    if (argc > 1)
        cudaMalloc(&first, (size_t)1 << 40);
    return second && plain && argv[0] ? 0 : 1;
}
"""


def size(match):
    """The bytes of a printed size, and by how much rounding may have changed them."""
    number, digits, unit = match.groups()
    return float(number) * UNITS[unit], UNITS[unit] / 2 / 10 ** len(digits or "") if unit != "B" else 0


def accounts(text):
    """Of each account with all its parts: what the card has, the sum of the lines, how far these may be apart, the lines."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        head = HEAD.match(line)
        if not head:
            continue
        parts = []
        for at in range(i + 1, len(lines)):
            part = LINE.match(lines[at])
            if not part:
                break
            parts.append((lines[at], *size(part)))
        if parts and re.search(r"  free( \(computed\))?$", parts[-1][0]):
            total, most = size(head)
            yield total, sum(p[1] for p in parts), most + sum(p[2] for p in parts), [line] + [p[0] for p in parts]


class Accounts(vt.Case):
    def check(self, text, count):
        found = list(accounts(text))
        self.assertEqual(len(found), count, text)
        for total, together, most, lines in found:
            self.assertLessEqual(abs(total - together), most, "\n".join(lines))

    def report_text(self, *options):
        done = subprocess.run([vt.COMMAND, "report", *options, self.dir], stdout=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, 0)
        return done.stdout

    def test_sum_is_told_from_none(self):
        text = "GPU 0: A, 8.00 GiB; at the end (end, 1 s)\n    40.00 MiB  application\n      7.96 GiB  free\n"
        self.check(text, 1)
        with self.assertRaises(AssertionError):
            self.check(text.replace("40.00", "60.00"), 1)

    def test_written_reports(self):
        """Reports that are part of the sources, some of them from recordings of a real GPU."""
        expected = {"python.txt": 2, "sample.txt": 2, "tensors.txt": 1, "capacity.txt": 1, "fragmentation.txt": 1,
                    "huge_request.txt": 1, "leak.txt": 1, "other_process.txt": 1}
        for folder in "tests/golden", "docs/examples":
            for path in glob.glob(os.path.join(vt.ROOT, folder, "*.txt")):
                name = os.path.basename(path)
                with self.subTest(name=name):
                    with open(path) as f:
                        self.check(f.read(), expected.get(name, 0))
                expected.pop(name, None)
        self.assertEqual(expected, {})

    def test_simulated_gpu(self):
        """Pools that keep what is free, other processes, out of memory: at every moment, with NVML and without."""
        program = vt.compile(POOLS, "-lcudart", name="pools")
        others = "3112:python3:4096,2981:Xorg:180"
        # With NVML, what the pool keeps is known at the end and not yet at the out-of-memory: two accounts.
        for arguments, nvml, count in ([], 0, 1), ([], 1, 1), (["oom"], 0, 1), (["oom"], 1, 2):
            with self.subTest(arguments=arguments, nvml=nvml):
                self.setUp()
                done = self.run_program([program] + arguments, VRAMTRACK_NVML=nvml, SIM_NVML_PROCESSES=others)
                self.assertEqual(done.returncode, 0, done.stderr)
                text = self.report_text()
                self.check(text, count)
                self.assertIn("python3 (pid 3112)" if nvml else "other processes and unaccounted", text)
                self.check(self.report_text("--moment", "peak"), 1)
                if arguments:
                    self.check(self.report_text("--moment", "oom-1"), 1)
