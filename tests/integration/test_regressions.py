"""The failures that other interposers of CUDA are known for, acted out: loading, look-ups, other interposers, the surface.

The numbers in the test names are the same as in test_regressions_books.py, which has 7 to 13. Programs check their own
return codes, errno, dlerror and pointers and say so by their exit status; where the caller's compilation decides (tail
calls in callers of dlsym), everything is done at -O0 and at -O2.
"""
import os
import re
import shutil
import subprocess
import sys

import vt
from regr_case import LEVELS, MIB, Case, build
from test_routes import DRIVER, RUNTIME


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def needed_by(file):
    return re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-dW", file))


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
        if not gdb or vt.SAN:
            self.skipTest("gdb does not run with a sanitizer preloaded" if gdb else "gdb is not installed")
        script = []
        for line in ("set debuginfod enabled off", "break main", "run", "print 6*7", "info breakpoints", "kill", "quit"):
            script += ["-ex", line]
        program = vt.compile("int main(void) { return 0; }", "-O0", name="debugged")

        def lines(done):
            return [l for l in done.stdout.splitlines() if not re.search(r"process \d+|libthread_db|0x[0-9a-f]{12}", l)]
        command = [gdb, "-batch", "-nx", *script, program]
        bare, under = self.run_program(command, preload=False), self.run_program(command)
        self.assertEqual((under.returncode, lines(under)), (bare.returncode, lines(bare)))
        self.assertIn("$1 = 42", under.stdout)
        self.assertEqual(os.listdir(self.dir), [])

    def unwinding(self, way, *cuda):
        plugins = [vt.compile(THROWER, shared=True, name="thrower"),
                   vt.compile(RETHROWER, shared=True, name="rethrower")]
        return [build("regr_threads.c", "-lcuda" if cuda else "-DNO_CUDA"), way, *plugins, *cuda]

    def test_01_exceptions_and_cancellation(self):
        self.assertNotIn("libgcc_s", " ".join(needed_by(self.unwinding("throw")[0])))
        for way in ("throw", "cancel", "exit", "terminate"):
            if way == "exit" and vt.SAN == "tsan":
                continue  # with TSan alone too: its own thread keeps the process alive when the first thread has gone
            with self.subTest(way=way):
                self.assert_silent(self.unwinding(way))
        self.assertEqual(self.run_program(self.unwinding("throw")).stdout, "outer 42\nouter 42\n")

    def test_01_exceptions_and_cancellation_with_cuda(self):
        """The same with an allocation at every step: behaviour is the same, and all of them are on record."""
        for way, status, allocations, end in (("throw", 23, 4, "exit"), ("cancel", 23, 2, "exit"), ("exit", 0, 3, "exit"),
                                              ("terminate", -6, 4, "killed")):
            if way == "exit" and vt.SAN == "tsan":
                continue  # as above
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
        int (*grab)(size_t) = (int (*)(size_t))dlsym(h, "plugin_grab");
        int (*release)(size_t) = (int (*)(size_t))dlsym(h, "plugin_free");
        void *(*probe)(const char *) = (void *(*)(const char *))dlsym(h, "plugin_probe");
        printf("%d %d ", dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL, probe("cudaMalloc") != NULL);
        printf("%d %d\n", grab(3 << 20), release(1 << 20));
    }
    return 31;
}
"""


DRIVER_PLUGIN = r"""
#include <cuda.h>
int plugin_grab(size_t n)
{
    CUcontext context;
    CUdeviceptr p;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc(&p, n);
}
"""
DRIVER_PLUGIN_HOST = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *h = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*grab)(size_t) = (int (*)(size_t))dlsym(h, "plugin_grab");
    int failed = grab(3 << 20);
    char *error = dlerror();
    printf("%d %s\n", failed, error ? error : "none");
    return 32;
}
"""


class Regression03Handles(Case):
    def test_03_shims_that_look_their_own_names_up(self):
        real = vt.compile(SHIM, "-DREAL", shared=True, name="libreal")
        main = ("int cudnnFoo(int), cublasFoo(int);\n"
                "int main(void) { return cudnnFoo(40) == 42 && cublasFoo(40) == 43 ? 32 : 1; }")
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

    def test_03_driver_of_a_plugin(self):
        """A library that is opened (RTLD_LOCAL) with the driver as its dependency: nobody else in the process has one."""
        plugin = vt.compile(DRIVER_PLUGIN, "-lcuda", shared=True, name="plugin_driver")
        for level in LEVELS:
            with self.subTest(level=level):
                self.play(vt.compile(DRIVER_PLUGIN_HOST, level, name="plugin_driver_host"), plugin, code=32, out="0 none\n")
                self.assertEqual(self.figures(self.report(), "device"), (3, 1, 1, 0))
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
            for libraries in ([], [driver], [runtime], ["+" + driver], ["+" + runtime], [driver, runtime],
                              ["+" + driver, "+" + runtime]):
                with self.subTest(level=level, libraries=libraries):
                    command = [program, *libraries]
                    bare, under = self.run_program(command, preload=False), self.run_program(command)
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
