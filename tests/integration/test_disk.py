"""A disk that is missing, full, read-only or tampered with: one warning, the program unaffected, the OOM report all the same."""
import glob
import os
import resource
import shutil
import socket
import subprocess
import time
import unittest

import vt

STEPS = ["hold=20000", "oom", "end=3"]


def can(*command):
    return shutil.which(command[0]) and subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


# Root needs no user namespace for a mount of its own, and can't have one in a chroot.
UNSHARE = ["unshare", "-m"] if can("unshare", "-m", "true") else ["unshare", "-rm"]
MOUNTS = can(*UNSHARE, "sh", "-c", "mount -t tmpfs none /mnt")
# Root without the right to ignore permissions: an ordinary user might not reach the build directory.
OBEDIENT = [] if os.getuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
OBEYS = not OBEDIENT or can(*OBEDIENT, "test", "-r", vt.LIBRARY)


class Disk(vt.Case):
    def program(self, *steps):
        return [vt.compile("scale_steps.c", "-lcuda")] + list(steps or STEPS)

    def check(self, done, words, recording=None):
        """Exactly one warning besides the OOM report, which names the failure and the holder."""
        self.assertEqual((done.returncode, done.stdout), (3, "2\n"), done.stderr)
        lines = done.stderr.splitlines()
        start = [i for i, line in enumerate(lines) if line.startswith("vramtrack: out of memory")]
        self.assertEqual(len(start), 1, done.stderr)
        warnings, report = lines[:start[0]], lines[start[0]:]
        self.assertEqual(len(warnings), 1, done.stderr)
        self.assertTrue(warnings[0].startswith("vramtrack: "), warnings)
        for word in words:
            self.assertIn(word, warnings[0])
        self.assertIn("4.00 TiB", report[0])
        self.assertLessEqual(len(report), 25)
        self.assertTrue(any("78.12 MiB in 20000  hold_memory (" in line for line in report), report)
        self.assertEqual(any("no recording could be written" in line for line in report), recording is None)
        if recording:
            self.assertTrue(any(recording in line for line in report), report)

    def run_steps(self, directory=None, prefix=(), **options):
        return self.run_program(list(prefix) + self.program(), VRAMTRACK_DIR=directory or self.dir, VRAMTRACK_REPORT="oom", **options)

    def in_tmpfs(self, options, also="true"):
        """Runs it with a small file system as the directory; what is in there afterwards is copied to `kept`."""
        place, kept = os.path.join(self.dir, "small"), os.path.join(self.dir, "kept")
        os.mkdir(place)
        os.mkdir(kept)
        script = 'mount -t tmpfs -o %s none "$0" && { %s; } || exit 70; "$@"; s=$?; cp "$0"/* %s 2>/dev/null; exit $s' % (options, also, kept)
        # The shells must not be under the library: LD_PRELOAD reaches the program only.
        env = self.environment(VRAMTRACK_DIR=place, VRAMTRACK_REPORT="oom")
        inner = ["env", "LD_PRELOAD=" + env.pop("LD_PRELOAD")] + self.program()
        done = subprocess.run(UNSHARE + ["sh", "-c", script, place] + inner, env=env, cwd=self.dir,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        return done, place, kept

    def test_missing_directory(self):
        missing = os.path.join(self.dir, "no", "where")
        self.check(self.run_steps(missing), [missing, "No such file or directory", "VRAMTRACK_DIR"])
        self.assertEqual(os.listdir(self.dir), [])

    def test_directory_that_takes_no_files(self):
        self.check(self.run_steps("/proc/self"), ["/proc/self: ", "VRAMTRACK_DIR"])

    def test_figures_under_run_without_a_file(self):
        """The command has nothing to report from then: what the library counted in memory is said by the library."""
        env = self.environment()
        env.pop("LD_PRELOAD", None)
        done = subprocess.run([vt.COMMAND, "run", "-o", "/proc/self", "--"] + self.program("hold=2000", "end=3"), env=env, cwd=self.dir,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("peak 7.81 MiB on GPU 0", done.stderr)
        self.assertNotIn("nothing was allocated", done.stderr)

    def test_warnings_are_plain_text(self):
        done = subprocess.run(self.program("hold=1", "end=3"), env=self.environment(VRAMTRACK_EVENTS="\x1b[31mx\x7f\x9by\u20ac", VRAMTRACK_REPORT="off"),
                              cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("VRAMTRACK_EVENTS=?[31mx???y\u20ac", done.stderr.decode())

    def test_not_a_directory(self):
        path = os.path.join(self.dir, "file")
        with open(path, "w") as f:
            f.write("mine")
        self.check(self.run_steps(path), ["Not a directory"])
        self.assertEqual(open(path).read(), "mine")

    @unittest.skipUnless(OBEYS, "permissions do not bind this user")
    def test_directory_without_permission(self):
        place = os.path.join(self.dir, "closed")
        os.mkdir(place, 0o555)
        done = self.run_steps(place, prefix=OBEDIENT)
        self.check(done, [place, "Permission denied"])
        self.assertEqual(os.listdir(place), [])

    @unittest.skipUnless(MOUNTS, "can't mount a tmpfs")
    def test_read_only_file_system(self):
        done, place, kept = self.in_tmpfs("size=1m", also='mount -o remount,ro "$0"')
        self.check(done, [place, "Read-only file system"])
        self.assertEqual(os.listdir(kept), [])

    @unittest.skipUnless(MOUNTS, "can't mount a tmpfs")
    def test_full_at_the_start(self):
        done, place, kept = self.in_tmpfs("size=4k")
        self.check(done, [place, "No space left on device"])
        self.assertEqual(os.listdir(kept), [])

    @unittest.skipUnless(MOUNTS, "can't mount a tmpfs")
    def test_full_in_the_middle(self):
        """What there was room for is in the file, exact totals among it, and the file says what it lacks."""
        for size in ("100k", "400k", "900k", "1500k"):
            with self.subTest(size):
                self.setUp()
                done, place, kept = self.in_tmpfs("size=" + size)
                self.check(done, ["can't grow", "No space left on device", place], recording=place)
                path, = glob.glob(os.path.join(kept, "*.vtr"))
                report = self.report(path)
                total = self.total(report, "device", device=0)
                if total["alloc_calls"]: # the extent of the totals is one of the first
                    self.assertEqual((total["live_count"], total["live_bytes"], total["failed_allocs"]), (20000, 20000 * 4096, 1))
                text = subprocess.run([vt.COMMAND, "report", path], stdout=subprocess.PIPE, text=True)
                self.assertEqual(text.returncode, 0)
                self.assertRegex(text.stdout.lower(), "disk|space")

    def test_file_size_limit(self):
        """RLIMIT_FSIZE would kill the program with SIGXFSZ if the recording grew beyond it."""
        for limit in (4096, 65536, 1 << 20):
            with self.subTest(limit):
                self.setUp()
                done = subprocess.run(self.program(), env=self.environment(VRAMTRACK_REPORT="oom"), stdout=subprocess.PIPE, timeout=120,
                                      stderr=subprocess.PIPE, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                found = self.recordings()
                self.check(done, ["File too large"], recording=found[0] if found else None)
                self.assertEqual(len(found), limit > 8192)
                for path in found:
                    self.assertLessEqual(os.path.getsize(path), limit)

    def test_file_size_limit_and_the_text_report(self):
        """The full text of many sites is longer than a file may be."""
        limit = 12288
        done = subprocess.run(self.program("sites=500", "oom", "end=3"), env=self.environment(), text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual((done.returncode, done.stdout), (3, "2\n"), done.stderr)
        for name in os.listdir(self.dir):
            self.assertLessEqual(os.path.getsize(os.path.join(self.dir, name)), limit)

    def start_known(self, *steps):
        """A process whose pid is known before its recording is made: it waits, as a shell, to be told to go on."""
        env = self.environment(VRAMTRACK_REPORT="oom")
        inner = "LD_PRELOAD=" + env.pop("LD_PRELOAD")
        process = subprocess.Popen(["sh", "-c", 'echo up; read go; exec env "$@"', "sh", inner] + self.program(*steps),
                                   env=env, cwd=self.dir, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "up\n")
        return process

    def occupy(self, process, make):
        """Calls make(i, name) for every name that a recording could get that is begun in the two seconds after this returns.
        The names hold the time, and making thousands of files may take longer than they last: it is done ahead."""
        stem = os.path.join(self.dir, "vramtrack.%s.%s.%d." % (os.path.basename(self.program()[0]),
                                                               socket.gethostname()[:63] or "localhost", process.pid))
        ahead = 1.5
        while True:
            start = time.time() + ahead
            names = [stem + "%d.vtr" % (int(start * 1000) + i) for i in range(2000)]
            for i, name in enumerate(names):
                make(i, name)
            if time.time() < start:
                time.sleep(start - time.time())
                return names
            for name in filter(os.path.lexists, names):
                os.remove(name)
            ahead *= 3

    def finish(self, process):
        out, err = process.communicate("go\n", timeout=120)
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def test_symbolic_links_in_its_place(self):
        process = self.start_known()
        victim = os.path.join(self.dir, "victim")
        with open(victim, "w") as f:
            f.write("precious")
        names = self.occupy(process, lambda i, name: os.symlink(victim if i % 2 else os.path.join(self.dir, "dangling"), name))
        done = self.finish(process)
        self.check(done, ["File exists"])
        self.assertEqual(open(victim).read(), "precious")
        self.assertFalse(os.path.exists(os.path.join(self.dir, "dangling")))
        self.assertTrue(all(os.path.islink(n) for n in names))

    def test_existing_files_are_not_overwritten(self):
        process = self.start_known()

        def take(i, name):
            if i % 50:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        taken = [n for i, n in enumerate(self.occupy(process, take)) if i % 50]
        done = self.finish(process)
        self.assertEqual((done.returncode, done.stdout), (3, "2\n"), done.stderr)
        self.assertTrue(all(os.path.getsize(n) == 0 for n in taken))
        path, = set(self.recordings()) - set(taken)
        self.assertEqual(self.total(self.report(path), "device")["live_count"], 20000)

    def tampered(self, tamper):
        """The recording's path leads elsewhere, or nowhere, when the recording has to grow."""
        process = self.start_program(self.program("hold=10", "wait", "hold=19990", "oom", "end=3"), VRAMTRACK_REPORT="oom")
        self.assertEqual(process.stdout.readline(), "ready\n")
        path, = self.recordings()
        tamper(path)
        done = self.finish(process)
        return done, path

    def test_deleted_while_running(self):
        done, path = self.tampered(os.unlink)
        self.check(done, ["can't grow", path, "No such file or directory"], recording=path)
        self.assertEqual(self.recordings(), [])

    def test_replaced_while_running(self):
        def replace(path):
            os.unlink(path)
            with open(path, "w") as f:
                f.write("somebody else's")
        done, path = self.tampered(replace)
        self.check(done, ["can't grow", path], recording=path)
        self.assertEqual(open(path).read(), "somebody else's")

    def test_replaced_by_a_symbolic_link(self):
        victim = os.path.join(self.dir, "victim")

        def replace(path):
            os.rename(path, victim + ".moved")
            with open(victim, "w") as f:
                f.write("precious")
            os.symlink(victim, path)
        done, path = self.tampered(replace)
        self.check(done, ["can't grow", path], recording=path)
        self.assertEqual(open(victim).read(), "precious")
        self.assertEqual(self.total(self.report(victim + ".moved"), "device")["live_count"], 20000)

    def test_private_to_its_owner(self):
        done = self.run_steps()
        self.assertEqual(done.returncode, 3)
        for path in self.recordings() + glob.glob(os.path.join(self.dir, "*.txt")):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600, path)
