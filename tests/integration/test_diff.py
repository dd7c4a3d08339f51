"""vramtrack diff: two runs, two ranks, two jobs, two moments of a run; what it says, as text and JSON, and when it fails."""
import json
import os
import shutil
import subprocess

import vt

MIB = 1 << 20

# A program before and after an edit that moved its lines, under one name.
EDITED = r"""
#include <cuda_runtime_api.h>
#include <stdlib.h>
#line %d "edited.c"
static void *__attribute__((noinline)) load(long mib) { void *p = 0; return cudaMalloc(&p, (size_t)mib << 20) ? 0 : p; }
#line %d "edited.c"
static void *__attribute__((noinline)) cache(long mib) { void *p = 0; return cudaMalloc(&p, (size_t)mib << 20) ? 0 : p; }
int main(int argc, char **argv) { return argc < 3 || !load(atol(argv[1])) || !cache(atol(argv[2])); }
"""

STEPS = r"""
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include "vramtrack/vramtrack.h"
int main(int argc, char **argv)
{
    for (int i = 0; i < atoi(argv[1]); i++) {
        void *p = 0;
        if (argc < 3 || cudaMalloc(&p, (size_t)atol(argv[2]) << 20) || cudaFree(p))
            return 1;
        vramtrack_step();
    }
    return 0;
}
"""


class Diff(vt.Case):
    def program(self):
        return vt.compile("job_program.c", "-lcudart", "-lcuda")

    def record(self, *acts, program=None, **env):
        """Runs the program and returns its recording."""
        before = set(self.recordings())
        done = self.run_program([program or self.program(), *acts], SIM_DEVICES=4, VRAMTRACK_REPORT="off", **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        path, = set(self.recordings()) - before
        return path

    def diff(self, *arguments, status=0, error=""):
        done = subprocess.run([vt.COMMAND, "diff", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              cwd=self.dir)
        self.assertEqual((done.returncode, done.stderr), (status, error))
        return done.stdout

    def json(self, *arguments, **options):
        found = json.loads(self.diff("--json", *arguments, **options))
        self.assertEqual(found["schema"], "vramtrack-diff/1")
        return found

    def sites(self, found):
        """{caller of the allocation: (before, after, what)} of the places that changed."""
        result = {}
        for site in found["sites"]:
            if site["bytes"]["change"]:
                names = [f["function"] for f in site["frames"]]
                name = names[names.index("take") + 1] if "take" in names else names[site["user_frame"]]
                self.assertNotIn(name, result)
                result[name] = (site["bytes"]["before"] // MIB, site["bytes"]["after"] // MIB, site["what"])
        return result

    def test_two_runs(self):
        one = self.record("weights:64", "grads:32", "kept:8")
        two = self.record("weights:64", "grads:48", "snapshots:100")
        found = self.json(one, two)
        self.assertEqual(self.sites(found), {"keep_snapshots": (0, 100, "appeared"), "make_grads": (32, 48, "grew"),
                                             "keep_results": (8, 0, "vanished")})
        self.assertEqual(found["device_bytes"], {"before": 104 * MIB, "after": 212 * MIB, "change": 108 * MIB})
        self.assertEqual(found["categories"]["application"]["change"], 108 * MIB)
        total, = found["totals"]
        self.assertEqual((total["level"], total["kind"], total["device"], total["bytes"]["change"], total["count"]["change"]),
                         ("driver", "device", 0, 108 * MIB, 0))
        text = self.diff(one, two)
        self.assertNotIn("\033", text)
        self.assertRegex(text, r"\n  GPU memory +104.00 MiB +212.00 MiB +\+108.00 MiB \(\+103.8 %\)\n")
        self.assertIn("\n  1 grew, 0 shrank, 1 appeared, 1 vanished, 1 unchanged\n", text)
        self.assertRegex(text, r"\n +\+100.00 MiB  appeared  take \(job_program\S* < keep_snapshots \(job_program\S*\)\n"
                               r" +0 B in 0 -> 100.00 MiB in 1; device on GPU 0 by cudaMalloc\n")
        self.assertLess(text.index("keep_snapshots"), text.index("make_grads"))
        self.assertNotIn("main (", text)
        self.assertIn("\n        main (job_program", self.diff("--stacks", one, two))
        self.assertIn("_start", self.diff("--all-frames", one, two))
        self.assertIn("\033[1;31m  +108.00 MiB\033[0m", self.diff("--colour=always", one, two))
        self.assertIn("and 2 more that changed (--top N shows more)", self.diff("--top", "1", one, two))
        self.assertEqual(self.sites(self.json(two, one)), {"keep_snapshots": (100, 0, "vanished"), "make_grads": (48, 32, "shrank"),
                                                           "keep_results": (0, 8, "appeared")})

    def test_a_run_and_itself(self):
        one = self.record("weights:64", "grads:32")
        self.assertEqual(self.sites(self.json(one, one)), {})
        self.assertIn("  0 grew, 0 shrank, 0 appeared, 0 vanished, 2 unchanged\n", self.diff(one, one))

    def test_measures(self):
        one = self.record("weights:64", "temp:16", "free")
        two = self.record("weights:64", "temp:16", "temp:16", "temp:32", "free")
        self.assertEqual(self.sites(self.json(one, two)), {})
        self.assertEqual(self.sites(self.json("--by", "at-peak", one, two)), {"use_temporary": (16, 32, "grew")})
        self.assertEqual(self.sites(self.json("--by", "allocated", one, two)), {"use_temporary": (16, 64, "grew")})

    def test_moments_of_one_run(self):
        one = self.record("weights:64", "full", "grads:32", "free")
        self.assertEqual(self.sites(self.json(one + "@oom-1", "@peak")), {"make_grads": (0, 32, "appeared")})
        self.assertEqual(self.sites(self.json(one + "@peak", "@end")),
                         {"make_weights": (64, 0, "vanished"), "make_grads": (32, 0, "vanished")})
        self.assertEqual(self.sites(self.json("--moment", "peak", one, "%s@oom-1" % one)), {"make_grads": (32, 0, "vanished")})

    def test_a_file_name_with_an_at_sign(self):
        one = self.record("weights:64")
        os.rename(one, os.path.join(self.dir, "odd@peak"))
        self.assertEqual(self.sites(self.json("odd@peak", "odd@peak@end")), {})
        os.rename(os.path.join(self.dir, "odd@peak"), os.path.join(self.dir, "odd"))
        for moment in ("@x", "@", "a@b"):  # that moment, of that file
            said = "vramtrack diff: there is no moment '%s'" % moment
            done = subprocess.run([vt.COMMAND, "diff", "odd", "odd@" + moment], cwd=self.dir, stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stderr[:len(said)]), (2, said))

    def test_ranks_have_gpus_of_their_own(self):
        one = self.record("weights:64", RANK=0, LOCAL_RANK=0)
        two = self.record("weights:64", "snapshots:16", RANK=3, LOCAL_RANK=3)
        found = self.json(one, two)
        self.assertEqual(self.sites(found), {"keep_snapshots": (0, 16, "appeared")})
        self.assertEqual((found["before"]["rank"], found["after"]["rank"], found["totals"][0]["device"]), (0, 3, None))

    def test_two_gpus_are_told_apart(self):
        one = self.record("weights:64", "device:1", "weights:8")
        two = self.record("weights:64", "device:1", "weights:24")
        found = self.json(one, two)
        self.assertEqual(self.sites(found), {"make_weights": (8, 24, "grew")})
        self.assertEqual([(t["device"], t["bytes"]["change"]) for t in found["totals"]], [(0, 0), (1, 16 * MIB)])

    def test_jobs(self):
        for directory, more in (("a", 0), ("b", 40)):
            os.mkdir(os.path.join(self.dir, directory))
            running = [self.start_program([self.program(), "weights:64", "1=kept:%d" % (more + 1)], SIM_DEVICES=4, RANK=r, LOCAL_RANK=r,
                                          WORLD_SIZE=3, VRAMTRACK_DIR=os.path.join(self.dir, directory), VRAMTRACK_REPORT="off")
                       for r in range(3)]
            for process in running:
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0)
        found = self.json("a", "b")
        self.assertEqual(self.sites(found), {"keep_results": (1, 41, "grew")})
        self.assertEqual((found["before"]["recordings"], found["device_bytes"]["before"]), (3, 193 * MIB))
        self.assertEqual([(r["rank"], r["change"]) for r in found["ranks"]], [(0, 0), (1, 40 * MIB), (2, 0)])
        text = self.diff("a", "b")
        self.assertRegex(text, r"\nRanks\n  rank 1 +65.00 MiB +105.00 MiB +\+40.00 MiB \(\+61.5 %\)\n  2 ranks held the same\n")

    def test_moved_lines(self):
        build = lambda *lines: vt.compile(EDITED % lines, "-lcudart", name="edited")
        one = self.record("16", "32", program=build(10, 20))
        two = self.record("16", "48", program=build(110, 120))
        found = self.json(one, two)
        self.assertEqual(self.sites(found), {"cache": (32, 48, "grew")})
        cache = found["sites"][0]
        self.assertEqual((cache["moved"], cache["frames"][cache["user_frame"]]["line"]), (True, 120))
        self.assertIn(("cache", 20), [(f["function"], f["line"]) for f in cache["frames_before"]])
        text = self.diff(one, two)
        self.assertIn("  1 grew, 0 shrank, 0 appeared, 0 vanished, 1 unchanged; 2 moved to other lines\n", text)
        self.assertIn("cache (edited.c:120)\n", text)
        self.assertIn("; moved, was cache (edited.c:20)\n", text)

    def test_fail_on_growth(self):
        one, two = self.record("weights:100"), self.record("weights:100", "kept:10")
        said = "vramtrack diff: memory grew by 10.00 MiB from 100.00 MiB, more than --fail-on-growth %s allows\n"
        for limit in ("5%", "9.9%", "1048576", "9M", "9.5MiB", "0"):
            self.diff("--fail-on-growth", limit, one, two, status=1, error=said % limit)
        for limit in ("10%", "10485760", "10M", "10m", "10mi", "10mib", "10MB", "1GiB", ".01g", "1e9"):
            self.diff("--fail-on-growth", limit, one, two)
        self.diff("--fail-on-growth", "0", two, one)
        for limit in ("", "x", "-1", "5%%", "5X", "1e30", "0x10", "0x10M", ".", "inf", " 5", "5Mx"):
            self.diff("--fail-on-growth", limit, one, two, status=2, error="vramtrack diff: --fail-on-growth %s: bytes (1048576, 64M, "
                                                                           "1.5GiB) or a share (5%%) is needed\n" % limit)

    def test_an_incomplete_recording(self):
        """What is cut off is not gone: that is said, and there is no answer to whether memory grew."""
        one = self.record("weights:64", "kept:8")
        with open(one, "rb") as file:
            begin = file.read(20000)
        cut = os.path.join(self.dir, "cut")
        with open(cut, "wb") as file:
            file.write(begin)
        found = self.json(one, cut)
        self.assertEqual((found["before"]["missing"], found["before"]["incomplete_recordings"]), (None, 0))
        self.assertTrue(found["after"]["missing"].startswith("totals, places, "), found["after"])
        self.assertEqual(found["after"]["incomplete_recordings"], 1)
        self.assertRegex(self.diff(one, cut), r"\n  after is incomplete: totals, places, .*its figures may be too low\n")
        self.assertNotIn("incomplete", self.diff(one, one))
        self.diff("--fail-on-growth", "0", one, cut, status=2, error="vramtrack diff: cut is incomplete (%s), so --fail-on-growth has no "
                  "answer\n".replace("cut", cut, 1) % found["after"]["missing"])

    def test_a_directory(self):
        """Of recordings that have nothing to do with each other, the one that was taken is named; a copy is none of them."""
        os.mkdir(os.path.join(self.dir, "d"))
        one, two = self.record("weights:64"), self.record("weights:32")
        for path in (one, two):
            os.rename(path, os.path.join(self.dir, "d", os.path.basename(path)))
        taken = os.path.join("d", os.path.basename(two))
        said = "vramtrack: %s, the newest of 2 recordings here\n" % taken
        found = self.json("d", taken, error=said)
        self.assertEqual((found["before"]["path"], found["before"]["recordings"]), (taken, 1))
        shutil.copy(os.path.join(self.dir, taken), os.path.join(self.dir, "d", "zz.vtr"))
        found = self.json("d", taken, error="vramtrack: left out: d/zz.vtr: a copy of another recording here\n" + said)
        self.assertEqual(found["device_bytes"]["change"], 0)

    def test_wrong_arguments(self):
        one = self.record("weights:1")
        name = os.path.basename(one)
        for arguments, said in (
                ((), "two recordings or directories are needed, before and after"),
                ((name,), "two recordings or directories are needed, before and after"),
                ((name, name, "third"), "two recordings or directories are needed, before and after, not as well third"),
                ((name, "nowhere"), "nowhere: No such file or directory"),
                ((name, "@"), "@: the name of a moment is needed behind the @"),
                (("@peak", name), "@peak: a recording is needed in front of the @"),
                ((name, "@nope"), "there is no moment 'nope' in %s (there are: end, peak)" % name),
                (("--by", "size", name, name), "--by size: live, at-peak or allocated is needed"),
                (("--by", "allocated", name, "@peak"), "a moment is for --by live; allocated is of the whole run"),
                (("--stacks=all", name, name), "--stacks=all: merged, python or native is needed"),
                (("--top", "0", name, name), "--top 0: a number from 1 to 1000000 is needed"),
                (("--per-step", name, name), "--per-step: %s has recorded no training step (docs/marks.md tells what counts as one)" % name)):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.diff(*arguments, status=2, error="vramtrack diff: %s\n" % said), "")

    def test_per_step(self):
        """Twice the steps, twice the bytes: nothing has changed per step."""
        program = vt.compile(STEPS, "-lcudart", name="steps")
        one, two = self.record("10", "4", program=program), self.record("20", "4", program=program)
        self.assertEqual([s["bytes"]["change"] for s in self.json("--by", "allocated", one, two)["sites"]], [40 * MIB])
        found = self.json("--by", "allocated", "--per-step", one, two)
        self.assertEqual((found["before"]["steps"], found["after"]["steps"]), (10, 20))
        self.assertEqual([s["bytes"] for s in found["sites"]], [{"before": 4 * MIB, "after": 4 * MIB, "change": 0}])

