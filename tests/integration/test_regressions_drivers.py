"""The failures that other interposers of CUDA are known for, acted out: drivers that load others, versions, other interposers
beside this one, and what the library shows of itself. (How programs are checked: test_regressions.py.)
"""
import os
import re

import vt
from regr_case import LEVELS, MIB, Case, build, needed_by, output
from test_routes import DRIVER, RUNTIME


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
        def ours(name):
            return ("libvramtrack.so:" if name in DRIVER else "libcuda.so.1:") + name
        for level in LEVELS:
            with self.subTest(level=level):
                program = build("regr_versions.c", level)
                bare = self.run_program(program, preload=False, SIM_DEVICES=3)
                under = self.play(program, code=25, SIM_DEVICES=3)
                self.assertEqual((bare.returncode, bare.stderr), (25, ""))
                expected = re.sub(r"libcuda\.so\.1:(\w+)", lambda m: ours(m.group(1)), bare.stdout)
                self.assertEqual(under.splitlines(), expected.splitlines())
                for line in ("five cuMemAlloc 3010 0: 0 0 libcuda.so.1:cuMemAlloc",
                             "five cuMemAlloc 3020 0: 0 0 libvramtrack.so:cuMemAlloc_v2",
                             "four cuMemAlloc 3010 0: 0 - libcuda.so.1:cuMemAlloc",
                             "five cuMemAlloc 1000 0: 0 2 NULL",
                             "four cuMemAlloc 1000 0: 500 - -",
                             "five cuMemAllocAsync 11020 2: 0 0 libvramtrack.so:cuMemAllocAsync_ptsz",
                             "five cuMemAllocAsync 11020 0: 0 0 libvramtrack.so:cuMemAllocAsync",
                             "five cuMemCreate 10020 2: 0 0 libvramtrack.so:cuMemCreate",
                             "five cuGetProcAddress 11030 0: 0 0 libvramtrack.so:cuGetProcAddress",
                             "five cuGetProcAddress 12000 0: 0 0 libvramtrack.so:cuGetProcAddress_v2",
                             "five cuCtxCreate 2000 0: 0 0 libcuda.so.1:cuCtxCreate",
                             "five cuCtxCreate 3020 0: 0 0 libvramtrack.so:cuCtxCreate_v2",
                             "five cuCtxCreate 11040 0: 0 0 libvramtrack.so:cuCtxCreate_v3",
                             "five cuCtxCreate 12050 0: 0 0 libvramtrack.so:cuCtxCreate_v4",
                             "five cuGraphAddNode 12020 0: 0 0 libvramtrack.so:cuGraphAddNode",
                             "five cuGraphAddNode 12030 0: 0 0 libvramtrack.so:cuGraphAddNode_v2",
                             "five cuCtxGetDevice 13000 0: 0 0 libcuda.so.1:cuCtxGetDevice_v2",
                             "five cuGetExportTable 3000 0: 0 0 libcuda.so.1:cuGetExportTable",
                             "five  0 0: 1 99 -",
                             "dlsym cuMemAlloc: libcuda.so.1:cuMemAlloc",
                             "dlsym cuGetExportTable: libcuda.so.1:cuGetExportTable"):
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
        if vt.SAN:
            self.skipTest("the sanitizer's own start calls the other library's dlsym too early for it")
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
        return output("nm", "-D", *flags, vt.LIBRARY).splitlines()

    def test_15_exports(self):
        exported = {line.split()[-1].split("@")[0] for line in self.nm("--defined-only")}
        hooks = {"dlsym", "dlclose", "_exit", "_Exit", "quick_exit", "abort", "execve", "execv", "execvp", "execvpe", "fexecve",
                 "execveat", "execl", "execlp", "execle"}
        marks = {"vramtrack_mark", "vramtrack_step", "vramtrack_range_push", "vramtrack_range_pop", "vramtrack_moment", "InitializeInjectionNvtx2"}
        tables = "".join(open(os.path.join(vt.ROOT, "src", "preload", folder, "table.h")).read() for folder in ("torch", "tensorflow", "nccl"))
        frameworks = set(re.findall(r"^ +X\((\w+),", tables, re.M))
        self.assertEqual(exported, set(DRIVER + RUNTIME) | hooks | marks | frameworks)

    def test_15_imports(self):
        if vt.SAN:
            self.skipTest("a sanitizer's library has needs of its own")
        versions = [line.split("@")[-1] for line in self.nm("--undefined-only") if "@" in line]
        self.assertNotIn("GLIBC_PRIVATE", versions)
        numbers = [tuple(map(int, v[len("GLIBC_"):].split("."))) for v in versions]
        self.assertLessEqual(max(numbers), (2, 34))
        self.assertEqual([l for l in self.nm("--undefined-only") if re.search(r"\bcu[A-Zd]", l)], [])
        self.assertLessEqual(set(needed_by(vt.LIBRARY)), {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"})

    def test_15_callers_that_patch_code_get_the_driver_itself(self):
        directory = os.path.join(vt.WORK, "ucx")
        for level in LEVELS:
            library = vt.compile(UCM, level, shared=True, name="ucm")
            paths = [vt.place(library, directory, n) for n in ("libucm.so.0", "libucm_cuda.so.0", "libucs.so.0", "libapp.so.0")]
            main = r"""
#include <dlfcn.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        ((void (*)(const char *))dlsym(dlopen(argv[i], RTLD_NOW | RTLD_LOCAL), "where"))(argv[i]);
    return 36;
}
"""
            out = self.play(vt.compile(main, level, name="ucx_host"), *paths, code=36)
            self.assertEqual([line.split("/")[-1] for line in out.splitlines()],
                             ["libucm.so.0 libcuda.so.1", "libucm_cuda.so.0 libcuda.so.1", "libucs.so.0 libcuda.so.1",
                              "libapp.so.0 libvramtrack.so"])
