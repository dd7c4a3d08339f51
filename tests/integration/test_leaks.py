"""Leaks and what is done about them, from the program to the report: suppressions; memory that goes by the wrong call."""
import os
import subprocess
import sys

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


# Keeps 256 MiB a step, and goes on for thirty steps more when there is no memory left.
GOES_ON = r"""
#include <cuda_runtime_api.h>
#include <vramtrack/vramtrack.h>
static int __attribute__((noinline)) keep(void) { void *p; return cudaMalloc(&p, 256 << 20); }
static int __attribute__((noinline)) work(void)
{
    void *p;
    int error = cudaMalloc(&p, 1 << 30);
    return error ? error : cudaFree(p);
}
int main(void)
{
    for (int failed = 0; failed < 30;) {
        keep();
        failed += work() != 0;
        vramtrack_step();
    }
    return 1;
}
"""

# A buffer per turn, whose end a queue of ten puts off, as numba's does; what is left at the end is the newest. And one that an error
# path forgets now and then.
REPLACES = r"""
#include <cuda_runtime_api.h>
static void *queue[10];
static int queued;
static int __attribute__((noinline)) buffer(void **p) { return cudaMalloc(p, 4 << 20); }
static int __attribute__((noinline)) risky(void **p) { return cudaMalloc(p, 1 << 20); }
int main(void)
{
    void *held = 0, *p;
    for (int i = 0; i < 84; i++) {
        if (held && queued == 10)
            while (queued)
                if (cudaFree(queue[--queued]))
                    return 1;
        if (held)
            queue[queued++] = held;
        if (buffer(&held) || risky(&p) || (i % 20 != 3 && cudaFree(p)))
            return 1;
    }
    return 0;
}
"""

# Fills the card in rounds, the first of them slow: against time, what it keeps comes late.
FILLS = r"""
#include <cuda_runtime_api.h>
#include <unistd.h>
static int __attribute__((noinline)) keep(void) { void *p; return cudaMalloc(&p, 256 << 20); }
static int __attribute__((noinline)) work(void)
{
    void *p;
    int error = cudaMalloc(&p, 128 << 20);
    return error ? error : cudaFree(p);
}
int main(void)
{
    for (int i = 0; !keep() && !work(); i++)
        usleep(i < 5 ? 20000 : 0);
    return 1;
}
"""

# Weights at the start, then work in which they are kept; nothing is freed at the end. And what an error path forgets meanwhile.
SERVES = r"""
#include <cuda_runtime_api.h>
static int __attribute__((noinline)) weights(void) { void *p; return cudaMalloc(&p, 8 << 20); }
static int __attribute__((noinline)) risky(void **p) { return cudaMalloc(p, 1 << 20); }
static int __attribute__((noinline)) work(void)
{
    void *p;
    return cudaMalloc(&p, 64 << 20) || cudaFree(p);
}
int main(void)
{
    void *p;
    for (int i = 0; i < 40; i++)
        if (weights())
            return 1;
    for (int i = 0; i < 300; i++)
        if (work() || risky(&p) || (i % 50 != 7 && cudaFree(p)))
            return 1;
    return 0;
}
"""

# Objects of a Python program: weights and a cache that live until its end, and (leak) a list that grows round by round.
PYTHON = r"""
import ctypes, sys
cuda = ctypes.CDLL("libcudart.so.13")
def empty(size):
    p = ctypes.c_void_p()
    if cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)): raise MemoryError
    return p
def free(p): cuda.cudaFree(p)
def once(): return empty(5 << 20)
def cached(cache, key):
    if key not in cache: cache[key] = empty(2 << 20)
def result(): return empty(1 << 20)
kept, cache = [once(), once()], {}
for i in range(int(sys.argv[1])):
    cached(cache, i % 10)
    free(empty(32 << 20))
    if "leak" in sys.argv: kept.append(result())
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

    def test_a_program_that_goes_on_without_memory(self):
        """Nothing grows any more then; what filled the card is to be seen at the first time that memory ran out."""
        program = vt.compile(GOES_ON, "-g", "-lcudart", "-ldl", name="goes_on")
        self.assertEqual(self.run_program([program], VRAMTRACK_REPORT="off").returncode, 1)
        report = self.report()
        finding = report["findings"][0]
        self.assertEqual((finding["family"], finding["confidence"]), ("leak", "likely"))
        self.assertEqual(finding["title"], "GPU 0 filled up step by step: 14.75 GiB of the 14.75 GiB that this process held were allocated again "
                                           "and again, and kept.")
        self.assertIn("14.75 GiB in 59 by keep (", finding["evidence"][0])
        self.assertIn("256.00 MiB more per step.", finding["evidence"][0])
        self.assertTrue(finding["evidence"][1].startswith("As of the first time that memory ran out (oom-1, "), finding["evidence"])

    def test_the_process_says_what_the_command_says(self):
        """The turns of a loop are what a full card is judged by, in the report that the process writes itself as well."""
        program = vt.compile(FILLS, "-g", "-lcudart", name="fills")
        done = self.run_program([program])
        self.assertEqual(done.returncode, 1)
        title = self.report()["findings"][0]["title"]
        self.assertIn("GPU 0 filled up round by round: ", title)
        self.assertIn("leak (likely): " + title, done.stderr)
        with open(self.recordings()[0].replace(".vtr", ".txt")) as file:
            self.assertIn("leak (likely): " + title, file.read())

    def test_state_is_no_leak(self):
        """What was made in the beginning and kept while other memory came and went, however short the run; a leak beside it is told."""
        program = vt.compile(SERVES, "-g", "-lcudart", name="serves")
        done = self.run_program([program])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.report()
        leak, = self.findings(report, "leak", "likely")
        self.assertEqual(leak["title"], "6.00 MiB from 1 place: 6 allocations never freed.")
        self.assertIn("risky (", leak["evidence"][0])
        kept, = self.findings(report, "leak", "possible")
        self.assertEqual(kept["title"], "320.00 MiB from 1 place: 40 allocations never freed.")
        self.assertIn("leak (likely): 6.00 MiB", done.stderr)
        self.assertNotIn("320.00 MiB from", done.stderr)

    def python(self, *arguments):
        path = os.path.join(self.dir, "objects.py")
        with open(path, "w") as file:
            file.write(PYTHON)
        done = self.run_program([sys.executable, path, *arguments], LD_LIBRARY_PATH=vt.SIM)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.report(moment="end")

    def test_objects_of_python_are_no_leak(self):
        """Two allocations of one place are no pattern, nor is a cache, without any work beside them as well: their objects may live."""
        for rounds, size in (("200", "30.00 MiB from 2 places: 12"), ("1", "12.00 MiB from 2 places: 3"), ("0", "10.00 MiB from 1 place: 2")):
            self.setUp()
            report = self.python(rounds)
            self.assertEqual(self.findings(report, "leak", "likely"), [])
            kept, = self.findings(report, "leak", "possible")
            self.assertEqual(kept["title"], size + " allocations never freed.")

    def test_a_python_list_that_grows_is_a_leak(self):
        report = self.python("200", "leak")
        leak, = self.findings(report, "leak", "likely")
        self.assertEqual(leak["title"], "200.00 MiB from 1 place: 200 allocations never freed.")
        self.assertIn("result (objects.py:12)", leak["evidence"][0])

    def test_what_is_replaced_is_no_leak(self):
        """The last of many that were freed, and those whose end is put off, are told from what an error path forgets."""
        program = vt.compile(REPLACES, "-g", "-lcudart", "-ldl", name="replaces")
        self.assertEqual(self.run_program([program]).returncode, 0)
        report = self.report()
        leak, = self.findings(report, "leak", "likely")
        self.assertEqual(leak["title"], "5.00 MiB from 1 place: 5 allocations never freed.")
        self.assertIn("risky (", leak["evidence"][0])
        kept, = self.findings(report, "leak", "possible")
        self.assertEqual(kept["title"], "16.00 MiB from 1 place: 4 allocations never freed.")
        self.assertIn("by buffer (", kept["evidence"][0])

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
        for text, status, said in (("leak:forget", 1, "vramtrack report: found leak in %s (--fail-on)\n" % self.recordings()[0]),
                                   ("leak:forget\nleak:fill", 0, "")):
            with open(path, "w") as file:
                file.write(text)
            done = subprocess.run([vt.COMMAND, "report", "--fail-on", "leak", self.recordings()[0]], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=dict(os.environ, VRAMTRACK_SUPPRESSIONS=path))
            self.assertEqual((done.returncode, done.stderr), (status, said))
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
        self.assertEqual(len(misuse["evidence"]), 1)
        self.assertIn("2 of 2 (device) by make", misuse["evidence"][0])
