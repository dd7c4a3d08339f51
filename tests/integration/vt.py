"""What every integration test needs: programs built against the simulated GPU, run under the library, reports read back.

The environment comes from scripts/check: BUILD, CC, CXX, SAN, SAN_PRELOAD, CUDA_INCLUDE. A test is a unittest.TestCase in
a test_*.py beside this file; derive from Case, which gives each test a directory of its own that is removed afterwards.
"""
import glob
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.realpath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
CC, CXX = os.environ.get("CC", "gcc"), os.environ.get("CXX", "g++")
SAN, SAN_PRELOAD = os.environ.get("SAN", ""), os.environ.get("SAN_PRELOAD", "")
CUDA_INCLUDE = os.environ.get("CUDA_INCLUDE", "/usr/local/cuda/include")
LIBRARY, COMMAND, SIM = (os.path.join(BUILD, n) for n in ("libvramtrack.so", "vramtrack", "sim"))
WORK = os.path.join(BUILD, "integration")
HEADERS = sorted(glob.glob(os.path.join(ROOT, "include", "vramtrack", "*.h")))
SAN_FLAGS = {"asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}.get(SAN, [])


def compile(source, *flags, name=None, shared=False, sanitize=False):
    """Builds a program (or with shared=True a library) from a file beside this one or from C/C++ text; returns its path.

    The result is kept in BUILD/integration and built again only if source, flags or our public headers differ. -lcuda, -lcudart and
    -l:libcudart_static.a find the simulated ones.
    """
    os.makedirs(WORK, exist_ok=True)
    path = os.path.join(HERE, source)
    text = open(path).read() if os.path.exists(path) else source
    cplus = source.endswith((".cpp", ".cc")) or text.startswith("// c++")
    command = [CXX if cplus else CC, "-g", "-Wall", "-I", CUDA_INCLUDE, "-I", HERE, "-I", os.path.join(ROOT, "include"), "-I",
               os.path.join(ROOT, "tests", "sim"), "-D_GNU_SOURCE"] + (SAN_FLAGS if sanitize else [])
    command += ["-std=gnu++17"] if cplus else ["-std=gnu11"]
    command += ["-shared", "-fPIC"] if shared else []
    key = hashlib.sha1("\0".join([text] + command + list(flags) + [open(h).read() for h in HEADERS]).encode()).hexdigest()[:12]
    stem = name or os.path.splitext(os.path.basename(source))[0] if os.path.exists(path) else name or "program"
    out = os.path.join(WORK, "%s-%s%s" % (stem, key, ".so" if shared else ""))
    if not os.path.exists(out):
        file, new = out + (".cpp" if cplus else ".c"), "%s.%d" % (out, os.getpid())  # another test may build the same just now
        with open(new + ".text", "w") as f:
            f.write(text)
        os.rename(new + ".text", file)
        done = subprocess.run(command + ["-o", new, file, "-L", SIM, "-Wl,-rpath," + SIM] + list(flags) + ["-ldl", "-lpthread"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise AssertionError("does not build: %s\n%s" % (" ".join(command), done.stdout))
        os.rename(new, out)
    return out


def place(path, directory, name):
    """A copy of a library under the name that matters, whole at any time: other tests may be using it. Returns its path."""
    os.makedirs(directory, exist_ok=True)
    target = os.path.join(directory, name)
    new = "%s.%d" % (target, os.getpid())
    shutil.copy(path, new)
    os.rename(new, target)
    return target


class Case(unittest.TestCase):
    """One test with a directory of its own: self.dir, which is where recordings go."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="vt-test-")
        self.addCleanup(shutil.rmtree, self.dir, True)

    def environment(self, preload=True, **more):
        """The environment of a program under test. preload may be a list of libraries in LD_PRELOAD order."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("VRAMTRACK_", "SIM_", "LD_PRELOAD"))}
        libraries = [LIBRARY] if preload is True else list(preload or [])
        if preload and SAN_PRELOAD:
            libraries.insert(0, SAN_PRELOAD)
        if libraries:
            env["LD_PRELOAD"] = ":".join(libraries)
        env.update(VRAMTRACK_DIR=self.dir, LD_LIBRARY_PATH=SIM)
        env.update({k: str(v) for k, v in more.items()})
        return env

    def run_program(self, command, preload=True, timeout=120, input=None, cwd=None, **env):
        """Runs to the end; .returncode, .stdout, .stderr are text."""
        return subprocess.run([command] if isinstance(command, str) else command, env=self.environment(preload, **env),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, text=True, errors="replace",
                              input=input, cwd=cwd or self.dir)

    def start_program(self, command, preload=True, cwd=None, stdout=subprocess.PIPE, **env):
        """As run_program, but returns the running process."""
        return subprocess.Popen([command] if isinstance(command, str) else command, env=self.environment(preload, **env),
                                stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=cwd or self.dir)

    def recordings(self):
        return sorted(glob.glob(os.path.join(self.dir, "*.vtr")))

    def report(self, path=None, moment=None):
        """The JSON report of a recording (default: the only one there is)."""
        if path is None:
            found = self.recordings()
            self.assertEqual(len(found), 1, "recordings: %s" % found)
            path = found[0]
        done = subprocess.run([COMMAND, "report", path, "--json"] + (["--moment", moment] if moment else []),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def total(self, report, kind, level="driver", device=None):
        """The totals of one kind, added up over devices unless one is named; zeros if there is no such row."""
        keys = ("live_bytes", "live_count", "peak_bytes", "requested_bytes", "alloc_calls", "free_calls", "failed_allocs", "failed_frees")
        rows = [t for t in report["totals"] if t["kind"] == kind and t["level"] == level and device in (None, t["device"])]
        return {k: sum(r[k] for r in rows) for k in keys}

    def sites_in(self, report, function):
        """The sites whose stack has a frame in this function."""
        return [s for s in report["sites"] if any((f["function"] or "").split("(")[0] == function for f in s["frames"])]

    def assert_silent(self, command, **options):
        """The program behaves the same with and without the library, prints the same, and leaves no file."""
        bare, under = self.run_program(command, preload=False, **options), self.run_program(command, **options)
        self.assertEqual((under.returncode, under.stdout, under.stderr), (bare.returncode, bare.stdout, bare.stderr))
        self.assertEqual(os.listdir(self.dir), [])
