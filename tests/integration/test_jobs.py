"""Many processes as one job: the merged report of torchrun, Slurm and MPI ranks, of hosts that share a directory, of the dead
among the living, and of a thousand ranks."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import vt

MIB = 1 << 20

# As torchrun does: starts the ranks, waits for all, fails if one did.
LAUNCHER = """
import os, subprocess, sys
count = int(sys.argv[1])
ranks = [subprocess.Popen(sys.argv[2:], env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(count),
                                                 TORCHELASTIC_RUN_ID="none")) for r in range(count)]
sys.exit(1 if any([r.wait() for r in ranks]) else 0)
"""

HOST = r"""
#include <stdlib.h>
#include <string.h>
int gethostname(char *name, size_t size)
{
    const char *host = getenv("FAKE_HOST");
    strncpy(name, host ? host : "nobody", size);
    return 0;
}
"""


class Jobs(vt.Case):
    def program(self):
        return vt.compile("job_program.c", "-lcudart", "-lcuda")

    def ranks(self, count, *acts, world=None, only=None, names=("RANK", "LOCAL_RANK", "WORLD_SIZE"), preload=True, **env):
        """Runs the ranks of a job at once and waits for them; returns their exit statuses."""
        running = []
        for rank in only if only is not None else range(count):
            own = dict(zip(names, (rank, rank % 8, world or count)))
            running.append(self.start_program([self.program(), *acts], preload=preload, SIM_DEVICES=8, VRAMTRACK_REPORT="off",
                                              **own, **env))
        for process in running:
            process.communicate(timeout=120)
        return [p.returncode for p in running]

    def report_text(self, *options):
        done = subprocess.run([vt.COMMAND, "report", *options, self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120)
        return done

    def job(self, *options, status=0):
        done = self.report_text("--json", *options)
        self.assertEqual((done.returncode, done.stderr), (status, ""), done.stderr)
        job = json.loads(done.stdout)
        self.assertEqual(job["schema"], "vramtrack-job/1")
        return job

    def families(self, job):
        return [f["family"] for f in job["findings"]]

    def finding(self, job, family):
        found = [f for f in job["findings"] if f["family"] == family]
        self.assertEqual(len(found), 1, job["findings"])
        return found[0]

    def function(self, site):
        """The function that called the helper all allocations go through."""
        names = [f["function"] for f in site["frames"]]
        return names[names.index("take") + 1]

    def test_64_ranks_of_which_one_is_uneven(self):
        statuses = self.ranks(64, "weights:512", "grads:256", "37=snapshots:96", "37=snapshots:96", "temp:64", "free")
        self.assertEqual(statuses, [0] * 64)
        job = self.job()
        self.assertEqual((len(job["ranks"]), job["world_size"], job["helpers"]), (64, 64, []))
        self.assertEqual([r["rank"] for r in job["ranks"]], list(range(64)))
        self.assertEqual([r["device"] for r in job["ranks"]], [r % 8 for r in range(64)])
        self.assertEqual({r["peak_bytes"] for r in job["ranks"] if r["rank"] != 37}, {832 * MIB})
        skew, = job["skew"]
        self.assertEqual((skew["rank"], skew["measure"], skew["confidence"]), (37, "peak", "likely"))
        self.assertEqual((skew["bytes"], skew["median_bytes"], skew["difference"]), (1024 * MIB, 832 * MIB, 192 * MIB))
        more = skew["sites"][0]
        self.assertEqual((self.function(more), more["bytes"], more["median_bytes"], more["count"]),
                         ("keep_snapshots", 192 * MIB, 0, 2))
        self.assertEqual(skew["rest"] + sum(s["difference"] for s in skew["sites"]), skew["difference"])
        self.assertEqual((self.families(job), job["findings"][0]["ranks"]), (["rank_skew"], [37]))
        text = self.report_text().stdout
        self.assertIn("rank skew (likely): rank 37 held 192.00 MiB more at its peak than the median rank: "
                      "1.00 GiB against 832.00 MiB of rank %d." % job["median_rank"], text)
        self.assertRegex(text, r"\n      - 192.00 MiB more by take \(job_program\S* < keep_snapshots \(job_program\S*: 192.00 MiB in 2, 0 B in 0 on")

    def test_equal_ranks_give_no_finding(self):
        self.assertEqual(self.ranks(8, "weights:512", "grads:256", "!3=temp:20", "free"), [0] * 8)
        job = self.job()
        self.assertEqual((job["skew"], self.families(job)), ([], ["none"]))
        self.assertIn("none (certain): The ranks are even, and none died.", self.report_text().stdout)

    def test_stages_of_a_pipeline_differ_by_nature(self):
        acts = ["%d=weights:%d" % (r, 512 + 192 * r) for r in range(6)]
        self.assertEqual(self.ranks(6, *acts, "free"), [0] * 6)
        job = self.job()
        skew, = job["skew"]
        self.assertEqual((skew["rank"], skew["median_rank"], skew["difference"], skew["confidence"]), (5, 2, 576 * MIB, "possible"))
        self.assertIn("Stages of a pipeline and experts differ by nature.", self.finding(job, "rank_skew")["title"])

    def test_two_ranks_are_judged_with_care(self):
        self.assertEqual(self.ranks(2, "weights:512", "1=kept:256"), [0, 0])
        skew, = self.job()["skew"]
        self.assertEqual((skew["rank"], skew["confidence"], skew["difference"]), (1, "possible", 256 * MIB))
        self.assertIn("Of two ranks either may be the odd one.", self.report_text().stdout)

    def test_what_one_rank_keeps_to_its_end(self):
        """The peaks are even: only what is left at the end tells."""
        self.assertEqual(self.ranks(5, "temp:600", "kept:8", "2=kept:300"), [0] * 5)
        skew, = self.job()["skew"]
        self.assertEqual((skew["rank"], skew["measure"], skew["difference"]), (2, "live", 300 * MIB))
        self.assertEqual(self.function(skew["sites"][0]), "keep_results")

    def test_launcher_under_run(self):
        command = [vt.COMMAND, "run", "-o", self.dir, "--", sys.executable, "-c", LAUNCHER, "8", self.program(),
                   "weights:256", "grads:128", "fork:1", "5=snapshots:128", "1=stray:2", "2=kill"]
        done = self.run_program(command, preload=False, SIM_DEVICES=8)
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = done.stderr.splitlines()
        self.assertLessEqual(len(lines), 25)
        self.assertEqual(lines[0], "vramtrack: 16 processes used the GPU")
        self.assertTrue(lines[1].startswith("vramtrack: died (certain): rank 2 died: "), lines[1])
        self.assertTrue(lines[2].startswith("vramtrack: rank skew (likely): rank 5 held 128.00 MiB more at its peak"), lines[2])
        self.assertTrue(lines[3].startswith("vramtrack: stray context (likely): 1 rank also uses"), lines[3])
        self.assertTrue(lines[4].startswith("  rank 2 "), lines[4])
        self.assertIn("  8 helper processes, at most 1.00 MiB each", lines)
        self.assertTrue(lines[-1].startswith("vramtrack: next: vramtrack report " + self.dir), lines[-1])
        job = self.job()
        self.assertEqual(self.families(job), ["died", "rank_skew", "stray_context"])
        self.assertEqual([r["rank"] for r in job["ranks"]], [2, 0, 1, 3, 4, 5, 6, 7])
        self.assertEqual((job["ranks"][0]["end"], job["ranks"][0]["peak_bytes"]), ("killed", 384 * MIB))
        self.assertEqual(sorted(h["rank"] for h in job["helpers"]), list(range(8)))
        self.assertEqual({h["peak_bytes"] for h in job["helpers"]}, {MIB})
        self.assertIn("\n  8 helper processes not listed, at most 1.00 MiB each\n", self.report_text().stdout)
        stray = self.finding(job, "stray_context")
        self.assertEqual(stray["ranks"], [1])
        self.assertIn("rank 1, whose GPU is 1: a context of 300.00 MiB and at most 2.00 MiB on GPU 0 of rank 0", stray["evidence"][0])

    def test_a_peak_on_two_gpus_is_split(self):
        self.assertEqual(self.ranks(2, "weights:256", "1=stray:2"), [0, 0])
        text = self.report_text().stdout
        self.assertRegex(text, r"\n {6}0  +\d+ {3}0  +256\.00 MiB ")
        self.assertRegex(text, r"\n {6}1  +\d+  1\*  +258\.00 MiB ")
        self.assertIn("\n  * and others, whose peaks are added: rank 1: 256.00 MiB on GPU 1, 2.00 MiB on GPU 0\n", text)

    def test_who_ran_out_of_memory_first(self):
        self.assertEqual(self.ranks(4, "weights:512", "3=full"), [0] * 4)
        job = self.job()
        self.assertEqual((self.families(job)[0], job["findings"][0]["ranks"]), ("out_of_memory", [3]))
        self.assertEqual((job["ranks"][0]["rank"], job["ranks"][0]["out_of_memory"], job["ranks"][0]["moment"]), (3, True, "oom-1"))
        self.assertIn("out of memory (certain): rank 3 ran out of GPU memory.", self.report_text().stdout)
        said = job["findings"][0]["evidence"]
        self.assertRegex(said[0], r"^rank 3 on \S+, \d+\.\d{3} s after the job's first CUDA call, held 512\.00 MiB then: ")
        for moment in ("peak", "end"):  # whatever is shown
            self.assertEqual(self.finding(self.job("--moment", moment), "out_of_memory")["evidence"], said)
        self.assertEqual(self.report_text("--fail-on", "oom").returncode, 1)
        self.assertEqual(self.report_text("--fail-on", "misuse").returncode, 0)

    def test_dead_rank_among_the_living(self):
        self.assertEqual(self.ranks(4, "weights:64", "1=kill", "3=exit:7"), [0, -signal.SIGKILL, 0, 7])
        job = self.job()
        died = self.finding(job, "died")
        self.assertEqual(sorted(died["ranks"]), [1, 3])
        self.assertEqual({r["rank"]: r["end_words"] for r in job["ranks"]},
                         {0: "exit status 0", 1: "was killed or crashed", 2: "exit status 0", 3: "exit status 7"})
        self.assertEqual({r["rank"] for r in job["ranks"][:2]}, {1, 3})

    def test_both_die_together(self):
        """Nothing here says which one failed by itself: the launcher may have ended the other."""
        self.assertEqual(self.ranks(2, "weights:64", "kill"), [-signal.SIGKILL] * 2)
        died = self.finding(self.job(), "died")
        self.assertRegex(died["title"], r"^Both processes died, and stopped together: last seen within 0\.\d{3} s of each other\.$")
        self.assertEqual(died["advice"], ["Look at what the launcher printed: it ends the others when one dies, and says which one did."])

    def test_places_of_some(self):
        """A place of one rank names it; what several hold alike is said once."""
        self.assertEqual(self.ranks(4, "weights:64", "1=kept:32", "2=snapshots:16", "3=snapshots:16"), [0] * 4)
        text = self.report_text().stdout
        held = dict(re.findall(r"take \(job_program\S* < (\w+) .*\n.*; (in \d of 4, .*)\n", text))
        self.assertEqual(held, {"make_weights": "in 4 of 4, 64.00 MiB each", "keep_results": "in 1 of 4, rank 1",
                                "keep_snapshots": "in 2 of 4, 16.00 MiB each"})
        self.assertIn("\nThe whole report of a rank: vramtrack report ", text)

    def test_processes_without_ranks(self):
        for mib in ("64", "128"):
            done = self.run_program([self.program(), "kept:" + mib], VRAMTRACK_REPORT="off", SLURM_JOB_ID=5)
            self.assertEqual(done.returncode, 0, done.stderr)
        text = self.report_text().stdout
        self.assertRegex(text, r"\nProcesses\n       pid GPU        peak        live  end\n  +\d+   0 ")
        self.assertIn("\nThe whole report of a process: vramtrack report ", text)

    def test_names_of_slurm_and_mpi(self):
        names = (("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
                 ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"))
        for own in names:
            with self.subTest(names=own):
                self.setUp()
                self.assertEqual(self.ranks(3, "weights:128", "1=kept:128", names=own), [0] * 3)
                job = self.job()
                self.assertEqual((job["world_size"], [r["rank"] for r in job["ranks"]], [r["local_rank"] for r in job["ranks"]]),
                                 (3, [0, 1, 2], [0, 1, 2]))

    def test_hosts_that_share_a_directory(self):
        shim = vt.compile(HOST, shared=True, name="fakehost")
        for host in ("alpha", "beta"):
            first = 0 if host == "alpha" else 2
            self.assertEqual(self.ranks(2, "weights:64", only=(first, first + 1), world=4, preload=[shim, vt.LIBRARY], FAKE_HOST=host),
                             [0, 0])
        job = self.job()
        self.assertEqual([(r["rank"], r["host"]) for r in job["ranks"]], [(0, "alpha"), (1, "alpha"), (2, "beta"), (3, "beta")])
        self.assertEqual(self.families(job), ["none"])
        self.assertRegex(self.report_text().stdout, r"\n      1= alpha +\d+   1   64.00 MiB   64.00 MiB  exit status 0\n")

    def test_an_earlier_job_is_another_one(self):
        """Two jobs of the scheduler's, and within the second a rank that was started again."""
        self.assertEqual(self.ranks(2, "weights:64", SLURM_JOB_ID=1), [0, 0])
        self.assertEqual(self.ranks(2, "weights:32", SLURM_JOB_ID=2), [0, 0])
        self.assertEqual(self.ranks(2, "weights:128", SLURM_JOB_ID=2), [0, 0])
        job = self.job()
        self.assertEqual(([r["peak_bytes"] for r in job["ranks"]], job["other_recordings"]), ([128 * MIB] * 2, 4))
        self.assertIn("(4 more there belong to other runs; --all shows every one)", self.report_text().stdout)
        self.assertEqual(self.report_text("--all").stdout.count("==> "), 6)

    def test_missing_ranks_are_said(self):
        self.assertEqual(self.ranks(2, "weights:64", only=(0, 5), world=8), [0, 0])
        job = self.job()
        self.assertTrue(self.finding(job, "missing_ranks")["title"].startswith("2 of 8 ranks have a recording here"))

    def test_one_rank_of_two(self):
        self.assertEqual(self.ranks(2, "weights:64", only=(0,)), [0])
        done = self.report_text()
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "vramtrack: missing ranks: 1 of 2 has a recording here; the others used no GPU, were not recorded, "
                                      "or recorded elsewhere\n")

    def rank_file(self, job, rank):
        path, = [r["recording"] for r in job["ranks"] if r["rank"] == rank]
        return path

    def test_a_copy_is_no_process(self):
        self.assertEqual(self.ranks(3, "weights:64", "1=kill"), [0, -signal.SIGKILL, 0])
        path = self.rank_file(self.job(), 1)
        copy = os.path.join(self.dir, "zz copy.vtr")
        shutil.copy(path, copy)
        cut = os.path.join(self.dir, "a.vtr")
        with open(path, "rb") as file, open(cut, "wb") as to:
            to.write(file.read(20000))
        said = "vramtrack: left out: %s: a copy of another recording here\n"
        done = self.report_text("--json")
        self.assertEqual((done.returncode, sorted(done.stderr.splitlines(True))), (0, sorted((said % copy, said % cut))))
        job = json.loads(done.stdout)
        self.assertEqual(([r["rank"] for r in job["ranks"]], job["other_recordings"]), ([1, 0, 2], 0))
        self.assertEqual(self.rank_file(job, 1), path)
        self.assertEqual(self.finding(job, "died")["title"], "rank 1 died: was killed or crashed.")
        self.assertEqual(self.report_text("--all").stdout.count("==> "), 3)

    def test_files_that_cannot_be_read(self):
        self.assertEqual(self.ranks(4, "weights:64"), [0] * 4)
        job = self.job()
        self.assertEqual((job["unreadable_files"], job["complete"]), (0, True))
        empty, noise = self.rank_file(job, 2), self.rank_file(job, 3)
        open(empty, "w").close()
        with open(noise, "wb") as file:
            file.write(b"noise" * 5000)
        said = sorted(("vramtrack: left out: %s: is empty\n" % empty, "vramtrack: left out: %s: is no recording\n" % noise))
        done = self.report_text("--json")
        self.assertEqual((done.returncode, sorted(done.stderr.splitlines(True))), (0, said))
        job = json.loads(done.stdout)
        self.assertEqual((len(job["ranks"]), job["unreadable_files"], job["complete"]), (2, 2, False))
        self.assertTrue(self.finding(job, "missing_ranks")["title"].startswith(
            "2 of 4 ranks have a recording here that can be read; 2 files here can not."))
        self.assertIn("\n  note       2 files there named *.vtr can not be read, and are left out.\n", self.report_text().stdout)
        self.assertEqual(sorted(self.report_text("--all").stderr.splitlines(True)), said)
        self.assertEqual(self.report_text("--fail-on", "oom").returncode, 2)

    def test_an_incomplete_rank(self):
        """What is cut off is not known to be 0: the rank is no odd one, no helper, and none of those that are even."""
        self.assertEqual(self.ranks(4, "weights:256"), [0] * 4)
        path = self.rank_file(self.job(), 1)
        os.truncate(path, 20000)
        job = self.job()
        self.assertEqual((job["skew"], job["helpers"], len(job["ranks"]), job["complete"]), ([], [], 4, False))
        self.assertEqual({r["rank"]: bool(r["missing"]) for r in job["ranks"]}, {0: False, 1: True, 2: False, 3: False})
        note, = job["notes"]
        self.assertTrue(note.startswith("%s of rank 1 is incomplete (totals, places" % path), note)
        text = self.report_text().stdout
        self.assertIn("\n  note       %s\n" % note, text)
        self.assertRegex(text, r"\n      1  .*, recording incomplete\n")
        self.assertEqual((self.families(job), job["findings"][0]["confidence"]), (["none"], "possible"))
        self.assertEqual(job["sites"][0]["median_bytes"], 256 * MIB)

    def test_programs_that_differ(self):
        other = os.path.join(self.dir, "loader")
        shutil.copy(self.program(), other)
        for rank, program in enumerate((self.program(), self.program(), other)):
            done = self.run_program([program, "weights:256"], RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=3, SIM_DEVICES=8, VRAMTRACK_REPORT="off")
            self.assertEqual(done.returncode, 0, done.stderr)
        text = self.report_text().stdout
        self.assertRegex(text, r"^GPU memory of job_program\S* and 1 more program: 3 processes")
        self.assertRegex(text, r"\n      2  .* exit status 0  loader\n")

    def test_ranks_that_are_there_twice(self):
        pipe = os.path.join(self.dir, "pipe")
        os.mkfifo(pipe)
        running = [self.start_program([self.program(), "weights:64", "ready:" + pipe], SIM_DEVICES=8, VRAMTRACK_REPORT="off", RANK=rank,
                                      LOCAL_RANK=rank, WORLD_SIZE=2) for rank in (0, 0, 1, 1)]
        go = os.open(pipe, os.O_RDWR)
        self.addCleanup(os.close, go)
        end = time.monotonic() + 60
        while len(self.recordings()) < 4 and time.monotonic() < end:
            time.sleep(0.01)
        os.write(go, b"gogo")
        self.assertEqual([p.wait(60) for p in running], [0] * 4)
        for process in running:
            process.communicate()
        self.assertEqual(self.job()["notes"], ["2 ranks are here more than once: several processes of a rank, or two jobs at the same "
                                               "time in this directory."])

    def test_nobody_has_chosen_a_gpu(self):
        """All ranks have their memory on the first GPU; none is known to be another's."""
        self.assertEqual(self.ranks(3, "weights:64", names=("RANK", "UNUSED", "WORLD_SIZE")), [0] * 3)
        found = self.finding(self.job(), "shared_gpu")
        self.assertEqual((found["confidence"], found["title"]),
                         ("possible", "All 3 ranks of a host are on one GPU, number 0: if there are more, no rank has chosen its own."))
        self.assertIn("\nFindings\n  shared GPU (possible): All 3 ranks", self.report_text().stdout)

    def test_blocks_are_of_one_recording(self):
        self.assertEqual(self.ranks(2, "weights:64"), [0, 0])
        done = self.report_text("--json", "--blocks")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", "vramtrack report: --blocks is for one recording, and %s has "
                                                                        "a job of several ranks: name a file in it\n" % self.dir))

    def test_processes_of_no_job(self):
        """Two runs, one after the other: the newest recording, as for one."""
        for mib in ("64", "128"):
            done = self.run_program([self.program(), "kept:" + mib], VRAMTRACK_REPORT="off")
            self.assertEqual(done.returncode, 0, done.stderr)
        done = self.report_text()
        self.assertIn("the newest of 2 recordings here (--all shows every one)", done.stderr)
        report = json.loads(self.report_text("--json").stdout)
        self.assertEqual((report["schema"], report["sites"][0]["live_bytes"]), ("vramtrack-report/1", 128 * MIB))

    def test_one_process_and_its_helper(self):
        """The helper's recording is the newest one; the report is that of the process which it helped."""
        self.assertEqual(self.ranks(1, "weights:64", "fork:1", "temp:2"), [0])
        self.assertEqual(len(self.recordings()), 2)
        report = json.loads(self.report_text("--json").stdout)
        self.assertEqual((report["schema"], self.total(report, "device")["peak_bytes"]), ("vramtrack-report/1", 66 * MIB))

    def test_shared_memory_counts_at_its_owner(self):
        """A tensor that another process opens (CUDA IPC) is its owner's; the other one says that it has imported it."""
        pipe = os.path.join(self.dir, "tensor")
        os.mkfifo(pipe)
        os.mkfifo(pipe + ".done")
        self.assertEqual(self.ranks(2, "weights:64", "0=share:" + pipe, "1=open:" + pipe), [0, 0])
        job = self.job()
        self.assertEqual([r["peak_bytes"] // MIB for r in sorted(job["ranks"], key=lambda r: r["rank"])], [64 + 48, 64])
        reports = sorted((self.report(path, "end") for path in self.recordings()), key=lambda r: r["process"]["rank"])
        self.assertEqual([self.total(r, "imported")["live_bytes"] // MIB for r in reports], [0, 48])
        self.assertEqual([self.total(r, "device")["live_bytes"] // MIB for r in reports], [64 + 48, 64])

    def test_memory_mapped_for_a_peer_counts_once(self):
        self.assertEqual(self.ranks(2, "weights:64", "0=peer:1", "1=peer:0"), [0, 0])
        job = self.job()
        for rank in job["ranks"]:
            report = self.report(rank["recording"], "end")
            self.assertEqual(rank["peak_bytes"] // MIB, 64 + 32)
            self.assertEqual([d["index"] for d in rank["devices"]], [rank["rank"]])
            self.assertEqual(self.total(report, "vmm_physical", device=rank["rank"])["live_bytes"] // MIB, 32)
            self.assertEqual(self.total(report, "vmm_physical", device=1 - rank["rank"])["live_bytes"], 0)
        done = subprocess.run([vt.COMMAND, "diff", *self.recordings()], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        self.assertRegex(done.stdout, r"\n  driver vmm_physical  +GPUs +32\.00 MiB +32\.00 MiB ")
        self.assertRegex(done.stdout, r"\n  driver vmm_reserved_va +host ")  # whole names

    def test_moment_of_all(self):
        self.assertEqual(self.ranks(3, "weights:64", "free"), [0] * 3)
        self.assertEqual([r["live_bytes"] for r in self.job()["ranks"]], [0] * 3)
        self.assertEqual([r["live_bytes"] for r in self.job("--moment", "peak")["ranks"]], [64 * MIB] * 3)
        self.assertIn("\n  moment     peak\n", self.report_text("--moment", "peak").stdout)
        done = self.report_text("--moment", "oom-1")
        self.assertEqual((done.returncode, done.stderr), (2, "vramtrack report: no process of the job has a moment 'oom-1'\n"))

    def generate(self, ranks, uneven):
        tool = vt.compile("job_recordings.c")
        subprocess.run([tool, self.dir, str(ranks), str(uneven)], check=True)

    def test_same_pids_on_all_hosts(self):
        self.generate(32, 9)
        job = self.job()
        self.assertEqual(sorted({r["pid"] for r in job["ranks"]}), list(range(100, 108)))
        self.assertEqual((len(job["ranks"]), len({r["host"] for r in job["ranks"]})), (32, 4))
        skew, = job["skew"]
        self.assertEqual((skew["rank"], skew["difference"], len(skew["sites"])), (9, 512 * MIB, 1))
        self.assertEqual((skew["sites"][0]["frames"][0]["function"], skew["rest"]), ("layer_7", 0))

    def test_1024_recordings(self):
        """Under a minute, and memory does not grow with the ranks' recordings, of which each takes 240 KiB."""
        self.generate(1024, 700)
        began = time.monotonic()
        process = subprocess.Popen([vt.COMMAND, "report", "--json", self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output = process.stdout.read()
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        self.assertEqual((status, error), (0, b""))
        self.assertLess(time.monotonic() - began, 60)
        if not vt.SAN:
            self.assertLess(usage.ru_maxrss, 64 * 1024)  # KiB
        job = json.loads(output)
        self.assertEqual((len(job["ranks"]), job["world_size"], len(job["sites"])), (1024, 1024, 200))
        weights = job["sites"][0]
        self.assertEqual((weights["at_peak_bytes"], weights["processes"], weights["median_bytes"]), (1024 * 2048 * MIB, 1024, 2048 * MIB))
        skew, = job["skew"]
        self.assertEqual((skew["rank"], skew["difference"], skew["sites"][0]["frames"][0]["function"]), (700, 512 * MIB, "layer_7"))
        text = self.report_text().stdout
        self.assertIn("\n  960 more, peak 2.49 GiB (--top N shows more)\n", text)
        self.assertIn("\n    700+ node87 ", text)
