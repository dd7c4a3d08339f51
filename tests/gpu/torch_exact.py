#!/usr/bin/env python3
"""Compares what vramtrack records of PyTorch's tensors with what PyTorch says itself, at many points of a training script.

    tests/gpu/torch_exact.py [--build DIR] [--points N] [--only MODE]

Runs itself under the library once per allocator: native, expandable segments, cudaMallocAsync. At each point, between
operations of a small transformer's training, it reads its own recording (the mapped file) and compares the live and peak
bytes of the tensors with torch.cuda.memory_allocated() and max_memory_allocated(), and what the driver gave to the
allocator with memory_reserved(). Prints a line per mode and exits with 1 if one figure differed once. Needs a GPU, torch, 60 seconds.
"""
import argparse
import glob
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

MODULES, FRAMES, SITES, TOTALS, SCOPES, LIVE, ALLOCATORS = 1, 2, 3, 4, 5, 7, 20  # sections of vramtrack/recording.h
DRIVER, TENSOR, DEVICE_KIND, PHYSICAL_KIND, DEVICE_CLASS, FREE_SLOT = 0, 1, 1, 7, 0, 0
CUDA = ("libcuda.so", "libcudart.so", "libvramtrack.so")


class Recording:
    """The parts of a recording (docs/format.md) that are needed here, read from the mapped file of a live process."""

    SECTIONS, ENTRY, EXTENTS = 800, 240, 26

    def __init__(self, path):
        self.path, self.file, self.owners = path, open(path, "rb"), {}
        self.map()

    def map(self):
        size = os.fstat(self.file.fileno()).st_size
        self.data, self.size = mmap.mmap(self.file.fileno(), size, prot=mmap.PROT_READ), size
        magic, major, minor = struct.unpack_from("<8sHH", self.data)
        if magic != b"VRAMTRK\0" or major != 2 or minor < 4:
            raise SystemExit("not a recording that this script reads: %s" % self.path)

    def records(self, section):
        """Offsets of a section's records, and the number of bytes of each."""
        at = self.SECTIONS + section * self.ENTRY
        if at + self.ENTRY > struct.unpack_from("<I", self.data, 16)[0]:
            return []
        record_bytes, first, count = struct.unpack_from("<IIQ", self.data, at)
        extents = struct.unpack_from("<%dQ" % self.EXTENTS, self.data, at + 32)
        offsets = []
        for e, start in enumerate(extents):
            have = min(count, first << e)
            if start + have * record_bytes > self.size:
                self.map()
            offsets += [start + i * record_bytes for i in range(have)]
            count -= have
        return offsets

    def totals(self, level=TENSOR, kind=DEVICE_KIND, device=0):
        """live_bytes, live_count, peak_bytes, alloc_calls, free_calls of one row; zeros if there is none."""
        for at in self.records(TOTALS):
            if struct.unpack_from("<BBh", self.data, at) == (level, kind, device):
                f = struct.unpack_from("<QQQQQQQQ", self.data, at + 8)
                return f[0], f[1], f[2], f[4], f[5]
        return 0, 0, 0, 0, 0

    def peak(self, level=TENSOR, device=0):
        """Live and peak bytes of everything of a level that occupies the card."""
        for at in self.records(SCOPES):
            if struct.unpack_from("<BBh", self.data, at) == (level, DEVICE_CLASS, device):
                return struct.unpack_from("<QQ", self.data, at + 8)
        return 0, 0

    def string(self, string_id):
        """Strings never cross an extent; the offset of one is its id within the section."""
        record_bytes, first, count = struct.unpack_from("<IIQ", self.data, self.SECTIONS)
        block = string_id // first + 1
        e = block.bit_length() - 1
        start = struct.unpack_from("<Q", self.data, self.SECTIONS + 32 + 8 * e)[0] + string_id - first * ((1 << e) - 1)
        length, = struct.unpack_from("<I", self.data, start)
        return self.data[start + 4:start + 4 + length].decode("utf-8", "replace")

    def held_by(self, library):
        """Live bytes that the driver gave to a library: the innermost module that is neither ours nor CUDA's says whose."""
        modules, frames, held = self.records(MODULES), self.records(FRAMES), 0
        for index, at in enumerate(self.records(SITES)):
            live, level, kind, stack = struct.unpack_from("<Q54xBB160xI", self.data, at)
            if level != DRIVER or not live or kind not in (DEVICE_KIND, PHYSICAL_KIND):
                continue
            if index not in self.owners:
                owner = ""
                while stack and not owner:
                    stack, module = struct.unpack_from("<II", self.data, frames[stack - 1])
                    path = self.string(struct.unpack_from("<I", self.data, modules[module] + 24)[0]) if module < len(modules) else ""
                    owner = "" if os.path.basename(path).startswith(CUDA) else path
                self.owners[index] = os.path.basename(owner)
            held += live if self.owners[index].startswith(library) else 0
        return held

    NAMES = ("allocated_bytes", "reserved_bytes", "reserved_peak_bytes", "sum_bytes", "base_bytes", "reports", "mismatches",
             "worst_bytes", "unknown_frees", "unknown_bytes", "ooms")

    def allocators(self):
        """{device: the record of a framework's allocator}."""
        found = {}
        for at in self.records(ALLOCATORS):
            name, device, framework, flags = struct.unpack_from("<IhBB", self.data, at)
            found[device] = dict(zip(self.NAMES, struct.unpack_from("<11Q", self.data, at + 8)))
            found[device].update(name=self.string(name) if name else "", framework=framework, flags=flags)
        return found


class Comparison:
    """What differed, how often, by how much at most."""

    def __init__(self):
        self.points = 0
        self.wrong = {}

    def compare(self, what, ours, theirs):
        if ours != theirs:
            times, worst = self.wrong.get(what, (0, 0))
            self.wrong[what] = times + 1, max(worst, abs(ours - theirs))


def check(recording, torch, mode, comparison):
    comparison.points += 1
    if mode == "async":  # PyTorch asks the driver there, which counts a free when its stream gets to it
        torch.cuda.synchronize()
        comparison.compare("live", recording.totals()[0], torch.cuda.memory_allocated())
        return
    live, count, peak = recording.totals()[:3]
    comparison.compare("live", live, torch.cuda.memory_allocated())
    comparison.compare("peak", peak, torch.cuda.max_memory_allocated())
    allocator = recording.allocators()[0]
    comparison.compare("count", count, torch.cuda.memory_stats()["allocation.all.current"])
    comparison.compare("reserved", recording.held_by("libc10_cuda"), torch.cuda.memory_reserved())
    comparison.compare("mismatches", allocator["mismatches"], 0)


def train(points, mode, seconds):
    """A small transformer, with checks between operations at random places of every step."""
    import torch
    rng = random.Random(7)
    torch.manual_seed(7)
    width, comparison, began = 512, Comparison(), time.monotonic()
    layer = lambda: torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
    model = torch.nn.Sequential(*[layer() for _ in range(4)]).cuda()
    recording = Recording(glob.glob(os.path.join(os.environ["VRAMTRACK_DIR"], "*.vtr"))[0])
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []

    def hook(*_):
        if rng.random() < 0.3 and comparison.points < points:
            check(recording, torch, mode, comparison)

    for module in model.modules():
        module.register_forward_hook(hook)
        if any(True for _ in module.parameters(recurse=False)):
            module.register_full_backward_hook(hook)
    step = 0
    while comparison.points < points and time.monotonic() - began < seconds:
        batch = torch.randn(rng.randint(1, 16), rng.randint(8, 256), width, device="cuda")
        model(batch).square().mean().backward()
        hook()
        optimizer.step()
        hook()
        optimizer.zero_grad(set_to_none=rng.random() < 0.5)
        kept.append(torch.empty(rng.randint(1, 4 << 20), dtype=torch.uint8, device="cuda"))
        if rng.random() < 0.2:
            del kept[rng.randrange(len(kept))]
        if rng.random() < 0.05:
            torch.cuda.empty_cache()
        if mode == "native" and rng.random() < 0.1:  # with expandable segments this takes seconds
            try:
                torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                pass
        hook()
        step += 1
    live, count, peak, allocs, frees = recording.totals()
    wrong = ", ".join("%s %d times by %d at most" % (w, n, by) for w, (n, by) in sorted(comparison.wrong.items()))
    allocator = recording.allocators().get(0, {})
    print("points=%d steps=%d allocations=%d live=%d peak=%d (torch: %d) reserved=%d mismatches=%d ooms=%d torch=%s wrong: %s" % (
        comparison.points, step, allocs, live, peak, torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(), allocator.get("mismatches", 0),
        allocator.get("ooms", 0), torch.__version__, wrong or "nothing"), flush=True)
    os._exit(0 if not wrong and comparison.points >= min(points, 100) else 1)


MODES = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def run(mode, arguments):
    directory = tempfile.mkdtemp(prefix="vt-exact-")
    env = {k: v for k, v in os.environ.items() if not k.startswith("VRAMTRACK_")}
    env.update(LD_PRELOAD=os.path.join(os.path.abspath(arguments.build), "libvramtrack.so"), VRAMTRACK_DIR=directory,
               VRAMTRACK_REPORT="off", PYTORCH_CUDA_ALLOC_CONF=MODES[mode], PYTORCH_ALLOC_CONF=MODES[mode])
    if not MODES[mode]:
        del env["PYTORCH_CUDA_ALLOC_CONF"], env["PYTORCH_ALLOC_CONF"]
    command = [sys.executable, os.path.abspath(__file__), "--train", mode, "--points", str(arguments.points), "--seconds", "15"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    print("%s %-10s %s" % ("FAIL" if done.returncode else "PASS", mode, done.stdout.strip()[-2000:]), flush=True)
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--only", default="", choices=[""] + list(MODES))
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=15, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        return train(arguments.points, arguments.train, arguments.seconds)
    return max(run(mode, arguments) for mode in MODES if arguments.only in mode)


if __name__ == "__main__":
    sys.exit(main())
