#!/usr/bin/env python3
"""Compares what vramtrack records of JAX's buffers with what JAX says itself, at many points of many kinds of programs.

    tests/gpu/jax_exact.py [--build DIR] [--points N] [--only MODE] [--platform NAME]

Runs itself under the library once per mode of XLA's allocator: preallocated, growing, cuda_async. Between operations of
small programs (eager operations, jit, grad, scan, donation, transfers, a training loop) it reads its own recording (the
mapped file) and compares the live bytes and the count of the buffers with jax.live_arrays(), byte by byte. At the end it
compares with memory_stats()["bytes_in_use"], which also has what executables hold: at most 64 MiB of that is let pass.
Prints a line per mode and exits with 1 if one figure differed once. Needs a GPU and jax; 60 seconds.

--platform names another PJRT plugin than CUDA's, for a library that was built to record that one (VT_JAX_PLATFORM).
"""
import argparse
import glob
import os
import random
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from torch_exact import Comparison, Recording  # noqa: E402

PINNED_KIND = 2  # enum vt_kind
UNSEEN = 4  # VT_ALLOCATOR_UNSEEN
SLACK = 64 << 20

MODES = {
    "preallocated": {"XLA_CLIENT_MEM_FRACTION": ".04"},
    "growing": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    "cuda_async": {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_CLIENT_MEM_FRACTION": ".04"},
}


class Programs:
    """Small programs; each yields where the figures may be compared, and holds whatever it likes in self.held."""

    def __init__(self, jax, device, seed):
        self.jax, self.jnp, self.np = jax, __import__("jax.numpy").numpy, __import__("numpy")
        self.device, self.random, self.held = device, random.Random(seed), []
        self.init, self.step = self.trainer()
        self.add = jax.jit(lambda x, y: (x + y, y * 2), donate_argnums=0)
        self.unusable = jax.jit(lambda x: x.sum(), donate_argnums=0)
        self.several = jax.jit(lambda x, n: (x * n, (x + 1, {"sum": x.sum(), "small": x[:1]}), self.jnp.arange(7)))

    def shape(self):  # few, because each costs compilations
        return self.random.choice([(7,), (300, 200), (3, 5, 70000), (1 << 20,), (1, 1)])

    def keep(self, value):
        self.held.append(value)
        while len(self.held) > 40:
            self.held.pop(self.random.randrange(len(self.held)))

    def eager(self):
        x = self.jnp.ones(self.shape(), self.random.choice(["float32", "int8"]))
        yield
        y = x + x
        self.keep(y.sum() if self.random.random() < .5 else y)
        yield
        self.keep([self.jnp.zeros(self.shape()) for _ in range(self.random.randint(1, 5))])
        yield

    def jitted(self):
        x = self.jnp.ones(self.shape())
        for n in range(self.random.randint(1, 4)):
            self.keep(self.several(x, n))
            yield

    def donation(self):
        x, y = self.jnp.ones(self.shape()), self.jnp.float32(3)
        for _ in range(self.random.randint(1, 5)):
            x, z = self.add(x, y)
            yield
        self.keep((x, z))
        yield
        self.keep(self.unusable(self.jnp.ones(self.shape())))
        yield

    def trainer(self):
        jax, jnp = self.jax, self.jnp

        def init(width, layers):
            keys = jax.random.split(jax.random.PRNGKey(width), layers)
            return [(jax.random.normal(k, (width, width)) * .1, jnp.zeros(width)) for k in keys]

        def loss(params, x):
            for w, b in params:
                x = jnp.tanh(x @ w + b)
            return (x ** 2).mean()

        def step(params, moments, x):
            value, grads = jax.value_and_grad(loss)(params, x)
            moments = jax.tree.map(lambda m, g: .9 * m + g, moments, grads)
            return jax.tree.map(lambda p, m: p - .01 * m, params, moments), moments, value

        return init, jax.jit(step, donate_argnums=(0, 1))

    def training(self):
        params = self.init(self.random.choice([8, 200]), self.random.choice([1, 3]))
        moments = self.jax.tree.map(self.jnp.zeros_like, params)
        yield
        losses = []
        for _ in range(self.random.randint(2, 8)):
            x = self.jax.device_put(self.np.ones((16, params[0][0].shape[0]), "float32"), self.device)
            params, moments, loss = self.step(params, moments, x)
            losses.append(loss)
            yield
        self.keep(params)
        yield

    def control(self):
        jax, jnp = self.jax, self.jnp
        n = self.random.choice([3, 50])
        carry, ys = jax.lax.scan(lambda c, x: (c + x, c * x), jnp.float32(0), jnp.arange(n, dtype=jnp.float32))
        yield
        self.keep((carry, ys, jax.vmap(lambda x: x * x)(jnp.ones((n, 10)))))
        yield
        self.keep(jax.lax.fori_loop(0, n, lambda i, x: x + i, jnp.zeros(n)))
        yield
        self.keep(jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum()))(jnp.ones(n)))
        yield

    def transfers(self):
        x = self.jax.device_put(self.np.ones(self.shape()), self.device)
        yield
        host = self.np.asarray(x)
        yield
        self.keep(self.jnp.asarray(host))
        x.delete()
        yield
        self.keep(self.jnp.zeros(9).at[3].set(1.))
        yield
        self.keep(self.jax.random.normal(self.jax.random.PRNGKey(7), self.shape()))
        yield

    def host_memory(self):
        jax = self.jax
        pinned = jax.sharding.SingleDeviceSharding(self.device, memory_kind="pinned_host")
        x = jax.device_put(self.jnp.ones(self.shape()), pinned)
        yield
        self.keep(jax.device_put(x, jax.sharding.SingleDeviceSharding(self.device, memory_kind="device")))
        self.keep(x)
        yield

    def views(self):
        x = self.jnp.ones(self.shape())
        try:
            self.keep((x, self.jnp.from_dlpack(x)))
        except Exception:  # not every version and platform can
            pass
        yield

    def failures(self):
        try:
            self.jnp.ones((1 << 18, 1 << 18))  # 256 GiB
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
        yield

    def all(self):
        kinds = [self.eager, self.jitted, self.donation, self.training, self.control, self.transfers, self.host_memory,
                 self.views]
        while True:
            program = self.random.choice(kinds)
            for _ in program():
                yield program.__name__


def host(array):
    return array.sharding.memory_kind not in (None, "device")


def one_each(arrays):
    """Without arrays that lie where another one lies: from_dlpack gives a second array for the same buffer."""
    found = {}
    for a in arrays:
        try:
            key = a.unsafe_buffer_pointer() if a.nbytes else id(a)
        except Exception:  # not told of every kind of memory
            key = id(a)
        found[key] = a
    return list(found.values())


def expected(jax, platform):
    """Bytes and number of the buffers that JAX says are live: on the device, and in page-locked memory."""
    arrays = [a for a in jax.live_arrays(platform) if not a.is_deleted()]
    on_device, pinned = one_each(a for a in arrays if not host(a)), one_each(a for a in arrays if host(a))
    return sum(a.nbytes for a in on_device), len(on_device), sum(a.nbytes for a in pinned), len(pinned)


def check(recording, jax, platform, comparison, where):
    comparison.points += 1
    device, pinned = recording.totals(), recording.totals(kind=PINNED_KIND, device=-1)
    want = expected(jax, platform)
    have = (device[0], device[1], pinned[0], pinned[1])
    for what, ours, theirs in zip(("live", "count", "pinned", "pinned count"), have, want):
        comparison.compare("%s in %s" % (what, where), ours, theirs)


def settled(jax, device, recording):
    """memory_stats(), when the GPU has finished with what was given back; at most two seconds later."""
    for array in jax.live_arrays(device.platform):
        array.block_until_ready()
    until = time.monotonic() + 2
    while True:
        stats = device.memory_stats() or {}
        if stats.get("bytes_in_use", 0) <= recording.totals()[0] + SLACK or time.monotonic() > until:
            return stats


def own_recording(directory):
    return Recording(glob.glob(os.path.join(directory, "*.%d.*.vtr" % os.getpid()))[0])


def child(mode, points, platform):
    import jax
    import warnings
    warnings.simplefilter("ignore")  # of donated buffers that can't be used
    name = platform or "gpu"
    device = jax.devices(name)[0]
    jax.config.update("jax_default_device", device)
    jax.device_put(1., device).block_until_ready()
    recording, comparison = own_recording(os.environ["VRAMTRACK_DIR"]), Comparison()
    programs = Programs(jax, device, points)
    began, most = time.monotonic(), 22 if mode == next(iter(MODES)) else 9  # seconds: the first one compiles
    for where in programs.all():
        check(recording, jax, name, comparison, where)
        if comparison.points >= points or time.monotonic() - began > most:
            break
    stats = settled(jax, device, recording)
    live = recording.totals()[0]
    if "bytes_in_use" in stats and not live <= stats["bytes_in_use"] <= live + SLACK:
        comparison.compare("bytes_in_use", live, stats["bytes_in_use"])
    if not platform:
        for _ in programs.failures():
            check(recording, jax, name, comparison, "failures")
        comparison.compare("ooms", recording.allocators()[0]["ooms"] > 0, True)
    allocators = recording.allocators()
    comparison.compare("unseen plugins", len([a for a in allocators.values() if a["flags"] & UNSEEN]), 0)
    comparison.compare("unknown frees", sum(a["unknown_frees"] for a in allocators.values()), 0)
    total = recording.totals()
    print("%-13s jax %-8s %4d points  live %12d in %4d  in use %12s  %6d allocations  %s" % (
        mode, jax.__version__, comparison.points, total[0], total[1], stats.get("bytes_in_use"), total[3],
        "FAIL " + "; ".join("%s: %d times, by up to %d" % (k, *v) for k, v in sorted(comparison.wrong.items()))
        if comparison.wrong else "PASS"))
    return 1 if comparison.wrong or comparison.points < min(points, 30) else 0


def passes(a, mode, directory):
    """Runs one mode; what was compiled for the first one serves the others, loaded from a cache."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_PYTHON_CLIENT_", "XLA_CLIENT_", "VRAMTRACK_"))}
    env.update(MODES[mode], VRAMTRACK_DIR=directory, VRAMTRACK_REPORT="off", JAX_COMPILATION_CACHE_DIR=directory,
               JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
               LD_PRELOAD=os.path.abspath(os.path.join(a.build, "libvramtrack.so")))
    command = [sys.executable, os.path.abspath(__file__), "--child", mode, "--points", str(a.points)]
    return subprocess.run(command + (["--platform", a.platform] if a.platform else []), env=env).returncode == 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"))
    p.add_argument("--points", type=int, default=200)
    p.add_argument("--only", choices=sorted(MODES))
    p.add_argument("--platform")
    p.add_argument("--child")
    a = p.parse_args()
    if a.child:
        return child(a.child, a.points, a.platform)
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for mode in MODES:
            if a.only in (None, mode) and not (a.platform and mode != "preallocated"):
                failed |= not passes(a, mode, directory)
    print("FAIL" if failed else "PASS")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
