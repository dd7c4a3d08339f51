"""What the tests of `vramtrack top` and `vramtrack snapshot` share: a program that does what it is told, and a terminal."""
import os
import re
import struct
import subprocess
import tempfile
import time

import vt

LIMIT = 60.0  # seconds that anything is waited for
HEADER = {"major": (8, "<H"), "minor": (10, "<H"), "pid": (40, "<i"), "flags": (224, "<I"), "request": (368, "<I"), "answer": (372, "<I"),
          "answer_moment": (376, "<I")}  # struct vt_header of vramtrack/recording.h
KEYS = r"^q quit  s sort  / filter  space freeze  m moment  enter stack  h help$"
NAME, NAME_BYTES = 384, 32  # request_name
PROGRAM, PROGRAM_BYTES = 144, 64


def wait_for(look, what):
    """The first true answer of look(). Nothing is taken for granted after a time: what is waited for must be seen."""
    until = time.monotonic() + LIMIT
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > until:
            raise AssertionError("waited in vain for " + (what() if callable(what) else what))
        time.sleep(0.01)


class Header:
    """Fields of a recording's header, as they are in the file."""

    def __init__(self, path):
        self.path = path

    def get(self, field):
        at, form = HEADER[field]
        with open(self.path, "rb") as f:
            f.seek(at)
            return struct.unpack(form, f.read(struct.calcsize(form)))[0]

    def put(self, field, value):
        at, form = HEADER[field]
        self.write(at, struct.pack(form, value))

    def write(self, at, data):
        with open(self.path, "r+b") as f:
            f.seek(at)
            f.write(data)


class Program:
    """top_program.c under the recorder."""

    def __init__(self, case, **environment):
        self.case = case
        path = vt.compile("top_program.c", "-lcudart")
        self.process = case.start_program(path, VRAMTRACK_REPORT="off", **environment)
        case.addCleanup(self.end)
        self.pid = self.process.pid

    def tell(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            self.case.assertEqual(self.process.stdout.readline(), "ok\n")

    def say(self, line):
        """Without waiting for an answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def recording(self):
        found = [r for r in self.case.recordings() if ".%d." % self.pid in r]
        self.case.assertEqual(len(found), 1, found)
        return found[0]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except OSError:
                pass
        self.process.wait()


class Case(vt.Case):
    def command(self, *arguments, **more):
        return subprocess.run([vt.COMMAND] + [str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", timeout=LIMIT, **more)

    def fails(self, pattern, *arguments, **more):
        """Exit status 2, nothing on standard output, one line on standard error that matches."""
        done = self.command(*arguments, **more)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
        self.assertRegex(done.stderr, "^vramtrack %s: .*%s" % (arguments[0], pattern))
        return done.stderr

    def dead_copy(self, recording, change=None):
        """A copy of a recording, changed by change(header)."""
        path = os.path.join(self.dir, "copy.vtr.tmp")
        with open(recording, "rb") as source, open(path, "wb") as to:
            to.write(source.read())
        if change:
            change(Header(path))
        return path


class Terminal:
    """A terminal of its own in tmux, on a server of its own."""

    def __init__(self, case, command, width=80, height=24, locale="C.UTF-8", after=""):
        self.directory = tempfile.mkdtemp(prefix="vt-tmux-")
        self.case, self.socket = case, os.path.join(self.directory, "s")
        case.addCleanup(self.end)
        environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "LD_LIBRARY_PATH", "LD_PRELOAD", "NO_COLOR")}
        environment.update(LC_ALL="C.UTF-8", SHELL="/bin/sh")
        # What the terminal is like before and after, and a last line that stays until the server goes (which it
        # does by itself where a test was killed).
        script = ('stty -a >"%s/before"; export LC_ALL=%s; %s %s; %s echo "status $?"; stty -a >"%s/after"; echo over; exec sleep 600'
                  % (self.directory, locale, "set -m;" if after else "", command, after + ";" if after else "", self.directory))
        done = subprocess.run(["tmux", "-u", "-S", self.socket, "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), script],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        case.assertEqual(done.returncode, 0, done.stdout)

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-S", self.socket] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        self.case.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def text(self):
        """The screen; what wraps is one line."""
        return self.tmux("capture-pane", "-p", "-J")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def resize(self, width, height):
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def see(self, *patterns):
        """The screen, once it matches all patterns."""
        def look():
            screen = self.screen()
            return screen if all(re.search(p, screen, re.M) for p in patterns) else None
        return wait_for(look, lambda: "%s on the screen:\n%s" % (patterns, self.screen()))

    def child(self):
        """The process id of the command."""
        shell = int(self.tmux("display-message", "-p", "#{pane_pid}"))
        def look():
            for task in os.listdir("/proc/%d/task" % shell):
                children = open("/proc/%d/task/%s/children" % (shell, task)).read().split()
                for child in children:
                    if os.readlink("/proc/%s/exe" % child) == vt.COMMAND:
                        return int(child)
        return wait_for(look, "the command to start")

    def over(self, status):
        """The command has ended with this status, and has left the terminal as it was."""
        self.see("^over$")
        self.case.assertRegex(self.screen(), "(?m)^status %d$" % status)
        state = self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{keypad_cursor_flag} #{mouse_any_flag}").strip()
        self.case.assertEqual(state, "0 1 0 0")
        before, after = (re.sub(r"rows \d+; columns \d+", "", open(os.path.join(self.directory, n)).read()) for n in ("before", "after"))
        self.case.assertEqual(after, before)

    def end(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in os.listdir(self.directory):
            os.unlink(os.path.join(self.directory, name))
        os.rmdir(self.directory)


class Top(Case):
    """A program that has done some things, and the view of it."""

    def begin(self, *lines, **environment):
        program = Program(self, **environment)
        program.tell(*lines)
        return program

    def top(self, *arguments, width=80, height=24, locale="C.UTF-8", after=""):
        return Terminal(self, "'%s' top --interval 0.1 %s" % (vt.COMMAND, " ".join("'%s'" % a for a in arguments)), width, height, locale, after)

    def places(self, screen):
        """(live, function that called make()) of the lines of a list, from above."""
        return [(m.group(1), m.group(2)) for m in re.finditer(r"^ *([\d.]+ \w+) +[\d.]+% .*make \([^)]*\) < (\w+)", screen, re.M)]
