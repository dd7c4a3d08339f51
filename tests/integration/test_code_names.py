"""Names for code that is in no file, or in a file that is no longer the one that ran (names_generated.c)."""
import glob
import os
import platform
import shutil
import subprocess
import unittest

import vt

MIB = 1 << 20
EMPTY = "int nothing_here;\n"

PLUGIN = r"""
#include <cuda_runtime_api.h>
__attribute__((noinline)) void *%s(void) { void *p = 0; return cudaMalloc(&p, %d << 20) ? 0 : p; }
void *grab(void) { void *p = %s(); __asm__ volatile(""); return p; }
"""

# Loads argv[1], replaces it by argv[2] (or removes it: "-"), and allocates through what it has loaded. KILLED: dies before
# it could look up any names itself.
REPLACES = r"""
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    void *(*grab)(void) = library ? (void *(*)(void))dlsym(library, "grab") : 0;
    if (argc > 2 && (strcmp(argv[2], "-") ? rename(argv[2], argv[1]) : unlink(argv[1])))
        return 2;
    if (!grab || !grab())
        return 3;
    return getenv("KILLED") ? raise(SIGKILL) : 0;
}
"""

# Copies the library argv[1] into a memfd and loads it from there.
FROM_MEMFD = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
int main(int argc, char **argv)
{
    char path[64];
    int fd = memfd_create("plugin", 0), from = open(argv[1], O_RDONLY);
    while (sendfile(fd, from, 0, 1 << 20) > 0)
        ;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *library = dlopen(path, RTLD_NOW);
    void *(*grab)(void) = library ? (void *(*)(void))dlsym(library, "grab") : 0;
    if (!grab || !grab())
        return 3;
    return getenv("KILLED") ? raise(SIGKILL) : 0;
}
"""

# Opens each library, allocates through it and closes it; says where its function was. Killed at the end.
RELOADS = r"""
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        void *(*grab)(void) = library ? (void *(*)(void))dlsym(library, "grab") : 0;
        if (!grab || !grab() || dlclose(library))
            return 3;
        printf("%p\n", (void *)grab);
    }
    fflush(stdout);
    return raise(SIGKILL);
}
"""


def outside_cuda(site):
    """A site's frames without those in the runtime, innermost first."""
    return [f for f in site["frames"] if "libcudart" not in (f["module"] or "")]


class Generated(vt.Case):
    def program(self):
        return vt.compile("names_generated.c", "-lcudart", "-fno-omit-frame-pointer")

    def play(self, *arguments, **options):
        """The frames of the one site, innermost first, and the address of the code."""
        done = self.run_program([self.program(), *arguments], **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        site, = self.sites_in(self.report(), "hold")
        self.assertEqual(site["live_bytes"], MIB)
        return outside_cuda(site), int(done.stdout.split()[0], 16)

    def check(self, frame, name, address=None, module=None):
        self.assertEqual((frame["lang"], frame["function"], frame["origin"], frame["module"], frame["file"]),
                         ("native", name, name, module, None))
        if address is not None:
            self.assertTrue(address < frame["offset"] < address + 64, frame)

    def text(self):
        return open(glob.glob(self.dir + "/*.txt")[0]).read()

    def library(self, name):
        """An empty library with a file name of its own."""
        path = os.path.join(self.dir, name)
        shutil.copy(vt.compile(EMPTY, shared=True, name="empty"), path)
        return path

    def test_jit_code(self):
        frames, address = self.play("plain")
        self.assertEqual(frames[0]["function"], "hold")
        self.check(frames[1], "JIT code", address)
        if len(frames) > 2:  # with a frame pointer the walk may go on behind it
            self.assertEqual([f["function"] for f in frames[2:4]], ["call", "main"])
        self.assertIn("      JIT code\n", self.text())

    def test_jit_code_ends_the_walk(self):
        frames, address = self.play("bare")
        self.assertEqual(frames[0]["function"], "hold")
        self.check(frames[1], "JIT code", address)
        for frame in frames[2:]:  # whatever the frame pointer led to, it is code
            self.assertIsNotNone(frame["module"], frames)

    def test_whose_jit_code(self):
        """The compiler that is loaded, if it is the only one."""
        for libraries, name in ((["libllvmlite.so"], "JIT code (numba/LLVM)"), (["xla_extension.so"], "JIT code (XLA)"),
                                (["libllvmlite.so", "xla_extension.so"], "JIT code")):
            with self.subTest(libraries=libraries):
                self.setUp()
                frames, address = self.play("plain", *map(self.library, libraries))
                self.check(frames[1], name, address)

    def test_memory_with_a_name(self):
        frames, _ = self.play("memfd:doublemapper")
        self.check(frames[1], "JIT code", module="/memfd:doublemapper (deleted)")
        self.assertLess(frames[1]["offset"], 64)  # in the memfd
        self.setUp()
        frames, _ = self.play("memfd:libffi")
        self.check(frames[1], "libffi closure", module="/memfd:libffi (deleted)")
        self.assertIn("hold (names_generated", self.text())
        self.assertNotIn("closure", self.text())
        everything = subprocess.run([vt.COMMAND, "report", "--all-frames", self.dir], stdout=subprocess.PIPE, text=True).stdout
        self.assertIn("libffi closure\n", everything)

    @unittest.skipUnless(platform.machine() == "x86_64", "the code that pretends is there for x86-64 only")
    @unittest.skipIf(vt.SAN == "tsan", "under TSan the stack ends at the call that is made up")
    def test_vdso(self):
        frames, address = self.play("vdso")
        self.check(frames[1], "JIT code", address)
        self.assertEqual((frames[2]["module"], frames[2]["file"]), ("[vdso]", None))
        self.assertNotIn("[vdso]", self.text())  # hidden as the C library is, and no note about missing symbols

    @unittest.skipUnless(platform.machine() == "x86_64", "the code that pretends is there for x86-64 only")
    def test_what_is_no_code_is_no_frame(self):
        frames, address = self.play("data")
        self.assertEqual(frames[0]["function"], "hold")
        self.check(frames[1], "JIT code", address)
        self.assertEqual(len(frames), 2)

    @unittest.skipUnless(platform.machine() == "x86_64", "the code that pretends is there for x86-64 only")
    def test_memory_that_becomes_code(self):
        done = self.run_program([self.program(), "flip"])
        self.assertEqual(done.returncode, 0, done.stderr)
        addresses = sorted(int(line, 16) for line in done.stdout.split())
        frames = [outside_cuda(s) for s in self.sites_in(self.report(), "hold")]
        self.assertEqual(sorted(f[1]["offset"] & ~0xfff for f in frames), addresses)
        for frame in frames:
            self.check(frame[1], "JIT code")

    def test_perf_map(self):
        """The names that the compiler gave, in the process's own report and in the recording."""
        done = self.run_program([self.program(), "perf"])
        pid = os.path.basename(self.recordings()[0]).split(".")[-3]
        os.unlink("/tmp/perf-%s.map" % pid)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("compiled\\x1b kernel (JIT code)\n", self.text())
        self.assertNotIn("old name", self.text())
        site, = self.sites_in(self.report(), "hold")
        frame = outside_cuda(site)[1]
        self.assertEqual((frame["function"], frame["origin"], frame["module"]), ("compiled\x1b kernel", "JIT code", None))

    def test_many_mappings(self):
        done = self.run_program([self.program(), "many"])
        self.assertEqual(done.returncode, 0, done.stderr)
        sites = self.sites_in(self.report(), "hold")
        self.assertEqual(sum(s["live_bytes"] for s in sites), 100 * MIB)
        for site in sites:
            self.check(outside_cuda(site)[1], "JIT code")


class Replaced(vt.Case):
    """Files that are not what was loaded. Nothing of them may be shown as what ran."""

    def plugin(self, name, function, mib, *flags):
        path = os.path.join(self.dir, name)
        shutil.copy(vt.compile(PLUGIN % (function, mib, function), "-lcudart", *flags, shared=True, name=function), path)
        return path

    def run_it(self, *arguments, killed=True):
        done = self.run_program([vt.compile(REPLACES, name="replaces"), *arguments], **({"KILLED": 1} if killed else {}))
        self.assertEqual(done.returncode, -9 if killed else 0, done.stderr)

    def frames(self):
        site, = [s for s in self.report()["sites"] if s["live_bytes"] == MIB]
        return outside_cuda(site)

    def functions(self):
        return [f["function"] for f in self.frames()[:2]]

    def report_text(self):
        return subprocess.run([vt.COMMAND, "report", self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout

    def test_replaced_while_in_use(self):
        for flags, module, note in (
                ("-Wl,--build-id=none", "plug.so (deleted)", "the file was deleted or replaced while it was in use"),
                ("-Wl,--build-id=sha1", "plug.so", "the file has changed since the recording (another build-id)")):
            for killed in True, False:
                with self.subTest(flags=flags, killed=killed):
                    self.setUp()
                    path = self.plugin("plug.so", "right_one", 1, flags)
                    self.run_it(path, self.plugin("new.so", "wrong_one", 1, flags), killed=killed)
                    self.assertEqual(self.frames()[0]["module"], os.path.join(self.dir, module))
                    self.assertEqual(self.functions(), [None, None] if killed else ["right_one", "grab"])
                    self.assertEqual("No symbols of %s/%s: %s" % (self.dir, module, note) in self.report_text(), killed)

    def test_removed_while_in_use(self):
        self.run_it(self.plugin("plug.so", "right_one", 1, "-Wl,--build-id=none"), "-")
        self.assertEqual(self.frames()[0]["module"], os.path.join(self.dir, "plug.so (deleted)"))
        self.assertIn("plug.so (deleted)+0x", self.report_text())

    def test_replaced_afterwards(self):
        """Without a build-id: by the time of the last change."""
        path = self.plugin("plug.so", "right_one", 1, "-Wl,--build-id=none")
        self.run_it(path)
        self.assertEqual(self.functions(), ["right_one", "grab"])
        os.rename(self.plugin("new.so", "wrong_one", 1, "-Wl,--build-id=none"), path)
        self.assertEqual(self.functions(), [None, None])
        self.assertIn("plug.so: it was changed after the recording saw it in use", self.report_text())

    def test_library_in_a_memfd(self):
        """Its name is of an open file, which is another one in every other process."""
        for killed in True, False:
            with self.subTest(killed=killed):
                self.setUp()
                done = self.run_program([vt.compile(FROM_MEMFD, name="from_memfd"), self.plugin("plug.so", "right_one", 1)],
                                        **({"KILLED": 1} if killed else {}))
                self.assertEqual(done.returncode, -9 if killed else 0, done.stderr)
                self.assertEqual(self.frames()[0]["module"], "/memfd:plugin (deleted)")
                self.assertEqual(self.functions(), [None, None] if killed else ["right_one", "grab"])

    def test_closed_libraries_at_one_place(self):
        """Each has its own names, by its file, though the process never looked."""
        one, two = (self.plugin(name, name[:-3], mib) for name, mib in (("first_one.so", 1), ("other_one.so", 2)))
        done = self.run_program([vt.compile(RELOADS, "-Wl,--no-as-needed", "-lcudart", name="reloads"), one, two])
        self.assertEqual(done.returncode, -9, done.stderr)
        places = done.stdout.split()
        self.assertEqual(places[0], places[1], "the loader put the second library elsewhere: nothing was tested")
        for mib, name in (1, "first_one"), (2, "other_one"):
            site, = [s for s in self.report()["sites"] if s["live_bytes"] == mib * MIB]
            self.assertEqual([f["function"] for f in outside_cuda(site)[:3]], [name, "grab", "main"])
            self.assertEqual(outside_cuda(site)[0]["module"], os.path.join(self.dir, name + ".so"))

# An exported function, and behind it the one that allocates, which a stripped file has no name for.
NEIGHBOURS = r"""
#include <cuda_runtime_api.h>
static void *hidden(void);
void *grab(void) { void *p = hidden(); __asm__ volatile(""); return p; }
static __attribute__((noinline)) void *hidden(void) { void *p = 0; return cudaMalloc(&p, 1 << 20) ? 0 : p; }
"""


class DebugFiles(vt.Case):
    def test_stripped_library(self):
        """The exported name before the address, said to be that: by the process itself and by the command."""
        plugin = os.path.join(self.dir, "plug.so")
        clang = "clang" in subprocess.run([vt.CC, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        order = [] if clang else ["-fno-toplevel-reorder"]  # clang leaves functions in their order, and knows no such flag
        whole = vt.compile(NEIGHBOURS, "-lcudart", *order, shared=True, name="neighbours")
        subprocess.run(["strip", "-o", plugin, whole], check=True)
        for killed in False, True:
            with self.subTest(killed=killed):
                for name in self.recordings():
                    os.unlink(name)
                done = self.run_program([vt.compile(REPLACES, name="replaces"), plugin], **({"KILLED": 1} if killed else {}))
                self.assertEqual(done.returncode, -9 if killed else 0, done.stderr)
                site, = self.report()["sites"]
                inner, outer = outside_cuda(site)[:2]
                self.assertEqual((inner["function"], inner.get("nearest"), inner["line"]), ("grab", True, None))
                self.assertEqual((outer["function"], outer.get("nearest")), ("grab", None))
                text = subprocess.run([vt.COMMAND, "report", self.dir], stdout=subprocess.PIPE, text=True).stdout
                self.assertIn("\n      plug.so+0x%x (after grab)\n      grab (plug.so)\n" % inner["offset"], text)

    def test_directories_of_debug_files(self):
        """The report of the process itself, and of the command, look where VRAMTRACK_DEBUG_DIRS says."""
        plugin, debug = os.path.join(self.dir, "plug.so"), os.path.join(self.dir, "debug")
        source = PLUGIN.replace("__attribute__((noinline)) void", "static __attribute__((noinline)) void")
        whole = vt.compile(source % ("hidden", 1, "hidden"), "-lcudart", "-Wl,--build-id=sha1", shared=True, name="hidden")
        notes = subprocess.run(["readelf", "-n", whole], stdout=subprocess.PIPE, text=True, check=True).stdout
        build_id = notes.split("Build ID:")[1].split()[0]
        file = os.path.join(debug, ".build-id", build_id[:2], build_id[2:] + ".debug")
        os.makedirs(os.path.dirname(file))
        subprocess.run(["objcopy", "--only-keep-debug", whole, file], check=True)
        subprocess.run(["strip", "-o", plugin, whole], check=True)
        program = vt.compile(REPLACES, name="replaces")
        for directories, line in ("/nowhere", None), ("/nowhere:" + debug, 3):
            with self.subTest(directories=directories):
                for name in self.recordings() + glob.glob(self.dir + "/*.txt"):
                    os.unlink(name)
                done = self.run_program([program, plugin], VRAMTRACK_DEBUG_DIRS=directories)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("not an option", done.stderr)
                text = open(glob.glob(self.dir + "/*.txt")[0]).read()
                self.assertEqual(" hidden (hidden-" in text, line is not None, text)
                site, = self.report()["sites"]
                frame = outside_cuda(site)[0]
                self.assertEqual((frame["function"], frame["line"]), ("hidden", line) if line else (frame["function"], None))
