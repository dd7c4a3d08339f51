#!/usr/bin/env python3
"""Compares the segments and blocks that vramtrack derives with torch.cuda.memory_snapshot(), at many points of a script.

    tests/gpu/torch_blocks.py [--build DIR] [--points N] [--only MODE] [--keep DIR]

Runs itself under the library once per mode: native, expandable, and graphs (native, with captured CUDA graphs). At each point,
between operations, it copies its own recording (the mapped file of the process, which nobody changes meanwhile) and keeps
PyTorch's snapshot beside it. Afterwards `vramtrack report --json --blocks` of each copy must have the same segments (address,
size, expandable, private), the same live blocks (address, size), and the same sums. Blocks that PyTorch holds back until other
streams are done with them (active_pending_free) count as free on our side: nobody tells when that ends. Prints a line per mode
and exits with 1 if one figure differed once. Needs a GPU, torch, about 60 seconds.
"""
import argparse
import glob
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20
MODES = {"native": "expandable_segments:False", "expandable": "expandable_segments:True", "graphs": "expandable_segments:False"}


# --- in the process under test -------------------------------------------------------------------------------------------

class Points:
    """Copies of the recording, and what PyTorch says at the same instant."""

    def __init__(self, directory):
        self.directory, self.count = directory, 0

    def take(self):
        import torch
        torch.cuda.synchronize()
        recording, = glob.glob(os.path.join(self.directory, "*.%d.*.vtr" % os.getpid()))
        name = os.path.join(self.directory, "point-%03d" % self.count)
        with open(name + ".pickle", "wb") as f:
            pickle.dump({"segments": torch.cuda.memory_snapshot(), "reserved": torch.cuda.memory_reserved(),
                         "allocated": torch.cuda.memory_allocated()}, f)
        shutil.copyfile(recording, name + ".copy")
        self.count += 1


def churn(kept, rng, torch):
    """Makes and drops tensors of all size classes, on two streams."""
    side = churn.__dict__.setdefault("side", torch.cuda.Stream())
    for _ in range(60):
        if kept and rng.random() < 0.48:
            kept.pop(rng.randrange(len(kept)))
            continue
        size = rng.choice((rng.randrange(1, 2000), rng.randrange(1, MIB), rng.randrange(MIB, 10 * MIB), rng.randrange(10 * MIB, 96 * MIB)))
        with torch.cuda.stream(side if rng.random() < 0.2 else torch.cuda.current_stream()):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))


def train(torch, steps):
    layer = torch.nn.TransformerEncoderLayer(512, 8, batch_first=True).cuda()
    model = torch.nn.TransformerEncoder(layer, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        x = torch.randn(4 + step % 3, 128 + 32 * (step % 5), 512, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def graphs(torch, sizes):
    """One graph with a pool of its own per size, and two that share one."""
    kept, pool = [], None
    for i, rows in enumerate(sizes):
        x = torch.zeros(rows, MIB, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            y = (x * 2).relu() + 1
        pool = graph.pool() if i == len(sizes) - 2 else None
        kept.append((graph, x, y))
        yield kept


def script(mode, directory, points):
    import torch
    rng, kept, at = random.Random(7), [], Points(directory)
    torch.ones(16, device="cuda").mul(2).relu().add(1)
    if mode == "graphs":
        for graphs_kept in graphs(torch, (8, 10, 12, 14, 14)):
            at.take()
        kept = graphs_kept
        torch.cuda.empty_cache()
        at.take()
    else:
        for i, _ in enumerate(train(torch, max(points // 2, 3))):
            if i % 2:
                at.take()
        while at.count < points:
            churn(kept, rng, torch)
            if at.count % 4 == 3:
                torch.cuda.empty_cache()
            at.take()
    print("points=%d kept=%d" % (at.count, len(kept)), flush=True)
    os._exit(0)


# --- the comparison --------------------------------------------------------------------------------------------------------

def expected(snapshot):
    """{address: (size, expandable, private, [(address, size) of what is allocated], largest free piece)}"""
    found = {}
    for s in snapshot["segments"]:
        address, live, largest, run = s["address"], [], 0, 0
        for b in s["blocks"]:
            if b["state"] == "active_allocated":
                live.append((address, b["size"]))
                run = 0
            else:
                run += b["size"]
            largest = max(largest, run)
            address += b["size"]
        found[s["address"]] = (s["total_size"], bool(s.get("is_expandable")), tuple(s.get("segment_pool_id", (0, 0))) != (0, 0), live, largest)
    return found


def derived(entry):
    found = {}
    for s in entry["map"]:
        live = [(a, n) for a, n, site in s["blocks"] if site is not None]
        largest = max([n for a, n, site in s["blocks"] if site is None], default=0)
        found[s["address"]] = (s["bytes"], s["expandable"], s["private"], live, largest)
    return found


def compare(snapshot, report):
    """Differences of one point, as text."""
    entries = [e for e in report["fragmentation"] if e["device"] == 0]
    if len(entries) != 1 or entries[0].get("map") is None:
        return ["no block map: %s" % json.dumps(entries)[:300]]
    entry, want, have = entries[0], expected(snapshot), derived(entries[0])
    out = ["segment %#x: torch %s, vramtrack %s" % (a, str(want.get(a))[:160], str(have.get(a))[:160])
           for a in sorted(set(want) | set(have)) if want.get(a) != have.get(a)]
    whole = sum(size for size, expandable, private, live, _ in want.values() if not live and not private and not expandable)
    if any(w[1] for w in want.values()):
        whole = None
    for key, value in (("reserved_bytes", snapshot["reserved"]), ("allocated_bytes", sum(n for w in want.values() for _, n in w[3])),
                       ("largest_free_block", max([w[4] for w in want.values()], default=0)), ("releasable_bytes", whole),
                       ("private_pool_bytes", sum(w[0] for w in want.values() if w[2])),
                       ("private_pools", len({tuple(s.get("segment_pool_id", (0, 0))) for s in snapshot["segments"]} - {(0, 0)}))):
        if value is not None and entry[key] != value:
            out.append("%s: torch %s, vramtrack %s" % (key, value, entry[key]))
    return out


def run(mode, args):
    directory = os.path.join(args.keep, mode) if args.keep else tempfile.mkdtemp(prefix="vt-blocks-")
    os.makedirs(directory, exist_ok=True)
    env = dict(os.environ, LD_PRELOAD=os.path.join(args.build, "libvramtrack.so"), VRAMTRACK_DIR=directory, VRAMTRACK_REPORT="off",
               PYTORCH_CUDA_ALLOC_CONF=MODES[mode])  # the newer name of this variable is ignored by some versions
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--inside", mode, directory, "--points", str(args.points)],
                          env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if "No module named 'torch'" in done.stderr:
        print("SKIP %s: torch is not installed" % mode)
        return True
    points, wrong, blocks = sorted(glob.glob(os.path.join(directory, "point-*.copy"))), [], 0
    for copy in points:
        with open(copy[:-5] + ".pickle", "rb") as f:
            snapshot = pickle.load(f)
        report = subprocess.run([os.path.join(args.build, "vramtrack"), "report", "--json", "--blocks", "--moment", "end", copy],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        lines = compare(snapshot, json.loads(report.stdout)) if report.returncode == 0 else [report.stderr]
        wrong += ["%s: %s" % (os.path.basename(copy), line) for line in lines]
        blocks += sum(len(s["blocks"]) for s in snapshot["segments"])
    ok = done.returncode == 0 and points and not wrong
    print("%s %s: %d points, %d blocks, %d differences" % ("PASS" if ok else "FAIL", mode, len(points), blocks, len(wrong)))
    for line in wrong[:20]:
        print("    " + line)
    if done.returncode:
        print("    exit status %d: %s" % (done.returncode, done.stderr[-2000:]))
    if not args.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return bool(ok)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", type=os.path.abspath)
    parser.add_argument("--points", type=int, default=16)
    parser.add_argument("--only", choices=sorted(MODES))
    parser.add_argument("--keep", help="leave recordings and snapshots here", type=lambda p: p and os.path.abspath(p))
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        script(args.inside[0], args.inside[1], args.points)
    results = [run(mode, args) for mode in MODES if args.only in (None, mode)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
