"""vramtrack top on a terminal (tmux): what the screen shows, what keys do, and how it ends."""
import os
import re
import signal
import unittest

import top_case
import vt
from top_case import KEYS, Top, wait_for

MIB = 1 << 20


class Screen(Top):
    def test_sizes(self):
        program = self.begin("grow 2048", "grow 1024", "keep 512", "step", "step")
        for width, height in ((80, 24), (200, 50)):
            with self.subTest(width=width):
                screen = self.top(program.pid, width=width, height=height).see(KEYS, "^   3.00 MiB  85.7%       2       0 ")
                lines = screen.split("\n")[:height]
                self.assertEqual(len(lines), height)
                self.assertLessEqual(max(len(l) for l in lines), width)
                self.assertRegex(lines[0], r"^top_program-\w+  pid %d on \S+  running [\d.]+ s  step 2$" % program.pid)
                self.assertRegex(lines[1], r"^GPU 0 Simulated GPU  used \d+\.\d+ MiB of 16.00 GiB$")
                self.assertEqual(lines[2], "      driver 3.50 MiB (peak 3.50 MiB)")
                self.assertRegex(lines[3], r"^       LIVE  SHARE   COUNT ALLOC/S .*PLACE \(by live\)$")
                self.assertRegex(lines[4], r"^   3.00 MiB  85.7%       2 +0 .*make \(top_program-\w+.c:\d+\) < g")
                self.assertRegex(lines[5], r"^ 512.00 KiB  14.3%       1 +0 .*make \(top_program-\w+.c:\d+\) < k")
                self.assertEqual("".join(lines[6:-1]), "")
                if width == 200:
                    self.assertRegex(lines[4], r"  3.00 MiB  device +make \(top_program-\w+.c:\d+\) < grow \(top_program-\w+.c:\d+\)$")

    def test_growth(self):
        for locale, up, down in (("C.UTF-8", "\u2191", "\u2193"), ("C", r"\+", "-")):
            with self.subTest(locale=locale):
                program = self.begin("grow 1024", "keep 1024")
                terminal = self.top(program.pid, width=160, height=20, locale=locale)
                terminal.see(r"^   1.00 MiB  50.0% .* < grow ")
                program.tell("grow 2048")
                terminal.see(r"^   3.00 MiB  75.0%       2 +[\d.]+ +2.00 MiB" + up + " .* < grow ", r"^   1.00 MiB  25.0%       1 +0  .* < keep ")
                terminal.see(r"^   3.00 MiB  75.0%       2 +0 +3.00 MiB  device .* < grow ")  # nothing new for some refreshes
                program.tell("drop")
                terminal.see(r"^   1.00 MiB  50.0%       1 +0 +2.00 MiB" + down + " .* < grow ")
                terminal.keys("q")
                terminal.over(0)

    def test_failures(self):
        program = self.begin("grow 1024", "fail", "fail")
        self.top(program.pid).see(r"^OUT OF MEMORY 2 times, the newest [\d.]+ s ago$")

    def test_resize(self):
        program = self.begin("grow 1024")
        terminal = self.top(program.pid)
        self.assertNotIn("AT PEAK", terminal.see(KEYS))
        terminal.resize(150, 40)
        lines = terminal.see("AT PEAK", KEYS).split("\n")
        self.assertRegex(lines[39], KEYS)
        terminal.resize(60, 10)
        lines = wait_for(lambda: [l for l in [terminal.screen().split("\n")] if l[9].startswith("q quit  s sort")], terminal.screen)[0]
        self.assertLessEqual(max(len(l) for l in lines), 60)
        terminal.keys("q")
        terminal.over(0)

    def test_too_small(self):
        program = self.begin("grow 1024", "keep 512")
        terminal = self.top(program.pid, width=60, height=6)
        terminal.see("^q quit  s sort", "^   1.00 MiB .*  make ", "^ 512.00 KiB .*  make ")
        for width, height in ((59, 6), (60, 5), (20, 5)):
            terminal.resize(width, height)
            lines = wait_for(lambda: [l for l in [terminal.screen().split("\n")[:height]] if l[:2] == ["too small:", "at least 60x6"]],
                             terminal.screen)[0]
            self.assertEqual("".join(lines[2:]).strip(), "")
        terminal.resize(80, 24)
        terminal.see(KEYS)
        terminal.keys("q")
        terminal.over(0)

    def test_hostile_names(self):
        """What a terminal would act on is shown, and wide characters don't push the line over its end."""
        program = self.begin("grow 1024")
        name = "\x1b[31m\x9b\u202e".encode() + b"\xff" + "\u6f22\u5b57".encode()
        copy = self.dead_copy(program.recording(), lambda h: h.write(top_case.PROGRAM, name.ljust(top_case.PROGRAM_BYTES, b"\0")))
        done = self.command("top", "--once", copy, env=dict(os.environ, LC_ALL="C.UTF-8", COLUMNS="80"))
        self.assertTrue(done.stdout.startswith("\\x1b[31m\\xc2\\x9b\\xe2\\x80"), done.stdout)
        self.assertNotIn("\x1b", done.stdout)
        literal = self.dead_copy(program.recording(), lambda h: h.write(top_case.PROGRAM, b"a\\x41\\y".ljust(top_case.PROGRAM_BYTES, b"\0")))
        self.assertTrue(self.command("top", "--once", literal).stdout.startswith("a\\x5cx41\\y  pid "))  # as in a report
        self.assertIn("GPU memory of a\\x5cx41\\y (pid ", self.command("report", literal).stdout)
        short = self.dead_copy(program.recording(), lambda h: h.write(top_case.PROGRAM, "\u6f22\u5b57".encode().ljust(top_case.PROGRAM_BYTES, b"\0")))
        for locale, shown in (("C.UTF-8", "\u6f22\u5b57"), ("C", "??")):
            done = self.command("top", "--once", short, env=dict(os.environ, LC_ALL=locale, COLUMNS="80"))
            self.assertEqual(done.stdout.split("  pid")[0], shown)


class Keys(Top):
    def setUp(self):
        super().setUp()
        self.program = self.begin("grow 8192", "drop", "grow 1024", "keep 2048", "many 20")
        self.terminal = self.top(self.program.pid, width=120, height=30)
        self.terminal.see(KEYS)

    def see_order(self, heading, *functions):
        def look():
            screen = self.terminal.screen()
            return "PLACE (by %s)" % heading in screen and tuple(p[1] for p in self.places(screen))[:len(functions)] == functions
        wait_for(look, lambda: "%s, %s on the screen:\n%s" % (heading, functions, self.terminal.screen()))

    def test_sort(self):
        self.see_order("live", "keep", "grow", "many")
        self.terminal.keys("s")
        self.see_order("at peak", "grow", "keep", "many")
        self.terminal.keys("s")
        self.program.tell("many 30")
        self.see_order("rate", "many")
        self.terminal.keys("s")
        self.see_order("count", "many", "keep", "grow")
        self.terminal.keys("s")
        self.see_order("live", "keep", "grow", "many")

    def test_filter(self):
        self.terminal.keys("/")
        self.terminal.see("^filter: _$")
        self.terminal.type("KEEX")
        self.terminal.keys("BSpace")
        self.terminal.type("P (")
        self.terminal.see(r"^filter: KEEP \(_$")
        self.terminal.keys("Enter")
        screen = self.terminal.see(r'PLACE \(by live\) with "KEEP \("$')
        self.assertEqual(self.places(screen), [("2.00 MiB", "keep")])
        self.terminal.keys("/")
        self.terminal.type("x" * 110 + " the end")
        self.terminal.see(r"^filter: \.\.\.x+ the end_$")  # where the cursor is
        self.terminal.keys("C-u")
        self.terminal.see("^filter: _$")
        self.terminal.type("nowhere")
        self.terminal.keys("Escape")  # as it was
        screen = self.terminal.see(KEYS)
        self.assertEqual(self.places(screen), [("2.00 MiB", "keep")])
        self.terminal.keys("/")
        self.terminal.type(" nowhere")
        self.terminal.keys("Enter")
        self.terminal.see("^  no place has this in its name$")
        self.terminal.keys("/", "C-h")
        for _ in range(20):
            self.terminal.keys("BSpace")
        self.terminal.keys("Enter")
        screen = self.terminal.see(r"PLACE \(by live\)$")
        self.assertEqual(len(self.places(screen)), 3)

    def test_freeze(self):
        self.terminal.keys("Space")
        frozen = self.terminal.see("^FROZEN  q quit .* space go on ")
        self.program.tell("keep 6144")
        other = self.top(self.program.pid)
        other.see(r"^   8.00 MiB ")  # some refreshes later
        self.assertEqual(self.terminal.screen(), frozen)
        self.terminal.keys("f")
        self.terminal.see(r"^   8.00 MiB .* keep ", KEYS)

    def test_stack(self):
        self.terminal.keys("Down", "Enter")  # the second one
        screen = self.terminal.see("^esc back ")
        lines = screen.split("\n")
        self.assertRegex(lines[1], r"^#\d+  device on GPU 0 by cudaMalloc$")
        self.assertEqual(lines[2], "  live 1.00 MiB in 1, at the peak 8.00 MiB, own peak 8.00 MiB")
        self.assertEqual(lines[3], "  2 allocated, 1 freed")
        self.assertEqual([re.match(r"  (\w+) \(top_program-\w+\.c:\d+\)$", l).group(1) for l in lines[4:8]], ["make", "grow", "obey", "main"])
        self.terminal.keys("Escape")
        self.terminal.see(KEYS)

    def test_help(self):
        self.terminal.keys("h")
        self.terminal.see("^  space, f   freeze", "^any key: back$")
        self.terminal.keys("x")
        self.terminal.see(KEYS)
        self.terminal.resize(80, 8)
        self.terminal.keys("h")
        self.assertRegex(self.terminal.see("^arrows scroll  any other key: back$"), "^vramtrack top\n")
        self.terminal.keys("Down")
        self.terminal.see(r"\A\n  q          quit")
        self.terminal.keys("End")
        self.terminal.see("^  Tensors stand for the segments", "^arrows scroll")
        self.terminal.keys("Escape")
        self.terminal.see("^q quit  s sort")

    def test_moment(self):
        self.terminal.keys("m")
        self.terminal.see(r"^name of the moment \(empty: snapshot-1, \.\.\.\): _$")
        self.terminal.type("from top")
        self.terminal.keys("Enter")
        self.terminal.see("^moment asked for: the next CUDA call takes it$")
        self.program.tell("drop")
        self.terminal.see('^moment "from top" taken$')
        at = self.report(self.program.recording(), "from top")
        self.assertEqual(self.total(at, "device")["live_bytes"], 3 * MIB + 20 * 4096)
        self.terminal.keys("m", "Enter")
        self.terminal.see("^moment asked for")
        self.program.tell("step")
        self.terminal.see('^moment "snapshot-1" taken$')

    def test_scrolling(self):
        self.program.tell("keep 4", "grow 4")
        self.terminal.resize(120, 8)
        self.terminal.see(KEYS)
        self.terminal.keys("End")
        wait_for(lambda: self.places(self.terminal.screen())[-1:] == [("80.00 KiB", "many")], self.terminal.screen)
        self.terminal.keys("Home")
        wait_for(lambda: self.places(self.terminal.screen())[:1] == [("2.00 MiB", "keep")], self.terminal.screen)


class Ends(Top):
    def test_quit(self):
        program = self.begin("grow 1024")
        terminal = self.top(program.pid)
        terminal.see(KEYS)
        terminal.keys("q")
        terminal.over(0)
        self.assertIsNone(program.process.poll())

    def test_signals(self):
        program = self.begin("grow 1024")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number.name):
                terminal = self.top(program.pid)
                terminal.see(KEYS)
                os.kill(terminal.child(), number)
                terminal.over(128 + number)

    def test_crash(self):
        program = self.begin("grow 1024")
        terminal = self.top(program.pid)
        terminal.see(KEYS)
        os.kill(terminal.child(), signal.SIGSEGV)
        terminal.over(128 + signal.SIGSEGV)

    def test_process_is_killed(self):
        for width, height in ((80, 24), (200, 50)):
            with self.subTest(width=width):
                program = self.begin("grow 1024", "keep 512")
                terminal = self.top(program.pid, width=width, height=height)
                terminal.see(KEYS, "running")
                program.kill()
                screen = terminal.see(r"^top_program-\w+  pid %d on \S+  ended: killed after [\d.]+ s$" % program.pid)
                self.assertEqual([l[:11] for l in screen.split("\n")[4:6]], ["   1.00 MiB", " 512.00 KiB"])
                terminal.keys("s")
                terminal.see(r"\(by at peak\)")
                terminal.keys("m", "Enter")
                terminal.see("has ended: its last state")
                terminal.keys("q")
                terminal.over(0)

    def test_process_exits(self):
        program = self.begin("grow 1024")
        terminal = self.top(program.pid)
        terminal.see(KEYS)
        program.say("exit 3")
        terminal.see("ended: exit status 3 after", "^   1.00 MiB 100.0%       1       -   make ")

    def test_ended_while_it_grew(self):
        """No rate and no arrow stays on the screen for a process that does nothing any more."""
        program = self.begin("grow 1024")
        terminal = self.top(program.pid)
        terminal.see(KEYS)
        program.tell("grow 1024", "grow 1024")
        terminal.see(r"^   3.00 MiB 100.0%       3 +[\d.]+ \u2191 ")
        program.say("exit 0")
        terminal.see("ended: exit status 0 after", "^   3.00 MiB 100.0%       3       -   make ")

    def test_process_becomes_another(self):
        program = self.begin("grow 1024")
        terminal = self.top(program.pid, width=120)
        terminal.see(KEYS)
        program.say("exec")
        terminal.see("ended: replaced itself by another program after", "^   1.00 MiB 100.0%")
        self.assertIn("ended: replaced itself by another program", self.command("top", "--once", program.pid).stdout)

    def test_recording_is_cut(self):
        """Somebody makes the file shorter: no SIGBUS, one line."""
        program = self.begin("grow 1024")
        copy = self.dead_copy(program.recording(), lambda h: h.put("pid", os.getpid()))
        with open("/proc/self/stat") as f:
            ticks = int(f.read().rsplit(")", 1)[1].split()[19])
        top_case.Header(copy).write(72, ticks.to_bytes(8, "little"))
        terminal = self.top(copy)
        terminal.see(KEYS, "running")
        os.truncate(copy, 100)
        terminal.over(2)
        self.assertIn("not a whole vramtrack recording", terminal.text())

    @unittest.skipIf(vt.SAN == "tsan", "TSan's signal handling does not let ncurses continue after a stop; one thread, nothing to look for")
    def test_suspended(self):
        program = self.begin("grow 1024")
        terminal = self.top(program.pid, after='echo "stopped $?"; read line; fg')
        terminal.see(KEYS)
        terminal.keys("C-z")
        terminal.see("^stopped %d$" % (128 + signal.SIGTSTP))
        self.assertEqual(terminal.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip(), "0 1")
        terminal.keys("Enter")
        program.tell("keep 2048")
        terminal.see("^   2.00 MiB ", KEYS)
        terminal.keys("q")
        terminal.over(0)
