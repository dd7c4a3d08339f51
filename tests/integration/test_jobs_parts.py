"""What the table of a job says of each rank's memory: at its own peak, where memory ran out, or at its end."""
import json
import os
import signal
import subprocess

import phase_programs
import test_categories
import vt

MIB = 1 << 20


class Parts(phase_programs.Base):
    """What the table of a job says of each rank's memory, with PyTorch's stand-ins."""

    # Three steps of training whose tensors are gone at the end; rank 1 keeps 16 MiB more from the first step on, and may end in
    # another way after them.
    TRAIN = '''\
import signal
cudart = ctypes.CDLL("libcudart.so.13")
def train():
    assert cudart.cudaMalloc(ctypes.byref(pointer()), size_t(24 * MIB)) == 0
    net, adam, x, kept = Net(), AdamW(), None, []
    for step in range(3):
        x = inputs(x)
        out = net(x)
        if step == 0 and os.environ["RANK"] == "1": kept.append(malloc(16 * MIB))
        net.backward(1)
        free(out)
        adam.step()
        net.zero_grad()
    if os.environ["RANK"] == os.environ.get("KILL"): os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["RANK"] == os.environ.get("FULL"): malloc(1 << 42)
    for p in [x] + kept + net.parameters + adam.made: free(p)
train()
'''
    NAMES = ("parameters", "gradients", "optimizer", "activations", "inputs", "other")

    def ranks(self, count=2, **env):
        for rank in range(count):
            status = -signal.SIGKILL if env.get("KILL") == rank else 0
            self.python(self.TRAIN, status=status, head=test_categories.HEAD, RANK=rank, LOCAL_RANK=0, WORLD_SIZE=count, SLURM_JOB_ID=7, **env)

    def read(self, *options):
        done = subprocess.run([vt.COMMAND, "report", *options, self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def job(self, *options):
        job = json.loads(self.read("--json", *options))
        return job, {r["rank"]: r for r in job["ranks"]}

    def assert_as_its_report(self, rank, moment):
        """The breakdown is that of the recording's own report, and adds up to the figure it explains."""
        own, parts = self.report(rank["recording"], moment), rank["breakdown"]
        account, = [d["account"] for d in own["devices"]]
        self.assertEqual(parts["categories"], account["tensors"])
        self.assertEqual(parts["cached"], account["cached_unused"])
        self.assertEqual(parts["not_tensors"], account["application"] + sum(m["bytes"] for m in account["libraries"]))
        self.assertEqual(sum(parts["categories"].values()) + parts["cached"] + parts["not_tensors"], parts["bytes"])

    def mib(self, rank):
        return {k: v // MIB for k, v in rank["breakdown"]["categories"].items() if v >= MIB}

    def table(self, text):
        """The heading above the parts, the names of the columns, and a list of words per rank."""
        lines = text.split("\nRanks\n")[1].split("\n\n")[0].split("\n")
        return lines[0].strip(), lines[1], [line.split() for line in lines[2:] if line[:8].strip("+-= ").isdigit()]

    def test_peaks_of_those_that_end_by_themselves(self):
        self.ranks()
        job, ranks = self.job()
        even = {"parameters": 6, "gradients": 6, "optimizer": 12, "activations": 6, "inputs": 3, "other": 10}
        self.assertEqual(self.mib(ranks[0]), even)
        self.assertEqual(sum(self.mib(ranks[1]).values()), sum(even.values()) + 16)
        for rank in ranks.values():
            self.assertEqual((rank["moment"], rank["breakdown"]["moment"], rank["breakdown"]["bytes"]), ("end", "peak", rank["peak_bytes"]))
            self.assertEqual(rank["breakdown"]["not_tensors"], 24 * MIB)
            self.assert_as_its_report(rank, "peak")
            # What is at the moment stays that.
            self.assertEqual(sum(v // MIB for v in rank["categories"].values()), 0)
            self.assertEqual(rank["cached_unused"], self.report(rank["recording"])["devices"][0]["account"]["cached_unused"])
        text = self.read()
        when, names, rows = self.table(text)
        self.assertEqual(when, "at each rank's own peak")
        self.assertEqual(names.split()[:9], ["rank", "pid", "GPU", "peak", "live", "parameters", "gradients", "optimizer", "activations"])
        self.assertEqual(names.index("parameters"), text.split("\n")[text.split("\n").index(names) - 1].index("at each"))
        self.assertEqual(rows[0][3:15], ["%.2f" % (ranks[0]["peak_bytes"] / MIB), "MiB", "%.2f" % (ranks[0]["live_bytes"] / MIB), "MiB",
                                         "6.00", "MiB", "6.00", "MiB", "12.00", "MiB", "6.00", "MiB"])
        self.assertIn("\n  moment     end\n", text)
        self.assertEqual(names.split()[-3:], ["not", "tensors", "end"])
        self.assertEqual(rows[0][-5:], ["24.00", "MiB", "exit", "status", "0"])
        self.assertIn("\n  not tensors: what libraries and the program itself took from CUDA\n", text)
        self.assertNotIn("median rank", text)  # two even ranks have none that matters
        self.assertNotRegex(text, r"\n {4,6}[01][=+-]")

    def test_moment_of_all(self):
        self.ranks()
        for moment in "peak", "end":
            job, ranks = self.job("--moment", moment)
            for rank in ranks.values():
                self.assertEqual((rank["moment"], rank["breakdown"]["moment"], rank["breakdown"]["bytes"]), (moment, moment, rank["live_bytes"]))
                self.assertEqual(rank["breakdown"]["categories"], rank["categories"])
                self.assert_as_its_report(rank, moment)
        self.assertEqual(self.mib(self.job("--moment", "peak")[1][0])["activations"], 6)
        self.assertEqual(self.mib(ranks[0]), {})
        when, names, _ = self.table(self.read("--moment", "peak"))
        self.assertEqual(when, "at the moment")
        # A column that says nothing of any rank is not there.
        self.assertNotIn("gradients", self.table(self.read("--moment", "end"))[1])
        self.assertIn("gradients", names)

    def test_the_killed_among_the_living(self):
        self.ranks(KILL=1)
        job, ranks = self.job()
        self.assertEqual([(ranks[r]["moment"], ranks[r]["breakdown"]["moment"]) for r in (0, 1)], [("end", "peak"), ("end", "end")])
        self.assertEqual(ranks[1]["breakdown"]["bytes"], ranks[1]["live_bytes"])
        self.assertEqual(self.mib(ranks[0])["activations"], 6)
        self.assertEqual({k: v for k, v in self.mib(ranks[1]).items() if k in ("parameters", "gradients", "optimizer")},
                         {"parameters": 6, "optimizer": 12})
        self.assert_as_its_report(ranks[1], "end")
        text = self.read()
        self.assertEqual(self.table(text)[0], "at each rank's own peak; at the end, if killed or still running")

    def test_out_of_memory_among_the_living(self):
        self.ranks(FULL=1)
        job, ranks = self.job()
        self.assertEqual((ranks[1]["out_of_memory"], ranks[1]["moment"], ranks[1]["breakdown"]["moment"]), (True, "oom-1", "oom-1"))
        self.assertEqual({k: v for k, v in self.mib(ranks[1]).items() if k in ("parameters", "gradients", "optimizer")},
                         {"parameters": 6, "optimizer": 12})
        self.assert_as_its_report(ranks[1], "oom-1")
        self.assertEqual(ranks[0]["breakdown"]["moment"], "peak")
        text = self.read()
        self.assertEqual(self.table(text)[0], "at each rank's own peak; where memory ran out, if it did")
        self.assertIn("\n  moment     of each its own: where it ran out of memory, or its end\n", text)
        # What the finding says of the first one is not said again.
        self.assertEqual(text.count(ranks[1]["finding"]), 1)
