"""Segments, blocks and gaps of PyTorch's allocator, and memory of captured graphs: from the calls to the report.

The stand-ins for PyTorch's libraries are those of torch_case.py.
"""
import json
import subprocess

import torch_case
import vt

MIB = 1 << 20

CARVE = '''\
def first_step():
    return malloc(64 * MIB)                                 # line 2
def carve_up():
    return [malloc(4 * MIB) for _ in range(16)]             # line 4
def second_step():
    return malloc(80 * MIB)                                 # line 6
torch.torch_limit(0, size_t(128 * MIB))
big = first_step()
print("segment=%d" % big)
free(big)
parts = carve_up()
for p in parts[0::2]:
    free(p)
refused = second_step()
print("refused=%d allocated=%d reserved=%d" % (not refused, torch.torch_allocated(0), torch.torch_reserved(0)))
os._exit(0)
'''

CAPTURE = '''\
cu = ctypes.CDLL("libcuda.so.1")
stream, graph = pointer(), pointer()
def take(n):                                                # as PyTorch does in a capture
    relaxed = ctypes.c_int(2)
    cu.cuThreadExchangeStreamCaptureMode(ctypes.byref(relaxed))
    kept.append(malloc(n))
    cu.cuThreadExchangeStreamCaptureMode(ctypes.byref(relaxed))
kept = []
take(8 * MIB)
for i in range(2):
    cu.cuStreamCreate(ctypes.byref(stream), 1)
    print(cu.cuStreamBeginCapture_v2(stream, %d))
    take(16 * MIB)
    take(24 * MIB)
    thread = threading.Thread(target=take, args=(32 * MIB,))
    thread.start()
    thread.join()
    print(cu.cuStreamEndCapture(stream, ctypes.byref(graph)))
for p in kept[2::3]:
    free(p)
take(100 * MIB)
os._exit(0)
'''


class Blocks(torch_case.Base):
    def entry(self, moment=None):
        """The one entry of "fragmentation", with its blocks."""
        done = subprocess.run([vt.COMMAND, "report", self.recordings()[0], "--json", "--blocks"] + (["--moment", moment] if moment else []),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.result = json.loads(done.stdout)
        self.assertEqual(len(self.result["fragmentation"]), 1)
        return self.result["fragmentation"][0]

    def test_a_carved_segment(self):
        """Half of a segment is free and of no use: what lies where, who keeps it so, and what the report calls it."""
        out = dict(w.split("=") for w in self.python(CARVE).stdout.split())
        self.assertEqual(out["refused"], "1")
        for moment in (None, "oom-1"):
            f = self.entry(moment)
            self.assertEqual((f["allocated_bytes"], f["reserved_bytes"]), (int(out["allocated"]), int(out["reserved"])))
            self.assertEqual((f["allocated_bytes"], f["reserved_bytes"], f["free_in_segments"]), (32 * MIB, 64 * MIB, 32 * MIB))
            self.assertEqual((f["largest_free_block"], f["segments"], f["releasable_bytes"], f["pinned_segments"]), (4 * MIB, 1, 0, 1))
            self.assertEqual((f["private_pool_bytes"], f["private_pools"], f["framework"]), (0, 0, "PyTorch"))
            self.assertIs(f["would_fit_if_contiguous"], True)
            self.assertEqual((f["oom"]["requested_bytes"], f["oom"]["free_in_segments"]), (80 * MIB, 32 * MIB))
            segment, = f["map"]
            self.assertEqual((segment["address"], segment["bytes"], segment["kind"]), (int(out["segment"]), 64 * MIB, "device"))
            pin, = f["pinning_sites"]
            at = segment["address"]
            self.assertEqual(segment["blocks"], [[at + i * 4 * MIB, 4 * MIB, pin if i % 2 else None] for i in range(16)])
            site, = [s for s in self.result["sites"] if s["id"] == pin]
            self.assertIn(4, self.lines(site["frames"]))
            self.assertEqual((site["level"], site["live_bytes"], site["live_count"]), ("tensor", 32 * MIB, 8))
            families = {x["family"] for x in self.result["findings"]}
            self.assertIn("fragmentation", families)
            self.assertFalse(families & {"leak", "capacity"}, families)
            account = self.result["devices"][0]["account"]
            self.assertEqual((sum(account["tensors"].values()), account["cached_unused"], account["application"]), (32 * MIB, 32 * MIB, 0))
            held = [s for s in self.result["sites"] if s["holds_tensors"]]
            self.assertEqual([(s["level"], s["live_bytes"]) for s in held], [("driver", 64 * MIB)])

    def test_what_captures_keep(self):
        """Segments that were made while a graph was captured; in the mode `global` on any thread, else on the capturing one."""
        for mode, elsewhere in ((0, True), (1, False)):
            with self.subTest(mode=mode):
                self.setUp()
                self.assertEqual(self.python(CAPTURE % mode).stdout.split(), ["0"] * 4)
                f = self.entry()
                private = sorted(s["bytes"] // MIB for s in f["map"] if s["private"])
                self.assertEqual(private, [16, 16, 24, 24] + ([32, 32] if elsewhere else []))
                self.assertEqual(sorted(s["bytes"] // MIB for s in f["map"] if not s["private"]),
                                 [20] + ([] if elsewhere else [32, 32]) + [100])
                self.assertEqual((f["private_pool_bytes"], f["private_pools"]), (sum(private) * MIB, 2))
                self.assertEqual((f["private_pool_free_bytes"], f["releasable_bytes"]), (48 * MIB, 0))
