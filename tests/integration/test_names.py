"""Names that a recording brings along: read where the program's files are gone, moved, or of another build."""
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import unittest

import vt

MIB = 1 << 20

PROGRAM = r"""
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static CUdeviceptr __attribute__((noinline)) own_memory(size_t n)
{
    CUdeviceptr p = 0;
    return cuMemAlloc_v2(&p, n) ? 0 : p;
}
static inline __attribute__((always_inline)) CUdeviceptr through_inline(size_t n) { return own_memory(n) + 1; }
static void *library;
static int use_gpu(void)
{
    CUcontext context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}
static CUdeviceptr called_back(void) { return own_memory(2 << 20) + 1; }
/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret -- with its name where the perf tool looks for it */
static int jit(void)
{
    static const unsigned char bytes[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    FILE *map;
    memcpy(code, bytes, sizeof bytes);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    if (!(map = fopen(path, "w"))) return 1;
    fprintf(map, "%lx %zx made_at_run_time\n", (unsigned long)code, sizeof bytes);
    return fclose(map) || !((CUdeviceptr (*)(CUdeviceptr (*)(void)))code)(called_back);
}
static int step(const char *what)
{
    int status;
    CUdeviceptr p, (*grab)(size_t);
    if (!strcmp(what, "own")) return !through_inline(3 << 20);
    if (!strncmp(what, "open=", 5)) return !(library = dlopen(what + 5, RTLD_NOW));
    if (!strcmp(what, "grab")) return !(grab = (CUdeviceptr (*)(size_t))dlsym(library, "grab_memory")) || !grab(5 << 20);
    if (!strcmp(what, "jit")) return jit();
    if (!strcmp(what, "close")) return dlclose(library);
    if (!strncmp(what, "unlink=", 7)) return unlink(what + 7);
    if (!strcmp(what, "oom")) return cuMemAlloc_v2(&p, (size_t)1 << 42) == 0;
    if (!strcmp(what, "kill")) return kill(getpid(), SIGKILL);
    if (!strcmp(what, "_exit")) _exit(0);
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "fork")) { pid_t child = fork(); return child ? waitpid(child, &status, 0) < 0 || status : use_gpu(); }
    return 1;
}
int main(int argc, char **argv)
{
    if (use_gpu()) return 90;
    for (int i = 1; i < argc; i++)
        if (step(argv[i])) return 90 + i;
    return 0;
}
"""
LIBRARY = r"""
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#define VARIANT %d
static int padding(int x) { return x * VARIANT; }
static CUdeviceptr __attribute__((noinline)) hidden_helper(size_t n)
{
    CUdeviceptr p = 0;
    return cuMemAlloc_v2(&p, n) ? 0 : p;
}
%s
CUdeviceptr __attribute__((visibility("default"))) grab_memory(size_t n)
{
    return hidden_helper(n) + (VARIANT > 0 ? 1 : padding(2));
}
"""
COUNT_AT = r"""
#include <stddef.h>
#include <stdio.h>
#include <vramtrack/recording.h>
int main(void)
{
    printf("%zu", offsetof(struct vt_header, section) + VT_NAMES * sizeof(struct vt_section_entry) + offsetof(struct vt_section_entry, count));
    return 0;
}
"""
LIST_NAMES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <vramtrack/recording.h>
int main(int argc, char **argv)
{
    static unsigned char image[1 << 26];
    FILE *f = fopen(argv[argc - 1], "rb");
    struct vt_header *h = (struct vt_header *)image;
    if (!f || fread(image, 1, sizeof image, f) < sizeof *h) return 1;
    for (unsigned long i = 0; i < h->section[VT_NAMES].count; i++) {
        struct vt_frame_name *n = (struct vt_frame_name *)(image + vt_record_offset(&h->section[VT_NAMES], i));
        printf("%u %lx %u %u\n", n->module, (unsigned long)n->where, n->inner, n->flags);
    }
    return 0;
}
"""
OTHER = "int another_one(int x) { return x * 3; } int much_more(int x) { return another_one(x) + another_one(x + 1); }\n"


class Names(vt.Case):
    def setUp(self):
        super().setUp()
        self.place = os.path.join(self.dir, "place")
        os.mkdir(self.place)
        self.program = os.path.join(self.place, "program")
        self.library = os.path.join(self.place, "libgrab.so")
        shutil.copy(vt.compile(PROGRAM, "-lcuda", "-O1", "-Wl,--build-id", name="names"), self.program)
        shutil.copy(self.build_library(1), self.library)

    def build_library(self, variant, more=""):
        return vt.compile(LIBRARY % (variant, more), "-lcuda", "-O1", "-fvisibility=hidden", "-Wl,--build-id", name="grab", shared=True)

    def play(self, *steps, status=0, **options):
        done = self.run_program([self.program, *steps], **options)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def views(self):
        """The recording as text, with every frame, and as JSON: each on its own, as bytes."""
        path, = self.recordings()
        return [subprocess.run([vt.COMMAND, "report", *options, path], stdout=subprocess.PIPE, check=True).stdout
                for options in ([], ["--all-frames"], ["--json"])]

    def functions(self, of=None):
        """The functions of the site with this many bytes, innermost first."""
        report = json.loads(self.views()[2])
        site, = [s for s in report["sites"] if of in (None, s["live_bytes"])]
        return [f["function"] for f in site["frames"]]

    def lines(self, of):
        report = json.loads(self.views()[2])
        site, = [s for s in report["sites"] if s["live_bytes"] == of]
        return [(f["function"], os.path.basename(f["file"] or ""), f["line"]) for f in site["frames"]]

    def notes(self):
        return " ".join(json.loads(self.views()[2])["notes"])

    def move_away(self):
        os.rename(self.place, self.place + ".away")

    def line_of(self, text, what):
        return text.splitlines().index([l for l in text.splitlines() if what in l][0]) + 1

    def test_files_are_gone(self):
        """The text is the same to the byte, with source lines and inlined frames, and no note complains."""
        self.play("own", "open=" + self.library, "grab")
        before = self.views()
        self.move_away()
        self.assertEqual(self.views(), before)
        self.assertEqual([l[0] for l in self.lines(3 * MIB)][:4], ["own_memory", "through_inline", "step", "main"])
        self.assertEqual([l[2] for l in self.lines(3 * MIB)][:2],
                         [self.line_of(PROGRAM, "return cuMemAlloc_v2(&p, n) ? 0 : p;"), self.line_of(PROGRAM, "return own_memory(n) + 1;")])
        self.assertEqual([l[0] for l in self.lines(5 * MIB)][:3], ["hidden_helper", "grab_memory", "step"])
        self.assertNotIn("No symbols", self.notes())

    def test_other_builds_stand_in_their_place(self):
        self.play("own", "open=" + self.library, "grab")
        before = self.views()
        for path, text in (self.program, OTHER + "int main(void) { return much_more(1); }"), (self.library, OTHER):
            os.rename(path, path + ".away")
            shutil.copy(vt.compile(text, "-Wl,--build-id", "-O0", name="other", shared=path == self.library), path)
        self.assertEqual(self.views(), before)

    def test_stripped_files_stand_in_their_place(self):
        """Same build, but the debug information is gone: what the process knew says more."""
        self.play("own", "open=" + self.library, "grab")
        before = self.views()
        for path in self.program, self.library:
            subprocess.run(["strip", path], check=True)
        self.assertEqual(self.views(), before)

    def test_file_says_more(self):
        """The other way round: the file of the same build has got its debug information back."""
        for path in self.program, self.library:
            os.rename(path, path + ".full")
            subprocess.run(["strip", "-o", path, path + ".full"], check=True)
        self.play("own", "open=" + self.library, "grab")
        self.assertNotIn("own_memory", self.functions(3 * MIB))
        self.assertIn("grab_memory", self.functions(5 * MIB))
        for path in self.program, self.library:
            os.rename(path + ".full", path)
        self.assertEqual(self.functions(3 * MIB)[:4], ["own_memory", "through_inline", "step", "main"])

    def test_closed_library_is_looked_up_in_its_file(self):
        self.play("open=" + self.library, "grab", "close")
        before = self.views()
        self.assertEqual(self.functions(5 * MIB)[:3], ["hidden_helper", "grab_memory", "step"])
        os.unlink(self.library)
        self.assertEqual(self.views(), before)

    def test_closed_and_deleted_library(self):
        """Nobody can know its names any more; everything else is as ever, and a note says so."""
        self.play("open=" + self.library, "grab", "close", "unlink=" + self.library)
        self.assertEqual(self.functions(5 * MIB)[2], "step")
        self.assertEqual(self.functions(5 * MIB)[:2], [None, None])
        self.assertIn("No symbols of %s" % self.library, self.notes())
        before = self.views()
        self.assertIn(b"\n      libgrab.so+0x", before[0])
        os.rename(self.program, self.program + ".away")
        self.assertEqual(self.views(), before)

    def test_library_deleted_while_loaded(self):
        """What it exports is known in the process alone, and is in the process's own report. A file in its place is not asked."""
        self.play("open=" + self.library, "unlink=" + self.library, "grab")
        self.assertEqual(self.functions(5 * MIB)[1:3], ["grab_memory", "step"])
        shutil.copy(self.build_library(1), self.library)
        for name in os.listdir(self.dir):
            if name.endswith((".vtr", ".txt")):
                os.unlink(os.path.join(self.dir, name))
        self.play("open=" + self.library, "grab", "unlink=" + self.library)
        self.assertEqual(self.functions(5 * MIB)[1:3], ["grab_memory", "step"])
        own, = [f for f in os.listdir(self.dir) if f.endswith(".txt")]
        with open(os.path.join(self.dir, own), "rb") as f:
            self.assertEqual(f.read(), self.views()[0])
        spare = "int __attribute__((visibility(\"default\"))) spare(int x) { return padding(x); }"
        shutil.copy(self.build_library(7, spare), self.library)
        self.assertEqual(self.functions(5 * MIB)[1:3], ["grab_memory", "step"])

    def test_program_replaced_while_it_runs(self):
        """As by a compiler, before or after the first allocation. The process still has the old one open, with all its lines."""
        for steps in ["own", "unlink=" + self.program], ["unlink=" + self.program, "own"]:
            with self.subTest(steps):
                shutil.copy(vt.compile(PROGRAM, "-lcuda", "-O1", "-Wl,--build-id", name="names"), self.program)
                self.play(*steps)
                own, = [f for f in os.listdir(self.dir) if f.endswith(".txt")]
                with open(os.path.join(self.dir, own), "rb") as f:
                    self.assertEqual(f.read(), self.views()[0])
                self.assertEqual([l[0] for l in self.lines(3 * MIB)][:4], ["own_memory", "through_inline", "step", "main"])
                self.assertEqual(self.lines(3 * MIB)[1][2], self.line_of(PROGRAM, "return own_memory(n) + 1;"))
                self.assertNotIn("No symbols", self.notes())
                for name in os.listdir(self.dir):
                    if name.endswith((".vtr", ".txt")):
                        os.unlink(os.path.join(self.dir, name))

    @unittest.skipUnless(platform.machine() == "x86_64", "machine code")
    def test_generated_code(self):
        """Its name is known while the process lives, and only to it."""
        child = self.start_program([self.program, "jit"])
        told = child.communicate()[1]
        self.assertEqual(child.returncode, 0, told)
        os.unlink("/tmp/perf-%d.map" % child.pid)
        self.assertEqual(self.functions(2 * MIB)[:3], ["own_memory", "called_back", "made_at_run_time"])

    def test_stored_in_every_mode(self):
        """VRAMTRACK_REPORT is about what is printed."""
        for mode in "all", "oom", "off":
            with self.subTest(mode):
                self.setUp()
                self.play("own", VRAMTRACK_REPORT=mode)
                self.move_away()
                self.assertEqual(self.functions()[:4], ["own_memory", "through_inline", "step", "main"])

    def test_stored_at_every_end(self):
        """At _exit; and at an out-of-memory, whatever ends the process then."""
        for steps, status in ((["own", "_exit"], 0), (["own", "oom", "own", "kill"], -signal.SIGKILL), (["own", "oom", "abort"], -signal.SIGABRT)):
            with self.subTest(steps):
                self.setUp()
                self.play(*steps, status=status, VRAMTRACK_REPORT="off")
                self.move_away()
                report = json.loads(self.views()[2])
                named = [[f["function"] for f in s["frames"]][:4] for s in report["sites"]]
                self.assertIn(["own_memory", "through_inline", "step", "main"], named)

    def test_second_time_adds_what_is_new(self):
        """The names of an out-of-memory are not stored again at the end, and each frame's records end with a mark."""
        self.play("own", "oom", "own", "open=" + self.library, "grab", VRAMTRACK_REPORT="oom")
        listed = subprocess.run([vt.compile(LIST_NAMES, name="list_names"), self.recordings()[0]], stdout=subprocess.PIPE, text=True)
        rows = [line.split() for line in listed.stdout.splitlines()]
        self.assertEqual(listed.returncode, 0)
        heads = [(module, where) for module, where, inner, _ in rows if inner == "0"]
        self.assertGreater(len(heads), 8)
        self.assertEqual(len(set(heads)), len(heads))
        for row, following in zip(rows, rows[1:] + [["", "", "0", ""]]):
            self.assertEqual(int(row[3]) & 2 != 0, following[2] == "0", rows)
        self.move_away()
        self.assertEqual(self.functions(5 * MIB)[:3], ["hidden_helper", "grab_memory", "step"])

    def test_under_run(self):
        env = self.environment(preload=False)
        done = subprocess.run([vt.COMMAND, "run", "-o", self.dir, "--", self.program, "own"], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        before = self.views()
        self.move_away()
        self.assertEqual(self.views(), before)
        self.assertEqual(self.functions()[:4], ["own_memory", "through_inline", "step", "main"])

    def test_child_of_fork(self):
        """Parent and child, each in its own recording."""
        self.play("own", "fork", "own")
        self.move_away()
        found = []
        for path in self.recordings():
            report = self.report(path)
            self.assertNotIn("No symbols", " ".join(report["notes"]))
            found.append(sorted(s["live_bytes"] for s in report["sites"]))
            for site in report["sites"]:
                self.assertEqual([f["function"] for f in site["frames"]][:4], ["own_memory", "through_inline", "step", "main"])
        self.assertEqual(sorted(found), [[3 * MIB], [6 * MIB]])

    def test_no_room_on_the_disk(self):
        """The last extent of a file is that of the names; where it does not fit, they are left out without a word."""
        self.play("own", VRAMTRACK_REPORT="off")
        whole, = self.recordings()
        size = os.path.getsize(whole)
        os.unlink(whole)
        done = subprocess.run([self.program, "own"], env=self.environment(VRAMTRACK_REPORT="off"), stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1)))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLess(os.path.getsize(self.recordings()[0]), size)
        self.assertEqual(self.functions(3 * MIB)[:2], ["own_memory", "through_inline"])
        self.assertEqual(self.notes(), "")
        self.move_away()
        self.assertEqual(self.functions(3 * MIB)[:2], [None, None])
        self.assertIn("No symbols of %s" % self.program, self.notes())

    def test_killed_while_storing(self):
        """The names of a frame are there as a whole or not at all, and nothing else is hurt."""
        place = subprocess.run([vt.compile(COUNT_AT, name="count_at")], stdout=subprocess.PIPE, check=True).stdout
        child = self.start_program([vt.compile("scale_steps.c", "-lcuda"), "sites=20000", "hold=5"], VRAMTRACK_REPORT="off")
        count = 0
        while not count and child.poll() is None:
            for path in self.recordings():
                with open(path, "rb") as f:
                    f.seek(int(place))
                    count = int.from_bytes(f.read(8), "little")
        child.kill()
        child.communicate()
        self.assertGreater(count, 0)
        report = self.report()
        self.assertEqual(self.total(report, "device")["live_bytes"], 20005 * 4096)
        self.assertEqual(report["notes"], [])
        self.assertEqual({f["function"] for s in report["sites"] for f in s["frames"][:1]}, {"hold_memory"})

    def test_small_recording(self):
        """Names take what room there is and cost the recording nothing."""
        program = vt.compile("scale_steps.c", "-lcuda")
        done = self.run_program([program, "sites=40000", "oom", "hold=10"], VRAMTRACK_LIMIT_MB=8, VRAMTRACK_REPORT="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        path, = self.recordings()
        self.assertLessEqual(os.path.getsize(path), 8 * MIB)
        report = self.report()
        self.assertEqual(self.total(report, "device")["live_bytes"], 40010 * 4096)
        self.assertNotIn("names", " ".join(report["notes"]))
