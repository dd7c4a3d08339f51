"""The line that says what takes so long: on a terminal, after a second, gone at the end; nowhere else."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import unittest

import vt

# A file that takes 1.5 s to open, as on a slow network drive: the command's open() goes through this.
SLOW = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static void wait_for(const char *path)
{
    const char *slow = getenv("TEST_SLOW_FILE");
    struct timespec now, end;
    if (!slow || strcmp(path, slow)) return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += 1;
    end.tv_nsec += 500000000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    do clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL), clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}
#define WRAP(name) int name(const char *path, int flags, ...) \
{ va_list a; va_start(a, flags); int mode = va_arg(a, int); va_end(a); wait_for(path); \
  return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); }
WRAP(open)
WRAP(open64)
"""
PROGRAM = r"""
#include <cuda_runtime_api.h>
static void *__attribute__((noinline)) hold(void) { void *p = 0; return cudaMalloc(&p, 5 << 20) ? 0 : p; }
int main(void) { return hold() == 0; }
"""
SHOWN = re.compile(rb"\rvramtrack: making the report, (\d+) s: (\d+) addresses looked up, now in ([^\x1b]*)\x1b\[K")
ERASED = b"\r\x1b[K"


@unittest.skipIf(vt.SAN, "the command is run under another preloaded library")
class Progress(vt.Case):
    def setUp(self):
        super().setUp()
        self.program = vt.compile(PROGRAM, "-lcudart", name="progress")
        self.slow = vt.compile(SLOW, name="slow", shared=True)

    def record(self):
        done = self.run_program(self.program, VRAMTRACK_REPORT="off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        path, = self.recordings()
        return path

    def run_at_terminal(self, command, stdout, columns=120, **env):
        """Runs with a terminal as standard error; returns the status, what the terminal got, and what a pipe got."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        env = dict(self.environment(preload=False), LD_PRELOAD=self.slow, TEST_SLOW_FILE=self.program, TERM="xterm", **env)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs if stdout == "terminal" else stdout, stderr=theirs, env=env,
                                 start_new_session=True, preexec_fn=lambda: self.take_terminal(2))
        os.close(theirs)
        piped = child.stdout.read() if child.stdout else None
        got = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError: # nobody has the other end any more
                more = b""
            if not more:
                break
            got += more
        os.close(ours)
        return child.wait(), got, piped

    @staticmethod
    def take_terminal(fd):
        """The child's terminal, with the child in its foreground."""
        fcntl.ioctl(fd, termios.TIOCSCTTY, 0)

    def plain_report(self, path):
        return subprocess.run([vt.COMMAND, "report", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def assert_shown_and_gone(self, got):
        """The line, drawn again and again, then erased: nothing of it is left."""
        shown = SHOWN.findall(got)
        self.assertTrue(shown, got)
        seconds, count, name = shown[0]
        self.assertEqual((int(seconds) in (1, 2), int(count) >= 1, name), (True, True, os.path.basename(self.program).encode()), shown)
        rest = SHOWN.sub(b"", got)
        self.assertEqual(rest.count(ERASED), 1)
        self.assertTrue(rest.startswith(ERASED), rest)
        return rest[len(ERASED):]

    def test_output_to_a_file(self):
        path, out = self.record(), os.path.join(self.dir, "report")
        with open(out, "wb") as f:
            status, got, _ = self.run_at_terminal([vt.COMMAND, "report", path], f)
        self.assertEqual(status, 0)
        self.assertEqual(self.assert_shown_and_gone(got), b"")
        with open(out, "rb") as f:
            self.assertEqual(f.read(), self.plain_report(path).stdout)

    def test_narrow_terminal(self):
        """Cut, never wrapped: a line that went on in the next row could not be erased."""
        path, out = self.record(), os.path.join(self.dir, "report")
        with open(out, "wb") as f:
            status, got, _ = self.run_at_terminal([vt.COMMAND, "report", path], f, columns=40)
        self.assertEqual(status, 0)
        lines = got.replace(b"\x1b[K", b"").split(b"\r")
        self.assertEqual((lines[0], lines[-1]), (b"", b""))
        self.assertRegex(lines[1], rb"^vramtrack: making the report, [12] s: \d+ ad$")
        self.assertLess(max(map(len, lines)), 40)

    def test_output_to_the_same_terminal(self):
        """The report comes whole, after the line is gone."""
        path = self.record()
        status, got, _ = self.run_at_terminal([vt.COMMAND, "report", "--colour=never", path], "terminal")
        self.assertEqual(status, 0)
        self.assertEqual(self.assert_shown_and_gone(got).replace(b"\r\n", b"\n"), self.plain_report(path).stdout)

    def test_nothing_when_it_is_quick(self):
        path, out = self.record(), os.path.join(self.dir, "report")
        self.slow = ""
        with open(out, "wb") as f:
            status, got, _ = self.run_at_terminal([vt.COMMAND, "report", path], f)
        self.assertEqual((status, got), (0, b""))

    def test_nothing_for_a_pipe(self):
        """What reads the report may be a pager, which has the terminal for itself."""
        path = self.record()
        status, got, piped = self.run_at_terminal([vt.COMMAND, "report", path], subprocess.PIPE)
        self.assertEqual((status, got), (0, b""))
        self.assertEqual(piped, self.plain_report(path).stdout)

    def test_nothing_on_a_terminal_that_cannot_erase(self):
        path, out = self.record(), os.path.join(self.dir, "report")
        with open(out, "wb") as f:
            env = dict(TERM="dumb")
            ours, theirs = pty.openpty()
            done = subprocess.run([vt.COMMAND, "report", path], stdout=f, stderr=theirs, start_new_session=True,
                                  preexec_fn=lambda: self.take_terminal(theirs),
                                  env=dict(self.environment(preload=False), LD_PRELOAD=self.slow, TEST_SLOW_FILE=self.program, **env))
        self.assertEqual(done.returncode, 0)
        self.assertEqual(select.select([ours], [], [], 0)[0], [])
        os.close(ours)
        os.close(theirs)

    def test_nothing_when_piped(self):
        path = self.record()
        env = dict(self.environment(preload=False), LD_PRELOAD=self.slow, TEST_SLOW_FILE=self.program, TERM="xterm")
        done = subprocess.run([vt.COMMAND, "report", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_run(self):
        """Of the report after the program's end. The library in the program never draws."""
        command = [vt.COMMAND, "run", "-o", self.dir, "--", self.program]
        with open(os.devnull, "wb") as f:
            status, got, _ = self.run_at_terminal(command, f)
        self.assertEqual(status, 0)
        rest = self.assert_shown_and_gone(got)
        self.assertTrue(rest.startswith(b"\x1b") or rest.startswith(b"vramtrack: peak 5.00 MiB on GPU 0"), rest)
        self.assertIn(b"5.00 MiB still allocated", rest)
        for path in self.recordings():
            os.unlink(path)
        with open(os.devnull, "wb") as f:
            status, got, _ = self.run_at_terminal(command[:2] + ["-q"] + command[2:], f)
        self.assertEqual((status, got), (0, b""))
