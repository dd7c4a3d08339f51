"""How processes multiply, change and end: fork, exec, spawn, daemons, unloaded libraries, and every kind of exit."""
import os
import signal
import unittest

import vt

MIB = 1 << 20

STATICS = r"""// c++
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cstdlib>
#include <vector>
struct Cache {
    std::vector<CUdeviceptr> held;
    void fill(size_t n) { CUdeviceptr p = 0; if (cuMemAlloc_v2(&p, n)) abort(); held.push_back(p); }
    ~Cache() { for (CUdeviceptr p : held) cuMemFree_v2(p); }
};
static Cache cache; // constructed before main, so destroyed behind every exit handler of the driver
extern "C" void fill_cache(size_t n) { cache.fill(n); }
"""
STATICS_MAIN = r"""
int main()
{
    CUcontext context;
    CUdeviceptr p = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, 1 << 20)) return 9;
    fill_cache(7 << 20);
    return 0;
}
"""
THROWS = r"""// c++
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
int main()
{
    CUcontext context;
    CUdeviceptr p = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, 5 << 20)) return 9;
    throw 1;
}
"""
# Two of these at the same place give the same addresses, and the frames differ in size if FRAME does.
GRAB = r"""
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <string.h>
CUdeviceptr %s(size_t n)
{
    volatile char frame[%d];
    CUdeviceptr p = 0;
    memset((char *)frame, 1, sizeof frame);
    return cuMemAlloc_v2(&p, n) ? 0 : p + (frame[3] - 1);
}
CUdeviceptr grab(size_t n) { return %s(n); }
"""


class Process(vt.Case):
    def mode(self, name, status, **options):
        done = self.run_program([vt.compile("proc_modes.c", "-lcuda"), name], **options)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def by_pid(self):
        found = {}
        for path in self.recordings():
            found.setdefault(int(path.split(".")[-3]), []).append(self.report(path))
        return found

    def live(self, report):
        return self.total(report, "device", device=0)["live_bytes"]

    def test_fork_and_child_allocates(self):
        done = self.mode("fork_allocating", 0)
        pid, status = map(int, done.stdout.split())
        self.assertEqual(status, 5 << 8)
        reports = self.by_pid()
        self.assertEqual(len(reports), 2)
        child, = reports.pop(pid)
        (parent,), = reports.values()
        self.assertEqual((child["process"]["pid"], child["process"]["end"], child["process"]["exit_code"]), (pid, "exit", 5))
        self.assertEqual((self.live(child), self.total(child, "device")["alloc_calls"]), (7 * MIB, 2))
        self.assertEqual((parent["process"]["end"], parent["process"]["exit_code"]), ("exit", 0))
        self.assertEqual((self.live(parent), self.total(parent, "device")["alloc_calls"]), (11 * MIB, 2))
        self.assertEqual(sum(s["live_bytes"] for s in self.sites_in(child, "hold_memory")), 7 * MIB)

    def test_fork_and_child_does_not_allocate(self):
        done = self.mode("fork_idle", 0)
        report = self.report()
        self.assertEqual((self.live(report), report["process"]["end"], report["process"]["exit_code"]), (11 * MIB, "exit", 0))
        self.assertEqual(done.stderr.count("still allocated, by:"), 1, done.stderr)

    @unittest.skipIf(vt.SAN, "the sanitizers' own locks do not survive a fork under load")
    def test_200_forks_under_allocating_threads(self):
        self.mode("fork_stress", 0, timeout=60)
        reports = self.by_pid()
        self.assertEqual(len(reports), 11)
        live = sorted(self.live(r) for found in reports.values() for r in found)
        self.assertEqual(live, [2 * MIB] + 10 * [3 * MIB])

    def test_exec_leaves_two_recordings(self):
        self.mode("exec_self", 4)
        (pid, reports), = self.by_pid().items()
        self.assertEqual([self.live(r) for r in reports], [1 * MIB, 2 * MIB])
        self.assertEqual({r["process"]["pid"] for r in reports}, {pid})
        self.assertEqual((reports[0]["process"]["end"], reports[0]["process"]["exit_code"]), ("exit", None))
        self.assertEqual((reports[1]["process"]["end"], reports[1]["process"]["exit_code"]), ("exit", 4))

    def test_exec_that_fails(self):
        self.mode("exec_fails", 4)
        report = self.report()
        self.assertEqual((self.live(report), report["process"]["end"], report["process"]["exit_code"]), (3 * MIB, "exit", 4))

    def test_posix_spawn(self):
        done = self.mode("spawn_self", 0)
        pid, status = map(int, done.stdout.split())
        reports = self.by_pid()
        child, = reports.pop(pid)
        (parent,), = reports.values()
        self.assertEqual((status, self.live(child), child["process"]["exit_code"]), (4 << 8, 2 * MIB, 4))
        self.assertEqual((self.live(parent), parent["process"]["exit_code"]), (2 * MIB, 0))

    def test_daemon_that_closes_everything(self):
        """The directory is relative, and the recording has to grow after the daemon moved away."""
        os.mkdir(os.path.join(self.dir, "kept"))
        self.mode("daemonise", 3, VRAMTRACK_DIR="kept")
        names = os.listdir(os.path.join(self.dir, "kept"))
        name, = [n for n in names if n.endswith(".vtr")]
        report = self.report(os.path.join(self.dir, "kept", name))
        total = self.total(report, "device", device=0)
        self.assertEqual((total["live_count"], total["live_bytes"]), (20001, 20001 * 4096))
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"]), ("exit", 3))

    def reload(self, first_frame, second_frame):
        one, two = (vt.compile(GRAB % (name, size, name), shared=True, name=name)
                    for name, size in (("grab_a", first_frame), ("grab_b", second_frame)))
        done = self.run_program([vt.compile("proc_reload.c", "-lcuda"), one, two])
        self.assertEqual(done.returncode, 0, done.stderr)
        places = done.stdout.split()
        self.assertEqual(len(places), 2)
        report = self.report()
        for name, library, live in (("grab_a", one, 1 * MIB), ("grab_b", two, 2 * MIB)):
            site, = self.sites_in(report, name)
            self.assertEqual((site["live_bytes"], site["frames"][0]["function"]), (live, name))
            self.assertEqual(os.path.basename(site["frames"][0]["module"]), os.path.basename(library))
            self.assertIn("main", [f["function"] for f in site["frames"]])
        return places

    def test_unloaded_library_and_another_at_its_place(self):
        places = self.reload(64, 64)
        self.assertEqual(places[0], places[1], "the loader put the second library elsewhere: nothing was tested")

    def test_unloaded_library_and_another_with_other_frames(self):
        places = self.reload(64, 1024)
        self.assertEqual(places[0][:-3], places[1][:-3])

    def end(self, mode, status, end, code, told, live=5 * MIB, **options):
        done = self.mode(mode, status, **options)
        report = self.report()
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"]), (end, code))
        self.assertEqual(self.live(report), live)
        self.assertEqual(done.stderr.count("vramtrack: recording: " + self.recordings()[0]), told, done.stderr)
        self.assertLessEqual(len(done.stderr.splitlines()), 25)
        return report

    def test_ordinary_ends(self):
        for mode in ("return", "exit", "_exit", "_Exit", "quick_exit"):
            with self.subTest(mode):
                self.setUp()
                self.end(mode, 3, "exit", 3, 1)

    @unittest.skipIf(vt.SAN, "a sanitizer has an allocator of its own")
    def test_exit_from_a_signal_handler(self):
        """_exit is what a handler may call, whatever it interrupted: here the C library's own allocator."""
        done = self.run_program(vt.compile("proc_signal.c", "-lcuda"), timeout=20)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        report = self.report()
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"], self.live(report)), ("exit", 3, 5 * MIB))

    @unittest.skipIf(vt.SAN == "tsan", "TSan's own thread keeps the process alive")
    def test_pthread_exit_of_main(self):
        self.end("pthread_exit", 0, "exit", 0, 1, live=6 * MIB)

    def test_fatal_signals(self):
        for mode, number in (("segv", signal.SIGSEGV), ("sigterm", signal.SIGTERM), ("abort", signal.SIGABRT)):
            with self.subTest(mode):
                self.setUp()
                self.end(mode, -number, "killed", None, 0, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0",
                         TSAN_OPTIONS=os.environ.get("TSAN_OPTIONS", "") + ":handle_segv=0")

    def test_uncaught_exception(self):
        done = self.run_program(vt.compile(THROWS, "-lcuda", name="throws"))
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertIn("terminate called", done.stderr)
        report = self.report()
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"], self.live(report)), ("killed", None, 5 * MIB))

    def test_freed_in_exit_handler(self):
        done = self.mode("atexit_free", 3)
        report = self.report()
        self.assertEqual((self.live(report), self.total(report, "device")["free_calls"]), (0, 1))
        self.assertIn("all of it given back", done.stderr)

    def test_freed_when_the_driver_has_shut_down(self):
        done = self.mode("late_free", 3)
        report = self.report()
        self.assertEqual((self.live(report), report["failures"]), (0, []))
        self.assertIn("all of it given back", done.stderr)

    def test_teardown_at_exit_does_not_empty_the_report(self):
        for mode in ("teardown", "early_teardown"):
            with self.subTest(mode):
                self.setUp()
                report = self.end(mode, 3, "exit", 3, 1)
                self.assertEqual(self.total(report, "device")["free_calls"], 0)

    def statics(self, program):
        done = self.run_program(program)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.report()
        self.assertEqual((self.live(report), self.total(report, "device")["peak_bytes"]), (1 * MIB, 8 * MIB))
        self.assertIn("vramtrack: 1.00 MiB still allocated, by:", done.stderr)

    def test_static_object_of_the_program_frees(self):
        self.statics(vt.compile(STATICS + STATICS_MAIN, "-lcuda", name="statics"))

    def test_static_object_of_a_library_frees(self):
        library = vt.compile(STATICS, shared=True, name="libstatics")
        main = STATICS.split("struct")[0] + 'extern "C" void fill_cache(size_t n);' + STATICS_MAIN
        self.statics(vt.compile(main, library, "-lcuda", name="uses_statics"))
