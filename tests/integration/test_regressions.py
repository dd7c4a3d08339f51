"""The failures that other interposers of CUDA are known for, acted out: none of them happens here.

One class per regression, numbered as in the research that collected them. Each program checks its own return codes, errno
and pointers and says so by its exit status; here the recorder's report is held against the exact figures. Where the
caller's compilation decides (tail calls in callers of dlsym), everything is done at -O0 and at -O2.
"""
import os
import re
import shutil
import subprocess
import sys

import vt
from test_routes import DRIVER, RUNTIME

MIB = 1 << 20
GIB = 1 << 30
INCLUDE = ["-I", os.path.join(vt.ROOT, "src")]
LEVELS = ("-O0", "-O2")


def build(source, *flags, **options):
    return vt.compile(source, *INCLUDE, *flags, **options)


def named(path, directory, name):
    """The library under the name that matters, in a directory of its own."""
    os.makedirs(directory, exist_ok=True)
    target = os.path.join(directory, name)
    shutil.copy(path, target)
    return target


def functions(frames):
    return [f["function"] for f in frames]


class Case(vt.Case):
    def play(self, program, *arguments, code=0, out=None, **env):
        """Runs a program that must end with this status and print nothing but `out`."""
        env.setdefault("VRAMTRACK_REPORT", "off")
        done = self.run_program([program, *arguments], timeout=30, **env)
        self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
        if out is not None:
            self.assertEqual(done.stdout, out)
        return done.stdout

    def scene(self, name, **env):
        self.play(build("regr_driver_calls.c", "-lcuda"), name, out="", **env)
        report = self.report()
        self.assertEqual((report["process"]["end"], report["process"]["exit_code"], report["notes"]), ("exit", 0, []))
        return report

    def figures(self, report, kind, device=None):
        """(live MiB, live count, allocations, frees) of a kind."""
        t = self.total(report, kind, device=device)
        return t["live_bytes"] / MIB, t["live_count"], t["alloc_calls"], t["free_calls"]

    def failures(self, report):
        return sorted((f["kind"], f["api"], f["code"], f["requested_bytes"] / MIB, f["count"]) for f in report["failures"])

    def forget(self):
        for name in os.listdir(self.dir):
            os.remove(os.path.join(self.dir, name))


THROWER = """// c++
#include <stdexcept>
extern "C" int outer(int (*inner)(int), void (*grab)(void))
{
    try { grab(); inner(5); return 1; }
    catch (const std::runtime_error &e) { grab(); return e.what()[0] == 'r' ? 42 : 2; }
}
"""
RETHROWER = """// c++
#include <stdexcept>
extern "C" int inner(int n)
{
    try { throw std::logic_error("first"); }
    catch (const std::logic_error &) {
        if (n == 7) throw;
        throw std::runtime_error("rethrown");
    }
}
"""


class Regression01NothingChanges(Case):
    """Programs without CUDA: same output, same status, no file."""

    def test_01_shells_and_interpreters(self):
        self.assert_silent("/bin/true")
        self.assert_silent("/bin/false")
        self.assert_silent(["/bin/bash", "-c", "echo out; echo err >&2; (exit 3); echo $?; exec /bin/sh -c 'exit 4'"])
        self.assert_silent(["/bin/bash", "-c", "kill -TERM $$"])
        self.assert_silent(["/usr/bin/env", "-i", "/bin/echo", "clean"])
        self.assert_silent([sys.executable, "-c", "import ctypes, json, subprocess, threading\n"
                            "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
                            "print(subprocess.run(['/bin/echo', 'child'], capture_output=True).stdout)\n"
                            "print(ctypes.CDLL(None).getpid() > 0)\nraise SystemExit(5)"])

    def test_01_ldd(self):
        """The same libraries, and this one."""
        def libraries(done):
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [re.sub(r" \(0x[0-9a-f]+\)", "", line) for line in done.stdout.splitlines()]
        command = ["ldd", "/bin/bash"]
        bare, under = libraries(self.run_program(command, preload=False)), libraries(self.run_program(command))
        self.assertEqual([l for l in under if "libvramtrack.so" not in l and (not vt.SAN or l in bare)], bare)
        self.assertEqual(os.listdir(self.dir), [])

    def test_01_gdb(self):
        gdb = shutil.which("gdb")
        if not gdb:
            self.skipTest("gdb is not installed")
        script = ["-ex", "set debuginfod enabled off", "-ex", "break main", "-ex", "run", "-ex", "print 6*7", "-ex", "info breakpoints",
                  "-ex", "kill", "-ex", "quit"]
        program = vt.compile("int main(void) { return 0; }", "-O0", name="debugged")

        def lines(done):
            return [l for l in done.stdout.splitlines() if not re.search(r"process \d+|libthread_db|0x[0-9a-f]{12}", l)]
        command = [gdb, "-batch", "-nx", *script, program]
        bare, under = self.run_program(command, preload=False), self.run_program(command)
        self.assertEqual((under.returncode, lines(under)), (bare.returncode, lines(bare)))
        self.assertIn("$1 = 42", under.stdout)
        self.assertEqual(os.listdir(self.dir), [])

    def unwinding(self, way, *cuda):
        plugins = [vt.compile(THROWER, shared=True, name="thrower"), vt.compile(RETHROWER, shared=True, name="rethrower")]
        return [build("regr_threads.c", "-lcuda" if cuda else "-DNO_CUDA"), way, *plugins, *cuda]

    def test_01_exceptions_and_cancellation(self):
        needed = subprocess.run(["readelf", "-d", self.unwinding("throw")[0]], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertNotIn("libgcc_s", needed)
        for way in ("throw", "cancel", "exit", "terminate"):
            with self.subTest(way=way):
                self.assert_silent(self.unwinding(way))
        self.assertEqual(self.run_program(self.unwinding("throw")).stdout, "outer 42\nouter 42\n")

    def test_01_exceptions_and_cancellation_with_cuda(self):
        """The same with an allocation at every step: behaviour is the same, and all of them are on record."""
        for way, status, allocations, end in (("throw", 23, 4, "exit"), ("cancel", 23, 2, "exit"), ("exit", 0, 3, "exit"), ("terminate", -6, 4, "killed")):
            with self.subTest(way=way):
                command = self.unwinding(way, "cuda")
                bare, under = self.run_program(command, preload=False), self.run_program(command, VRAMTRACK_REPORT="off")
                self.assertEqual((under.returncode, under.stdout, under.stderr), (bare.returncode, bare.stdout, bare.stderr))
                self.assertEqual(under.returncode, status)
                report = self.report()
                self.assertEqual(self.figures(report, "device"), (allocations, allocations, allocations, 0))
                self.assertEqual(report["process"]["end"], end)
                self.forget()


OMPT = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static int depth;
__attribute__((weak)) void *ompt_start_tool(unsigned version, const char *runtime)
{
    if (depth++ > 100) { puts("found itself"); exit(77); }
    void *(*next)(unsigned, const char *) = (void *(*)(unsigned, const char *))dlsym(RTLD_NEXT, "ompt_start_tool");
    return next ? next(version, runtime) : 0;
}
int start_runtime(void) { return ompt_start_tool(1, "omp") == 0; }
"""
OMPT_PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
int start_runtime(void);
static void *again(void *first) { return dlsym(RTLD_NEXT, "open") == first && dlsym(RTLD_NEXT, "read") ? first : 0; }
int main(void)
{
    void *first = dlsym(RTLD_NEXT, "open"), *seen;
    pthread_t t;
    if (!first) return 2;
    for (int i = 0; i < 300; i++) if (dlsym(RTLD_NEXT, "open") != first) return 3;
    pthread_create(&t, 0, again, first);
    pthread_join(t, &seen);
    if (seen != first) return 4;
    return start_runtime() ? 30 : 5;
}
"""


class Regression02Next(Case):
    def test_02_rtld_next_means_behind_the_caller(self):
        for level in LEVELS:
            for tail in ([], ["-fno-optimize-sibling-calls"]):
                with self.subTest(level=level, tail=tail):
                    library = vt.compile(OMPT, level, *tail, shared=True, name="libomp")
                    program = vt.compile(OMPT_PROGRAM, level, library, "-Wl,-rpath," + vt.WORK, name="omp")
                    self.assertEqual(self.run_program(program, preload=False, timeout=20).returncode, 30)
                    self.assert_silent(program, timeout=20)


SHIM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef REAL
int cudnnFoo(int n) { return n + 2; }
int cublasFoo(int n) { return n + 3; }
#else
static int depth;
#define SHIM(name) int name(int n) { \
    if (depth++ > 100) { puts("found itself"); exit(77); } \
    void *h = dlopen(getenv("REAL_LIBRARY"), RTLD_NOW | RTLD_LOCAL); \
    int (*f)(int) = (int (*)(int))dlsym(h, #name); \
    return f ? f(n) : -1; }
SHIM(cudnnFoo)
SHIM(cublasFoo)
#endif
"""
PLUGIN = r"""
#include <cuda_runtime_api.h>
#include <dlfcn.h>
__attribute__((noinline)) int plugin_grab(size_t n) { void *p; return cudaMalloc(&p, n); }
int plugin_free(size_t n) { void *p; return cudaMalloc(&p, n) || cudaFree(p); }
void *plugin_probe(const char *name) { return dlsym(RTLD_DEFAULT, name); }
"""
PLUGIN_HOST = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *h = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!h) { puts(dlerror()); return 1; }
        int (*grab)(size_t) = (int (*)(size_t))dlsym(h, "plugin_grab"), (*release)(size_t) = (int (*)(size_t))dlsym(h, "plugin_free");
        void *(*probe)(const char *) = (void *(*)(const char *))dlsym(h, "plugin_probe");
        printf("%d %d %d %d\n", dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL, probe("cudaMalloc") != NULL, grab(3 << 20), release(1 << 20));
    }
    return 31;
}
"""


class Regression03Handles(Case):
    def test_03_shims_that_look_their_own_names_up(self):
        real = vt.compile(SHIM, "-DREAL", shared=True, name="libreal")
        main = "int cudnnFoo(int), cublasFoo(int); int main(void) { return cudnnFoo(40) == 42 && cublasFoo(40) == 43 ? 32 : 1; }"
        for level in LEVELS:
            with self.subTest(level=level):
                shim = vt.compile(SHIM, level, shared=True, name="libshim")
                program = vt.compile(main, level, shim, name="shimmed")
                self.assert_silent(program, timeout=20, REAL_LIBRARY=real)
                self.assertEqual(self.run_program(program, REAL_LIBRARY=real).returncode, 32)

    def test_03_runtime_of_a_plugin(self):
        """A runtime that only a plugin opened (RTLD_LOCAL) is that plugin's; nobody else finds one."""
        plugins = [vt.compile(PLUGIN, "-lcudart", shared=True, name="plugin_dynamic"),
                   vt.compile(PLUGIN, "-l:libcudart_static.a", "-DSTATIC", shared=True, name="plugin_static")]
        for level in LEVELS:
            with self.subTest(level=level):
                host = vt.compile(PLUGIN_HOST, level, name="plugin_host")
                bare = self.run_program([host, *plugins], preload=False)
                self.assertEqual((bare.returncode, bare.stdout.splitlines()[0]), (31, "0 1 0 0"))
                self.play(host, *plugins, code=31, out=bare.stdout)
                report = self.report()
                self.assertEqual(self.figures(report, "device"), (6, 2, 4, 2))
                self.assertEqual({(s["api"], s["live_bytes"]) for s in self.sites_in(report, "plugin_grab")},
                                 {("cudaMalloc", 3 * MIB), ("cuMemAlloc_v2", 3 * MIB)})
                self.assertEqual(report["failures"], [])
                self.forget()

    def answers(self, text, bare):
        """The lines; which object's scope an error speaks of is left out, as are names of ours asked for by RTLD_NEXT where
        nobody has them: the real dlsym answers those, and from a caller in front of the library it finds the library."""
        kept = []
        for line, original in zip(text.splitlines(), bare.splitlines()):
            ours = re.match(r"next (\w+): NULL", original)
            if not (ours and ours.group(1) in DRIVER + RUNTIME):
                kept.append(re.sub(r"; [^ ;]+: undefined symbol", "; undefined symbol", line))
        return kept + [len(text.splitlines())]

    def test_03_probes_and_dlerror(self):
        """What is not there is not found, and the error text is the one that it always was."""
        driver, runtime = os.path.join(vt.SIM, "libcuda.so.1"), os.path.join(vt.SIM, "libcudart.so.13")
        for level in LEVELS:
            program = build("regr_lookups.c", level)
            for libraries in ([], [driver], [runtime], ["+" + driver], ["+" + runtime], [driver, runtime], ["+" + driver, "+" + runtime]):
                with self.subTest(level=level, libraries=libraries):
                    bare, under = self.run_program([program, *libraries], preload=False), self.run_program([program, *libraries])
                    self.assertEqual((bare.returncode, under.returncode, under.stderr), (24, 24, ""))
                    self.assertEqual(self.answers(under.stdout, bare.stdout), self.answers(bare.stdout, bare.stdout))
                    self.assertIn("default cudaMalloc: NULL", bare.stdout)
                    self.assertEqual(os.listdir(self.dir), [])


class Regression04Drivers(Case):
    def test_04_driver_that_looks_itself_up_while_it_is_loaded(self):
        report = self.scene("plain", SIM_CTOR_DLSYM=1)
        self.assertEqual(self.figures(report, "device"), (2, 1, 2, 1))

    def test_04_stub_that_opens_the_real_driver(self):
        for wsl in ({"SIM_WSL": 1}, {"SIM_WSL": 1, "SIM_CTOR_DLSYM": 1}):
            report = self.scene("plain", **wsl)
            self.assertEqual(self.figures(report, "device"), (2, 1, 2, 1))
            self.forget()

    def test_04_the_same_for_a_program_that_opens_it(self):
        for env in ({"SIM_CTOR_DLSYM": 1}, {"SIM_WSL": 1}):
            out = self.play(build("regr_stacked.c", "-lcudart", "-lcuda"), "dlsym", code=26, **env)
            self.assertEqual(out, "-1 -1\n")
            self.assertEqual(self.figures(self.report(), "device"), (12, 2, 3, 1))
            self.forget()


class Regression05And06Versions(Case):
    def test_05_06_the_driver_chooses_the_version(self):
        """Answers are those of the driver, code and status too; only the address of what is wrapped differs."""
        wrapped = set(DRIVER)
        for level in LEVELS:
            with self.subTest(level=level):
                program = build("regr_versions.c", level)
                bare = self.run_program(program, preload=False, SIM_DEVICES=3)
                under = self.play(program, code=25, SIM_DEVICES=3)
                self.assertEqual((bare.returncode, bare.stderr), (25, ""))
                expected = re.sub(r"libcuda\.so\.1:(\w+)", lambda m: ("libvramtrack.so:" if m.group(1) in wrapped else "libcuda.so.1:") + m.group(1), bare.stdout)
                self.assertEqual(under.splitlines(), expected.splitlines())
                for line in ("five cuMemAlloc 3010 0: 0 0 libcuda.so.1:cuMemAlloc", "five cuMemAlloc 3020 0: 0 0 libvramtrack.so:cuMemAlloc_v2",
                             "four cuMemAlloc 3010 0: 0 - libcuda.so.1:cuMemAlloc", "five cuMemAlloc 1000 0: 0 2 NULL", "four cuMemAlloc 1000 0: 500 - -",
                             "five cuMemAllocAsync 11020 2: 0 0 libvramtrack.so:cuMemAllocAsync_ptsz",
                             "five cuMemAllocAsync 11020 0: 0 0 libvramtrack.so:cuMemAllocAsync",
                             "five cuMemCreate 10020 2: 0 0 libvramtrack.so:cuMemCreate",
                             "five cuGetProcAddress 11030 0: 0 0 libvramtrack.so:cuGetProcAddress",
                             "five cuGetProcAddress 12000 0: 0 0 libvramtrack.so:cuGetProcAddress_v2",
                             "five cuCtxCreate 2000 0: 0 0 libcuda.so.1:cuCtxCreate", "five cuCtxCreate 3020 0: 0 0 libvramtrack.so:cuCtxCreate_v2",
                             "five cuCtxCreate 11040 0: 0 0 libvramtrack.so:cuCtxCreate_v3", "five cuCtxCreate 12050 0: 0 0 libvramtrack.so:cuCtxCreate_v4",
                             "five cuGraphAddNode 12020 0: 0 0 libvramtrack.so:cuGraphAddNode", "five cuGraphAddNode 12030 0: 0 0 libvramtrack.so:cuGraphAddNode_v2",
                             "five cuCtxGetDevice 13000 0: 0 0 libcuda.so.1:cuCtxGetDevice_v2", "five cuGetExportTable 3000 0: 0 0 libcuda.so.1:cuGetExportTable",
                             "five  0 0: 1 99 -", "dlsym cuMemAlloc: libcuda.so.1:cuMemAlloc", "dlsym cuGetExportTable: libcuda.so.1:cuGetExportTable"):
                    self.assertIn(line, under.splitlines())
                report = self.report()
                self.assertEqual(self.figures(report, "device", 1), (5, 1, 1, 0))
                self.assertEqual(self.figures(report, "graph", 1), (13, 2, 2, 0))
                self.assertEqual({t["kind"] for t in report["totals"] if t["alloc_calls"]}, {"device", "graph"})
                # The 32-bit calls are the driver's own business; what failed for want of a context is not.
                self.assertEqual(self.failures(report), [("failed_alloc", "cuMemAlloc_v2", 201, 4096 / MIB, 1)])
                self.forget()

    def test_06_an_older_driver(self):
        """Of a driver that lacks what is newer than 11.4, the rest works."""
        report = self.scene("plain", SIM_DRIVER_VERSION=11040)
        self.assertEqual(self.figures(report, "device"), (2, 1, 2, 1))


class Regression07Frees(Case):
    def test_07_misuse_is_named(self):
        report = self.scene("misuse")
        self.assertEqual(self.failures(report), [
            ("double_free", "cuMemFreeAsync", 1, 0, 1), ("double_free", "cuMemFree_v2", 1, 0, 1), ("interior_pointer", "cuMemFree_v2", 1, 0, 1),
            ("unknown_pointer", "cuMemFree_v2", 1, 0, 1), ("wrong_api", "cuMemFreeHost", 1, 0, 1), ("wrong_api", "cuMemFree_v2", 1, 0, 1)])
        by = {(f["kind"], f["api"]): f for f in report["failures"]}
        double = by["double_free", "cuMemFree_v2"]
        self.assertEqual([functions(double[k])[0] for k in ("frames", "allocated_at", "freed_at")], ["second_free", "grab", "first_free"])
        self.assertEqual((double["code_name"], double["driver_visible"], double["pointer_offset"]), ("CUDA_ERROR_INVALID_VALUE", True, None))
        interior = by["interior_pointer", "cuMemFree_v2"]
        self.assertEqual((interior["pointer_offset"], functions(interior["allocated_at"])[0], functions(interior["frames"])[0]), (65536, "grab", "misuse"))
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
        self.assertEqual(self.total(report, "device")["peak_bytes"], 6 * MIB)
        self.assertEqual(self.failures(report), [("failed_free", "cuMemFree_v2", 719, 0, 1)])
        self.assertEqual(functions(report["failures"][0]["allocated_at"])[0], "grab")

    def test_07_refused_allocations_and_garbage(self):
        report = self.scene("refused_allocs")
        for kind in ("device", "managed", "pinned", "array", "async", "vmm_physical", "vmm_reserved_va"):
            self.assertEqual(self.figures(report, kind), (0, 0, 0, 0), kind)
        found = {}
        for kind, api, code, size, count in self.failures(report):
            self.assertEqual(kind, "failed_alloc")
            found[api, code, size] = found.get((api, code, size), 0) + count
        self.assertEqual(found, {
            ("cuMemAlloc_v2", 801, 1): 1, ("cuMemAlloc_v2", 801, 9): 1, ("cuMemAllocPitch_v2", 802, 2): 1, ("cuMemAllocPitch_v2", 802, 1): 1,
            ("cuMemAllocManaged", 803, 3): 1, ("cuMemAllocAsync", 804, 4): 1, ("cuMemHostAlloc", 805, 5): 1, ("cuMemCreate", 806, 6): 2,
            ("cuMemAddressReserve", 807, 8): 1, ("cuArrayCreate_v2", 808, 4): 1})
        self.assertEqual(self.total(report, "device", device=0)["failed_allocs"], 4)

    def test_07_full_card(self):
        report = self.scene("out_of_memory")
        failure, = report["failures"]
        self.assertEqual([failure[k] for k in ("kind", "api", "code", "code_name", "count", "requested_bytes", "free_bytes", "total_bytes", "reserved_bytes")],
                         ["oom", "cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", 1, 500 * MIB, 300 * MIB, 16 * GIB, 100 * MIB])
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
        self.assertEqual(self.failures(report), [("failed_alloc", "cuMemAlloc_v2", 201, 32, 1), ("unknown_pointer", "cuMemFree_v2", 201, 0, 1)])
        self.assertEqual(sorted(d["index"] for d in report["devices"]), [0, 1])


REUSE = r"""
#include "regr.h"
int main(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
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
        self.assertEqual(self.failures(report), [("failed_free", "cuMemUnmap", 1, 0, 1), ("unknown_pointer", "cuMemRelease", 1, 0, 1)])

    def test_09_numbers_come_back(self):
        directory = os.path.join(vt.WORK, "reusing_driver")
        driver = vt.compile("regr_driver.c", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", shared=True)
        named(driver, directory, "libcuda.so.1")
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
        bare = self.run_program([build("regr_process.c", "-lcuda"), scene], preload=False)
        self.assertEqual((bare.returncode, bare.stdout, bare.stderr), (status, "", ""))
        self.play(build("regr_process.c", "-lcuda"), scene, code=status, out="")
        reports = [self.report(path) for path in self.recordings()]
        self.assertEqual(sorted((self.total(r, "device")["live_bytes"] / MIB, r["process"]["end"], r["process"]["exit_code"]) for r in reports),
                         recordings)
        for r in reports:
            self.assertEqual(r["failures"], [])
        self.forget()
        return reports

    def test_13_ends_and_children(self):
        for scene, expected in ENDS.items():
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


XLA = r"""
#include "regr.h"
static int depth;
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
    if (depth++ > 50) { puts("found itself"); exit(77); }
    static __typeof__(&cuMemAlloc_v2) f;
    if (!f) f = (__typeof__(f))dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuMemAlloc_v2");
    CUresult r = f(p, n);
    depth--;
    return r;
}
"""
XLA_PROGRAM = r"""
#include "regr.h"
NOINLINE static void grab(size_t n) { CUdeviceptr p; OK(cuMemAlloc_v2(&p, n)); }
int main(void)
{
    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUcontext c;
    OK(((__typeof__(&cuInit))dlsym(h, "cuInit"))(0));
    OK(((__typeof__(&cuDevicePrimaryCtxRetain))dlsym(h, "cuDevicePrimaryCtxRetain"))(&c, 0));
    OK(((__typeof__(&cuCtxSetCurrent))dlsym(h, "cuCtxSetCurrent"))(c));
    for (int i = 0; i < 3; i++) grab(2 * MIB);
    return 35;
}
"""


class Regression14Stacked(Case):
    def stacked(self, other, way, level, first):
        program = build("regr_stacked.c", level, "-lcudart", "-lcuda")
        return self.play(program, way, code=26, preload=[other, vt.LIBRARY] if first else [vt.LIBRARY, other])

    def test_14_another_interposer(self):
        """Before us or behind us: it sees what it sees without us, and each call is on our books once."""
        for level in LEVELS:
            other = build("regr_interposer.c", level, shared=True, name="interposer")
            program = build("regr_stacked.c", level, "-lcudart", "-lcuda")
            for way in ("linked", "dlsym", "lookup", "runtime"):
                alone = self.run_program([program, way], preload=[other])
                self.assertEqual((alone.returncode, alone.stderr), (26, ""))
                for first in (True, False):
                    with self.subTest(level=level, way=way, first=first):
                        out = self.stacked(other, way, level, first)
                        # Look-ups through us may show it more than it would see alone, never less.
                        self.assertIn(out, (alone.stdout, {"runtime": "3\n"}.get(way, "3 1\n")))
                        if way == "lookup" and first and not self.recordings():
                            continue  # its dlsym found libc's behind ours, and gave out a cuGetProcAddress past us
                        report = self.report()
                        self.assertEqual(self.figures(report, "device"), (12, 2, 3, 1))
                        self.assertEqual({t["kind"] for t in report["totals"] if t["alloc_calls"]}, {"device"})
                        self.assertEqual(report["failures"], [])
                        self.forget()

    def test_14_allocator_made_of_virtual_memory(self):
        other = build("regr_interposer.c", "-DVMM", "-lcuda", shared=True, name="vmm_interposer")
        for first in (True, False):
            with self.subTest(first=first):
                self.assertEqual(self.stacked(other, "runtime", "-O0", first), "3\n")
                report = self.report()
                self.assertEqual(self.figures(report, "vmm_physical", 0), (12, 2, 3, 1))
                self.assertEqual(self.figures(report, "vmm_mapped", 0), (12, 2, 3, 1))
                self.assertEqual(self.figures(report, "vmm_reserved_va"), (12, 2, 3, 1))
                self.assertEqual(self.figures(report, "device"), (0, 0, 0, 0))
                self.assertEqual(report["failures"], [])
                self.forget()

    def test_14_library_with_a_shim_of_the_same_name(self):
        """A global library's own cuMemAlloc_v2 that finds the driver's by dlsym: found once, counted once."""
        for level in LEVELS:
            with self.subTest(level=level):
                shim = build(XLA, level, shared=True, name="xla_shim")
                self.play(build(XLA_PROGRAM, level, shim, name="xla"), code=35, out="")
                report = self.report()
                self.assertEqual(self.figures(report, "device"), (6, 3, 3, 0))
                self.assertEqual(sum(s["alloc_calls"] for s in self.sites_in(report, "grab")), 3)
                self.forget()


UCM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
void where(const char *who)
{
    Dl_info in;
    void *p = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    printf("%s %s\n", who, p && dladdr(p, &in) ? strrchr(in.dli_fname, '/') + 1 : "NULL");
}
"""


class Regression15Surface(Case):
    def nm(self, *flags):
        return subprocess.run(["nm", "-D", *flags, vt.LIBRARY], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    def test_15_exports(self):
        exported = {line.split()[-1].split("@")[0] for line in self.nm("--defined-only")}
        hooks = {"dlsym", "dlclose", "_exit", "_Exit", "quick_exit", "abort", "execve", "execv", "execvp", "execvpe", "fexecve", "execveat", "execl",
                 "execlp", "execle"}
        self.assertEqual(exported, set(DRIVER + RUNTIME) | hooks)

    def test_15_imports(self):
        if vt.SAN:
            self.skipTest("a sanitizer's library has needs of its own")
        versions = [line.split("@")[-1] for line in self.nm("--undefined-only") if "@" in line]
        self.assertNotIn("GLIBC_PRIVATE", versions)
        numbers = [tuple(map(int, v[len("GLIBC_"):].split("."))) for v in versions]
        self.assertLessEqual(max(numbers), (2, 34))
        self.assertEqual([l for l in self.nm("--undefined-only") if re.search(r"\bcu[A-Zd]", l)], [])
        needed = subprocess.run(["readelf", "-dW", vt.LIBRARY], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertLessEqual(set(re.findall(r"NEEDED.*\[(.*)\]", needed)), {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"})

    def test_15_callers_that_patch_code_get_the_driver_itself(self):
        directory = os.path.join(vt.WORK, "ucx")
        for level in LEVELS:
            library = vt.compile(UCM, level, shared=True, name="ucm")
            paths = [named(library, directory, n) for n in ("libucm.so.0", "libucm_cuda.so.0", "libucs.so.0", "libapp.so.0")]
            main = r"""
#include <dlfcn.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) ((void (*)(const char *))dlsym(dlopen(argv[i], RTLD_NOW | RTLD_LOCAL), "where"))(argv[i]);
    return 36;
}
"""
            out = self.play(vt.compile(main, level, name="ucx_host"), *paths, code=36)
            self.assertEqual([line.split("/")[-1] for line in out.splitlines()],
                             ["libucm.so.0 libcuda.so.1", "libucm_cuda.so.0 libcuda.so.1", "libucs.so.0 libcuda.so.1", "libapp.so.0 libvramtrack.so"])
