"""What counts as running out of memory, what is only a retry, and what the user is told (src/preload/failure.h)."""
import glob
import os

import vt

MIB = 1 << 20

THROWS = r"""// c++
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdexcept>
#include "sim.h"
__attribute__((noinline)) static CUdeviceptr demand(size_t n)
{
    CUdeviceptr p = 0;
    if (cuMemAlloc_v2(&p, n)) throw std::runtime_error("no memory");
    return p;
}
int main()
{
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 9;
    sim_set_free(0, 64 << 20);
    demand(32 << 20);
    demand(48 << 20);
    return 0;
}
"""

HOST = r"""// c++
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <errno.h>
#include <sys/resource.h>
#include "sim.h"
int main()
{
    struct rlimit lock = {1 << 20, 1 << 20};
    CUcontext context;
    CUdeviceptr device;
    void *p = 0;
    if (setrlimit(RLIMIT_MEMLOCK, &lock) || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
        cuCtxSetCurrent(context) || cuMemHostAlloc(&p, 64 << 20, 0) || cuMemAlloc_v2(&device, 1 << 20))
        return 9;
    sim_fail_always("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
    errno = 77;
    if (cuMemHostAlloc(&p, 512 << 20, 0) != CUDA_ERROR_OUT_OF_MEMORY || errno != 77)
        return 8;
    return cuMemHostAlloc(&p, 512 << 20, 0) == CUDA_ERROR_OUT_OF_MEMORY ? 3 : 7;
}
"""


class Oom(vt.Case):
    def scenario(self, name, status, **options):
        """Runs it bare and under the library: same status, results and errno. Keeps what was said."""
        program = [vt.compile("oom_scenarios.c", "-lcuda"), name]
        bare = self.run_program(program, preload=False)
        self.assertEqual((bare.returncode, bare.stderr), (status, ""))
        done = self.run_program(program, **options)
        self.assertEqual((done.returncode, done.stdout), (status, bare.stdout))
        self.said = done.stderr
        self.json = self.report()

    def failures(self):
        return [(f["kind"], f["count"], (f["requested_bytes"] or 0) // MIB) for f in self.json["failures"]]

    def ooms(self):
        return sorted(m["name"] for m in self.json["moments"] if m["name"].startswith("oom"))

    def live_at(self, moment):
        return self.total(self.report(moment=moment), "device", device=0)["live_bytes"]

    def oom_reports(self):
        """The OOM reports on standard error, each a list of lines."""
        reports, lines = [], None
        for line in self.said.splitlines():
            if line.startswith("vramtrack: out of memory"):
                lines = [line]
                reports.append(lines)
            elif lines is not None:
                lines.append(line)
                lines = None if line.startswith("vramtrack: next:") else lines
        return reports

    def test_page_locked_memory(self):
        done = self.run_program(vt.compile(HOST, "-lcuda", name="host_oom"))
        self.assertEqual(done.returncode, 3, done.stderr)
        found = [f for f in self.report()["findings"] if f["family"] == "limit"]
        self.assertEqual(len(found), 1, found)
        evidence = "\n".join(found[0]["evidence"])
        self.assertIn("This process had page-locked 64.00 MiB already.", evidence)
        self.assertRegex(evidence, r"The host had [0-9.]+ [MGT]iB available")
        self.assertIn("ulimit -l allows 1.00 MiB of locked memory.", evidence)
        self.assertEqual([(a["saves_bytes"], a["enough"]) for a in found[0]["advice"]], [(64 * MIB, False), (None, False)])

    def assert_retry(self, failures):
        self.assertEqual(self.failures(), failures)
        self.assertEqual(self.ooms(), [])
        self.assertNotIn("out of memory", self.said)
        self.assertNotIn("capacity", self.said)

    def assert_told(self, place, requested, free, holder):
        """Exactly one OOM report, with everything in it that a user needs."""
        self.assertEqual(len(self.oom_reports()), 1, self.said)
        lines, = self.oom_reports()
        self.assertLessEqual(len(lines), 25)
        for part in ("cuMemAlloc_v2", "%d.00 MiB" % requested, "%d.00 MiB free of 16.00 GiB" % free, "GPU 0"):
            self.assertIn(part, lines[0])
        self.assertRegex(lines[1], r"requested by %s \(\S+\.c(pp)?:\d+\)" % place)
        self.assertTrue(any(holder in line for line in lines), lines)
        recording, = self.recordings()
        self.assertEqual(lines[-2], "vramtrack: recording: " + recording)
        self.assertEqual(lines[-1], "vramtrack: next: vramtrack report " + recording)
        self.assertEqual(len(glob.glob(recording[:-4] + ".txt")), 1)

    def test_ladder_that_recovers_is_a_retry(self):
        self.scenario("ladder2_recovers", 0)
        self.assert_retry([("retry", 1, 600)])

    def test_ladder_of_three_that_recovers_is_a_retry(self):
        self.scenario("ladder3_recovers", 0)
        self.assertEqual({f[0] for f in self.failures()}, {"retry"})
        self.assertEqual(self.ooms(), [])
        self.assertNotIn("out of memory", self.said)

    def test_ladder_that_fails_is_one_oom(self):
        for name in ("ladder2_fails", "ladder3_fails"):
            with self.subTest(name):
                self.setUp()
                self.scenario(name, 3)
                self.assertEqual([f[0] for f in self.failures()], ["oom"])
                self.assertEqual(self.ooms(), ["oom-1"])
                self.assertEqual(self.live_at("oom-1"), 300 * MIB)
                self.assert_told("climb", 600, 500, "300.00 MiB in 1      hold_memory (")

    def test_loop_that_frees_and_recovers_is_a_retry(self):
        self.scenario("loop_recovers", 0)
        self.assertEqual({f[0] for f in self.failures()}, {"retry"})
        self.assertEqual(self.ooms(), [])
        self.assertNotIn("out of memory", self.said)

    def test_loop_that_frees_and_fails_is_one_oom(self):
        """The figures are those of the last refusal, when all that could be freed was."""
        self.scenario("loop_fails", 3)
        self.assertEqual([f[0] for f in self.failures()], ["oom"])
        self.assertEqual(self.ooms(), ["oom-1"])
        self.assertEqual(self.live_at("oom-1"), 300 * MIB)
        self.assert_told("try_again", 600, 500, "300.00 MiB in 1      hold_memory (")

    def test_probing_downwards_is_silent(self):
        self.scenario("probe", 0)
        self.assert_retry([("retry", 1, 4096), ("retry", 1, 2048), ("retry", 1, 1024), ("retry", 1, 512)])

    def test_failure_before_the_end(self):
        """Nothing follows the failure but the end of the process, whichever way it comes."""
        for name in ("single", "exit_now_after"):
            for mode in ("all", "oom"):
                with self.subTest(name, report=mode):
                    self.setUp()
                    self.scenario(name, 3, VRAMTRACK_REPORT=mode)
                    self.assertEqual(self.failures(), [("oom", 1, 600)])
                    self.assertEqual(self.live_at("oom-1"), 300 * MIB)
                    self.assertEqual((self.json["process"]["end"], self.json["process"]["exit_code"]), ("exit", 3))
                    self.assert_told("ask_big", 600, 500, "300.00 MiB in 1      hold_memory (")

    def test_smaller_success_elsewhere_does_not_excuse_it(self):
        self.scenario("smaller_elsewhere", 3)
        self.assertEqual(self.failures(), [("oom", 1, 600)])
        self.assertEqual(self.live_at("oom-1"), 300 * MIB)
        self.assert_told("ask_big", 600, 500, "300.00 MiB in 1      hold_memory (")

    def test_larger_success_elsewhere_excuses_it(self):
        self.scenario("larger_elsewhere", 0)
        self.assert_retry([("retry", 1, 600)])

    def test_two_in_sequence(self):
        self.scenario("two", 0)
        self.assertEqual(sorted(self.failures()), [("oom", 1, 900), ("oom", 1, 1000)])
        self.assertEqual(self.ooms(), ["oom-1", "oom-2"])
        self.assertEqual((self.live_at("oom-1"), self.live_at("oom-2")), (64 * MIB, 194 * MIB))
        held = {s["live_bytes"] // MIB for s in self.sites_in(self.report(moment="oom-2"), "hold_memory") if s["live_bytes"]}
        self.assertEqual(held, {64, 128})
        self.assertEqual(self.total(self.json, "device")["failed_allocs"], 2)
        self.assertGreaterEqual(len(self.oom_reports()), 1)

    def test_parent_and_child_report_each(self):
        program = [vt.compile("oom_scenarios.c", "-lcuda"), "parent_and_child"]
        done = self.run_program(program, VRAMTRACK_REPORT="oom")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.said = done.stderr
        parent, child = self.oom_reports()
        self.assertIn("1000.00 MiB", parent[0])
        self.assertIn("900.00 MiB", child[0])
        recordings = self.recordings()
        self.assertEqual({parent[-2], child[-2]}, {"vramtrack: recording: " + r for r in recordings})
        for path in recordings:
            self.assertTrue(os.path.exists(path[:-4] + ".txt"), path)
            self.assertEqual([m["name"] for m in self.report(path)["moments"] if m["name"].startswith("oom")], ["oom-1"])

    def test_two_threads_at_once(self):
        self.scenario("threads", 0)
        self.assertEqual(sorted(self.failures()), [("oom", 1, 800), ("oom", 1, 900)])
        self.assertEqual(self.ooms(), ["oom-1", "oom-2"])
        self.assertEqual({self.live_at(m) for m in self.ooms()}, {300 * MIB})
        self.assertEqual(self.total(self.json, "device")["failed_allocs"], 2)

    def test_more_threads_than_verdicts_can_wait_for(self):
        self.scenario("many_threads", 0)
        self.assertEqual({f[0] for f in self.failures()}, {"oom"})
        self.assertEqual(sum(f[1] for f in self.failures()), 300)
        self.assertEqual(self.total(self.json, "device")["failed_allocs"], 300)
        self.assertEqual(len(self.oom_reports()), 1)
        self.assertEqual(self.live_at("oom-1"), 300 * MIB)

    def test_while_other_threads_allocate(self):
        self.scenario("under_load", 0)
        self.assertEqual(len([f for f in self.failures() if f[0] == "oom"]), 20)
        self.assertEqual(len(self.oom_reports()), 1)
        self.assertEqual(self.ooms(), sorted("oom-%d" % i for i in range(1, 21)))
        for moment in ("oom-1", "oom-20"):
            live = self.live_at(moment)
            self.assertTrue(300 * MIB <= live <= 300 * MIB + (20 + 32) * 4096, live)
        self.assertEqual(self.total(self.json, "device")["live_bytes"], 300 * MIB + 20 * 4096)

    def test_abort_after(self):
        self.scenario("abort_after", -6)
        self.assertEqual(self.failures(), [("oom", 1, 600)])
        self.assertEqual(self.json["process"]["end"], "killed")
        self.assert_told("ask_big", 600, 500, "300.00 MiB in 1      hold_memory (")

    def test_uncaught_exception_after(self):
        done = self.run_program(vt.compile(THROWS, "-lcuda", name="throws"))
        self.assertEqual(done.returncode, -6)
        self.assertIn("no memory", done.stderr)
        self.said = done.stderr
        self.assertEqual([(f["kind"], f["requested_bytes"]) for f in self.report()["failures"]], [("oom", 48 * MIB)])
        self.assert_told(r"demand\S*.*", 48, 32, "32.00 MiB in 1      demand (throws")

    def test_sigkill_after(self):
        self.scenario("kill_after", -9)
        self.assertEqual(self.said, "")
        self.assertEqual(self.failures(), [("oom", 1, 600)])
        failure, = self.json["failures"]
        self.assertEqual((failure["free_bytes"], failure["total_bytes"], failure["code_name"]), (500 * MIB, 16384 * MIB, "CUDA_ERROR_OUT_OF_MEMORY"))
        self.assertEqual((failure["frames"][0]["function"], failure["api"]), ("ask_big", "cuMemAlloc_v2"))
        self.assertEqual(self.live_at("oom-1"), 300 * MIB)

    def test_refused_for_another_reason(self):
        self.scenario("other_code", 0)
        failure, = self.json["failures"]
        self.assertEqual((failure["kind"], failure["code"], failure["code_name"]), ("failed_alloc", 800, "CUDA_ERROR_NOT_PERMITTED"))
        self.assertEqual(failure["requested_bytes"], 16 * MIB)
        self.assertEqual(self.ooms(), [])
        self.assertNotIn("out of memory", self.said)
        self.assertEqual(self.total(self.json, "device")["failed_allocs"], 1)

    def test_expandable_segments_probe(self):
        self.scenario("expandable", 0)
        self.assert_retry([("retry", 1, 20)])
        self.assertEqual(self.total(self.json, "vmm_physical")["live_bytes"], 800 * MIB)

    def test_failures_in_a_loop_do_not_flood(self):
        self.scenario("flood", 0)
        self.assertEqual(sum(f[1] for f in self.failures()), 500)
        self.assertEqual({f[0] for f in self.failures()}, {"oom"})
        self.assertLessEqual(len(self.failures()), 2)
        self.assertEqual(len(self.oom_reports()), 1)
        self.assertLessEqual(len(self.said.splitlines()), 50)
        self.assertEqual(self.total(self.json, "device")["failed_allocs"], 500)
        self.assertEqual(self.live_at("oom-1"), 300 * MIB)

    def test_failures_of_all_sizes_do_not_flood(self):
        self.scenario("flood_of_sizes", 0)
        self.assertEqual(len(self.failures()), 500)
        self.assertEqual(len(self.oom_reports()), 1)
        self.assertLessEqual(len(self.said.splitlines()), 50)
        self.assertLessEqual(len(self.ooms()), 128)
        self.assertLess(os.path.getsize(self.recordings()[0]), 256 * MIB)

    def test_reports_switched_off(self):
        self.scenario("smaller_elsewhere", 3, VRAMTRACK_REPORT="off")
        self.assertEqual(self.said, "")
        self.assertEqual(self.failures(), [("oom", 1, 600)])
        self.assertEqual(glob.glob(os.path.join(self.dir, "*.txt")), [])
