"""The failures that other interposers of CUDA are known for, acted out: frees, devices, handles, contexts, graphs, threads
and processes. (Loading and look-ups: test_regressions.py; drivers: test_regressions_drivers.py.) The programs check what the
driver tells them themselves; here the report is held against the exact figures.
"""
import os

import vt
from regr_case import GIB, MIB, Case, build, functions

class Regression07Frees(Case):
    def test_07_misuse_is_named(self):
        report = self.scene("misuse")
        self.assertEqual(self.failures(report), [
            ("double_free", "cuMemFreeAsync", 1, 0, 1), ("double_free", "cuMemFree_v2", 1, 0, 1),
            ("interior_pointer", "cuMemFree_v2", 1, 0, 1), ("unknown_pointer", "cuMemFree_v2", 1, 0, 1),
            ("wrong_api", "cuMemFreeHost", 1, 0, 1), ("wrong_api", "cuMemFree_v2", 1, 0, 1)])
        by = {(f["kind"], f["api"]): f for f in report["failures"]}
        double = by["double_free", "cuMemFree_v2"]
        self.assertEqual([functions(double[k])[0] for k in ("frames", "allocated_at", "freed_at")],
                         ["second_free", "grab", "first_free"])
        self.assertEqual([double[k] for k in ("code_name", "driver_visible", "pointer_offset")],
                         ["CUDA_ERROR_INVALID_VALUE", True, None])
        interior = by["interior_pointer", "cuMemFree_v2"]
        self.assertEqual(interior["pointer_offset"], 65536)
        self.assertEqual([functions(interior[k])[0] for k in ("frames", "allocated_at")], ["misuse", "grab"])
        self.assertEqual(functions(by["wrong_api", "cuMemFreeHost"]["allocated_at"])[0], "grab")
        self.assertEqual(functions(by["wrong_api", "cuMemFree_v2"]["allocated_at"])[0], "misuse")
        unknown = by["unknown_pointer", "cuMemFree_v2"]
        self.assertEqual((unknown["allocated_at"], unknown["freed_at"], functions(unknown["frames"])[0]), ([], [], "misuse"))
        self.assertEqual(functions(by["double_free", "cuMemFreeAsync"]["allocated_at"])[0], "misuse")
        self.assertEqual(self.figures(report, "device"), (4, 1, 2, 1))
        self.assertEqual(self.figures(report, "pinned"), (3, 1, 1, 0))
        self.assertEqual(self.figures(report, "async"), (0, 0, 2, 2))
        self.assertEqual([self.total(report, k)["failed_frees"] for k in ("device", "pinned", "async")], [3, 1, 1])

    def test_07_refused_free_changes_nothing(self):
        report = self.scene("refused_free")
        self.assertEqual(self.figures(report, "device"), (6, 1, 2, 1))
        self.assertEqual(self.total(report, "device")["peak_bytes"], 11 * MIB)
        self.assertEqual(self.figures(report, "async"), (2, 1, 1, 0))
        self.assertEqual(self.figures(report, "pinned"), (3, 1, 1, 0))
        self.assertEqual(self.figures(report, "vmm_physical"), (4, 1, 2, 1))
        self.assertEqual(self.figures(report, "vmm_mapped"), (4, 1, 1, 0))
        self.assertEqual(self.failures(report), [
            ("failed_free", "cuMemFreeAsync", 701, 0, 1), ("failed_free", "cuMemFreeHost", 702, 0, 1),
            ("failed_free", "cuMemFree_v2", 719, 0, 1), ("failed_free", "cuMemFree_v2", 719, 0, 1),
            ("failed_free", "cuMemRelease", 703, 0, 1), ("failed_free", "cuMemRelease", 705, 0, 1),
            ("failed_free", "cuMemUnmap", 704, 0, 1)])
        for failure in report["failures"]:
            self.assertIn("refused_free", functions(failure["allocated_at"]), failure["api"])

    def test_07_refused_allocations_and_garbage(self):
        report = self.scene("refused_allocs")
        for kind in ("device", "managed", "pinned", "array", "async", "vmm_physical", "vmm_reserved_va"):
            self.assertEqual(self.figures(report, kind), (0, 0, 0, 0), kind)
        found = {}
        for kind, api, code, size, count in self.failures(report):
            self.assertEqual(kind, "failed_alloc")
            found[api, code, size] = found.get((api, code, size), 0) + count
        self.assertEqual(found, {
            ("cuMemAlloc_v2", 801, 1): 1, ("cuMemAlloc_v2", 801, 9): 1, ("cuMemAllocPitch_v2", 802, 2): 1,
            ("cuMemAllocPitch_v2", 802, 1): 1, ("cuMemAllocManaged", 803, 3): 1, ("cuMemAllocAsync", 804, 4): 1,
            ("cuMemHostAlloc", 805, 5): 1, ("cuMemCreate", 806, 6): 2, ("cuMemAddressReserve", 807, 8): 1,
            ("cuArrayCreate_v2", 808, 4): 1})
        self.assertEqual(self.total(report, "device", device=0)["failed_allocs"], 4)

    def test_07_full_card(self):
        report = self.scene("out_of_memory")
        failure, = report["failures"]
        self.assertEqual([failure[k] for k in ("kind", "api", "code", "code_name", "count")],
                         ["oom", "cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", 1])
        self.assertEqual([failure[k] for k in ("requested_bytes", "free_bytes", "total_bytes", "reserved_bytes")],
                         [500 * MIB, 300 * MIB, 16 * GIB, 100 * MIB])
        self.assertEqual(functions(failure["frames"])[0], "too_much")
        self.assertEqual(self.figures(report, "device"), (100, 1, 1, 0))
        self.assertIn("oom-1", [m["name"] for m in report["moments"]])


class Regression08Devices(Case):
    def test_08_device_of_the_allocation(self):
        report = self.scene("devices", SIM_DEVICES=2)
        self.assertEqual(self.figures(report, "device", 0), (0, 0, 1, 1))
        self.assertEqual(self.figures(report, "device", 1), (4, 1, 2, 1))
        self.assertEqual(self.figures(report, "vmm_physical", 0), (16, 1, 1, 0))
        self.assertEqual(self.figures(report, "vmm_physical", 1), (0, 0, 1, 1))
        self.assertEqual(self.failures(report), [("failed_alloc", "cuMemAlloc_v2", 201, 32, 1),
                                                 ("unknown_pointer", "cuMemFree_v2", 201, 0, 1)])
        self.assertEqual(sorted(d["index"] for d in report["devices"]), [0, 1])


REUSE = r"""
#include "regr.h"
int main(void)
{
    CUmemAllocationProp prop = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle h;
    OK(cuInit(0));
    OK(cuMemCreate(&h, 2 * MIB, &prop, 0));
    OK(cuMemMap(0x10000000, 2 * MIB, 0, h, 0));
    OK(cuMemRelease(h));
    OK(cuMemCreate(&h, 4 * MIB, &prop, 0)); /* the same number, while the first lives on in its mapping */
    OK(cuMemMap(0x20000000, 4 * MIB, 0, h, 0));
    OK(cuMemUnmap(0x10000000, 2 * MIB)); /* ends the first */
    OK(cuMemRelease(h));
    OK(cuMemCreate(&h, 8 * MIB, &prop, 0));
    OK(cuMemRelease(h)); /* ends the third */
    return 33;
}
"""


class Regression09Handles(Case):
    def test_09_physical_memory_ends_with_the_last_of_both(self):
        report = self.scene("vmm_scene")
        self.assertEqual(self.figures(report, "vmm_physical", 0), (18, 2, 7, 5))
        self.assertEqual(self.figures(report, "vmm_mapped", 0), (6, 1, 8, 7))
        self.assertEqual(self.figures(report, "vmm_reserved_va"), (32, 1, 1, 0))
        self.assertEqual(self.failures(report), [("failed_free", "cuMemUnmap", 1, 0, 1),
                                                 ("unknown_pointer", "cuMemRelease", 1, 0, 1)])

    def test_09_numbers_come_back(self):
        directory = os.path.join(vt.WORK, "reusing_driver")
        driver = vt.compile("regr_driver.c", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", shared=True)
        vt.place(driver, directory, "libcuda.so.1")
        program = build(REUSE, os.path.join(directory, "libcuda.so.1"), name="reuse")
        self.play(program, code=33, out="", LD_LIBRARY_PATH=directory)
        report = self.report()
        self.assertEqual(self.figures(report, "vmm_physical", 0), (4, 1, 3, 2))
        self.assertEqual(self.figures(report, "vmm_mapped", 0), (4, 1, 2, 1))
        self.assertEqual(report["failures"], [])


class Regression10Contexts(Case):
    def test_10_what_goes_with_a_context(self):
        for name in ("ctx_destroy", "primary_reset", "primary_reset_v2", "primary_release", "primary_release_v2"):
            with self.subTest(name=name):
                report = self.scene(name, SIM_DEVICES=2)
                self.assertEqual(self.figures(report, "device", 0), (0, 0, 2, 0))
                self.assertEqual(self.figures(report, "device", 1), (7, 1, 1, 0))
                self.assertEqual([self.figures(report, k)[:2] for k in ("managed", "pinned", "array")], [(0, 0)] * 3)
                self.assertEqual([self.figures(report, k)[2:] for k in ("managed", "pinned", "array")], [(1, 0)] * 3)
                self.assertEqual(self.figures(report, "async", 0), (4, 1, 1, 0))
                self.assertEqual(self.figures(report, "vmm_physical", 0), (6, 1, 1, 0))
                failure, = report["failures"]
                self.assertEqual((failure["kind"], failure["api"], failure["freed_at"]), ("failed_free", "cuMemFree_v2", []))
                self.assertEqual(functions(failure["allocated_at"])[0], "grab")
                self.forget()

    def test_10_device_reset_of_the_runtime(self):
        source = r"""
#include "regr.h"
int main(void)
{
    void *p, *q, *late;
    OK(cudaMalloc(&p, 1 * MIB));
    OK(cudaMallocHost(&q, 2 * MIB));
    OK(cudaMallocAsync(&q, 4 * MIB, NULL));
    OK(cudaDeviceReset());
    IS(cudaErrorInvalidValue, cudaFree(p));
    OK(cudaMalloc(&late, 8 * MIB));
    OK(cudaFree(late));
    OK(cudaMalloc(&late, 16 * MIB));
    return 34;
}
"""
        for name, flags in (("dynamic", ["-lcudart"]), ("static", ["-l:libcudart_static.a"])):
            with self.subTest(runtime=name):
                self.play(build(source, *flags, name="reset_" + name), code=34, out="")
                report = self.report()
                self.assertEqual(self.figures(report, "device", 0), (16, 1, 3, 1))
                self.assertEqual(self.figures(report, "pinned"), (0, 0, 1, 0))
                self.assertEqual(self.figures(report, "async", 0), (4, 1, 1, 0))
                self.assertEqual([f["kind"] for f in report["failures"]], ["failed_free"])
                self.forget()

    def test_10_contexts_that_stay(self):
        report = self.scene("contexts_that_stay")
        self.assertEqual(self.figures(report, "device", 0), (5, 2, 4, 2))
        self.assertEqual(report["failures"], [])


class Regression11Graphs(Case):
    def test_11_memory_of_graphs(self):
        report = self.scene("graphs")
        self.assertEqual(self.figures(report, "graph", 0), (10, 2, 5, 1))
        self.assertEqual(self.figures(report, "async", 0), (32, 1, 1, 0))
        self.assertEqual(report["failures"], [])


class Regression12Threads(Case):
    def test_12_addresses_that_change_hands(self):
        report = self.scene("two_threads")
        self.assertEqual(self.figures(report, "device"), (0, 0, 40000, 40000))
        self.assertIn(self.total(report, "device")["peak_bytes"], (65536, 131072))
        self.assertEqual(report["failures"], [])
        self.assertEqual(sum(s["threads"] for s in self.sites_in(report, "churn")), 2)


# scene: exit status, recordings as (MiB live, end, exit code)
ENDS = {
    "return": (6, [(1, "exit", 6)]),
    "exit": (7, [(1, "exit", 7)]),
    "_exit": (8, [(1, "exit", 8)]),
    "_Exit": (9, [(1, "exit", 9)]),
    "quick_exit": (10, [(1, "exit", 10)]),
    "abort": (-6, [(1, "killed", None)]),
    "sigterm": (-15, [(1, "killed", None)]),
    "sigkill": (-9, [(1, "killed", None)]),
    "exit_from_thread": (12, [(1, "exit", 12)]),
    "pthread_exit": (0, [(1, "exit", 0)]),
    "no_cuda": (5, []),
    "exec_fails": (11, [(3, "exit", 11)]),
    "fork": (13, [(3, "exit", 13)]),
    "fork_exit": (14, [(3, "exit", 14)]),
    "fork_cuda": (15, [(1, "exit", 15), (2, "exit", 3)]),
    "fork_cuda_killed": (16, [(1, "exit", 16), (2, "killed", None)]),
    "fork_exec": (17, [(1, "exit", 17), (4, "exit", 4)]),
    "spawn": (18, [(1, "exit", 18), (4, "exit", 4)]),
    "vfork": (19, [(3, "exit", 19)]),
    "vfork_exec_fails": (20, [(3, "exit", 20)]),
    "daemon": (21, [(1, "exit", 21), (2, "exit", 22)]),
}


class Regression13Processes(Case):
    def ends(self, scene, expected):
        status, recordings = expected
        self.forget()  # a scene that failed left its recordings
        bare = self.run_program([build("regr_process.c", "-lcuda"), scene], preload=False)
        self.assertEqual((bare.returncode, bare.stdout, bare.stderr), (status, "", ""))
        self.play(build("regr_process.c", "-lcuda"), scene, code=status, out="")
        reports = [self.report(path) for path in self.recordings()]
        ends = [(self.figures(r, "device")[0], r["process"]["end"], r["process"]["exit_code"]) for r in reports]
        self.assertEqual(sorted(ends), recordings)
        for r in reports:
            self.assertEqual(r["failures"], [])

    def test_13_ends_and_children(self):
        for scene, expected in ENDS.items():
            if scene == "pthread_exit" and vt.SAN == "tsan":
                continue  # with TSan alone too: its own thread keeps the process alive when the first thread has gone
            with self.subTest(scene=scene):
                self.ends(scene, expected)

    def test_13_exec(self):
        """The old image's recording is complete, the new one's is its own."""
        self.play(build("regr_process.c", "-lcuda"), "exec", code=4, out="")
        reports = sorted((self.report(p) for p in self.recordings()), key=lambda r: r["process"]["start_unix"])
        self.assertEqual([self.figures(r, "device") for r in reports], [(1, 1, 1, 0), (4, 1, 1, 0)])
        self.assertEqual(reports[0]["process"]["pid"], reports[1]["process"]["pid"])
        self.assertEqual((reports[1]["process"]["end"], reports[1]["process"]["exit_code"]), ("exit", 4))
        self.assertNotEqual(reports[0]["process"]["end"], "running")
