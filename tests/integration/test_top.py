"""vramtrack top: the live view, on a terminal (tmux), as text and as JSON."""
import hashlib
import json
import os
import re
import signal
import subprocess
import unittest

import phase_programs
import test_categories
import top_case
import vt
from top_case import Program, Terminal, wait_for

MIB = 1 << 20
KEYS = r"^q quit  s sort  / filter  space freeze  m moment  enter stack  h help$"


class Top(top_case.Case):
    def begin(self, *lines, **environment):
        program = Program(self, **environment)
        program.tell(*lines)
        return program

    def top(self, *arguments, width=80, height=24, locale="C.UTF-8", after=""):
        return Terminal(self, "'%s' top --interval 0.1 %s" % (vt.COMMAND, " ".join("'%s'" % a for a in arguments)), width, height, locale, after)

    def places(self, screen):
        """(live, function that called make()) of the lines of a list, from above."""
        return [(m.group(1), m.group(2)) for m in re.finditer(r"^ *([\d.]+ \w+) +[\d.]+% .*make \([^)]*\) < (\w+)", screen, re.M)]


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


class Targets(Top):
    def test_list(self):
        first, second = self.begin("grow 1024"), self.begin("keep 2048")
        terminal = self.top(width=160, height=40)
        screen = terminal.see(r"^ +%d +1.00 MiB +1.00 MiB +0  top_program" % first.pid, r"^ +%d +2.00 MiB +2.00 MiB +0  top_program" % second.pid)
        pids = [int(m) for m in re.findall(r"^ +(\d+) ", screen, re.M)]
        self.assertEqual(pids, sorted(pids))
        second.tell("keep 1024")
        terminal.see(r"^ +%d +3.00 MiB +3.00 MiB" % second.pid)
        for _ in pids: # others' processes may come and go, so keys are not counted but their effect is looked at
            terminal.keys("Up")
        while not re.search(r"^\x1b\[7m +%d " % second.pid, terminal.tmux("capture-pane", "-p", "-e"), re.M):
            terminal.keys("Down")
            terminal.see("PID  RANK")
        terminal.keys("Enter")
        terminal.see(r"  pid %d on " % second.pid, KEYS, "^   3.00 MiB 100.0%")
        terminal.keys("Escape")
        terminal.see("recorded process", "^q quit  enter look at it")
        terminal.keys("q")
        terminal.over(0)

    def test_recording_and_directory(self):
        program = self.begin("grow 1024")
        for target in (program.recording(), self.dir):
            self.assertIn("\n   1.00 MiB 100.0%       1       - ", self.command("top", "--once", target).stdout)
        self.assertIn("pid %d on" % program.pid, self.command("top", "--once", program.recording()).stdout)

    def test_once_says_what_it_leaves_out(self):
        program = self.begin("grow 1024", "keep 512", "many 1")
        lines = self.command("top", "--once", "--top", "1", program.pid).stdout.splitlines()
        self.assertEqual((lines[-2][:11], lines[-1]), ("   1.00 MiB", " 516.00 KiB in 2 more places"))
        self.assertNotIn(" more place", self.command("top", "--once", "--top", "3", program.pid).stdout)

    def test_rank(self):
        """A world that has no room for the rank is none."""
        for world, said in (("8", "rank 5 of 8"), ("2", "rank 5"), ("0", "rank 5"), (None, "rank 5")):
            program = self.begin("grow 4", RANK="5", **({"WORLD_SIZE": world} if world else {}))
            self.assertRegex(self.command("top", "--once", program.pid).stdout, "  %s  running " % said)
            self.assertRegex(self.command("report", program.recording()).stdout, r"\(pid %d on \S+, %s\): running" % (program.pid, said))

    def test_nothing_there(self):
        empty = os.path.join(self.dir, "empty")
        os.mkdir(empty)
        self.fails("there is no recording in .*/empty", "top", "--once", empty)
        self.fails("No such file", "top", "--once", os.path.join(empty, "x.vtr"))
        self.fails("not a vramtrack recording", "top", "--once", __file__)
        self.fails("process %d is not recorded: it runs without libvramtrack.so" % os.getpid(), "top", os.getpid())
        self.fails("process 2147483647 does not exist", "top", 2147483647)
        idle = self.start_program("cat")
        self.addCleanup(idle.communicate)
        wait_for(lambda: "/libvramtrack.so" in open("/proc/%d/maps" % idle.pid).read() and os.readlink("/proc/%d/exe" % idle.pid).endswith("cat"), "cat")
        self.fails("has the recorder loaded, but no recording: it has not used a GPU yet", "top", idle.pid)

    def test_gone(self):
        program = self.begin("grow 1024")
        os.unlink(program.recording())
        self.fails("writes a recording that was deleted or moved", "top", "--once", program.pid)

    def test_other_formats(self):
        program = self.begin("grow 1024")
        newer = self.dead_copy(program.recording(), lambda h: h.put("major", 2))
        self.fails("written by format version 2, this program reads 1", "top", "--once", newer)
        terminal = self.top(newer)
        terminal.over(2)
        self.assertIn("written by format version 2, this program reads 1", terminal.text())
        later = self.dead_copy(program.recording(), lambda h: h.put("minor", 9))
        self.assertIn("   1.00 MiB", self.command("top", "--once", later).stdout)

    def test_no_terminal(self):
        program = self.begin("grow 1024")
        self.fails("no terminal: --once prints plain text, --json lines", "top", program.pid)
        terminal = Terminal(self, "env TERM=nonsense '%s' top %d" % (vt.COMMAND, program.pid))
        terminal.over(2)
        self.assertIn('the terminal "nonsense" is not known', terminal.text())
        terminal = Terminal(self, "env TERM=dumb '%s' top %d" % (vt.COMMAND, program.pid))
        terminal.over(2)
        self.assertEqual(terminal.text().split("\nstatus")[0].strip(),
                         'vramtrack top: the terminal "dumb" is not known, or cannot be drawn on: --once prints plain text')

    def test_usage(self):
        self.fails("--interval 0: seconds from 0.05", "top", "--interval", "0")
        self.fails("--top 0: a number from 1", "top", "--top", "0")
        self.fails("one process at a time", "top", "1", "2")
        self.fails("unknown option '--frob'", "top", "--frob")
        self.assertEqual(self.command("top", "--help").returncode, 0)


class Json(Top):
    def lines(self, *arguments):
        done = self.command("top", "--json", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(l) for l in done.stdout.splitlines()]

    def test_same_as_the_report(self):
        program = self.begin("grow 1024", "keep 512", "many 7", "step", "fail")
        line, = self.lines("--once", program.pid)
        report = self.report(program.recording())
        self.assertEqual((line["schema"], line["recording"], line["places"]), ("vramtrack-top/1", program.recording(), 3))
        for key in ("training", "devices", "totals", "failures"):
            self.assertEqual(line[key], report[key], key)
        for part in (line, report):
            for moment in part["moments"]:
                if moment["name"] == "end":
                    moment["time_s"] = None  # now
            part["process"]["duration_s"] = None
            for site in part["sites"]:
                site["growth"]["bytes_per_s"] = None
        self.assertEqual((line["process"], line["moments"]), (report["process"], report["moments"]))
        self.assertEqual([s["id"] for s in line["sites"]], [s["id"] for s in report["sites"]])
        for mine, its in zip(line["sites"], report["sites"]):
            both = set(mine) & set(its)
            self.assertGreaterEqual(len(both), 21)
            self.assertEqual({k: mine[k] for k in both}, {k: its[k] for k in both})
        total = sum(s["live_bytes"] for s in line["sites"])
        self.assertEqual([round(s["share"] * total) for s in line["sites"]], [s["live_bytes"] for s in line["sites"]])
        self.assertEqual([(s["allocs_per_s"], s["live_change_bytes"]) for s in line["sites"]], [(None, None)] * 3)
        self.assertRegex(line["sites"][0]["place"], r"^make \(top_program-\w+\.c:\d+\) < grow \(top_program-\w+\.c:\d+\)$")
        self.assertEqual(line["events_while_read"], 0)

    def test_verdicts(self):
        """With --once they are there, as in the report; a stream does not spend the time on them, and says nothing."""
        program = self.begin("keep 512", *["grow 1024", "step"] * 40)
        line, = self.lines("--once", program.pid)
        self.assertEqual({s["place"].split(" < ")[1].split(" ")[0]: s["verdict"] for s in line["sites"]}, {"grow": "growth", "keep": None})
        self.assertEqual([s["verdict"] for s in line["sites"]], [s["verdict"] for s in self.report(program.recording())["sites"]])
        program.kill()
        self.assertEqual([[s["verdict"] for s in l["sites"]] for l in self.lines(program.recording())], [[None, None]])

    def test_stream(self):
        program = self.begin("grow 1024")
        stream = subprocess.Popen([vt.COMMAND, "top", "--json", "--interval", "0.05", str(program.pid)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(stream.communicate)
        self.addCleanup(stream.kill)
        def next_line():
            return json.loads(stream.stdout.readline())
        self.assertEqual(next_line()["sites"][0]["live_bytes"], MIB)
        program.tell("grow 2048", "grow 1024")
        seen = next_line()
        while seen["sites"][0]["live_bytes"] != 4 * MIB:
            seen = next_line()
        self.assertGreater(seen["sites"][0]["allocs_per_s"], 0)
        self.assertIn(seen["sites"][0]["live_change_bytes"], (3 * MIB, MIB))
        program.kill()
        while seen["process"]["end"] == "running":
            seen = next_line()
        self.assertEqual((seen["process"]["end"], seen["sites"][0]["live_bytes"]), ("killed", 4 * MIB))
        self.assertEqual((stream.stdout.read(), stream.wait()), ("", 0))

    def test_busy_process(self):
        """Figures of a process that never rests stay within what it does."""
        program = self.begin("grow 1024", "loop")
        for _ in range(20):
            line, = self.lines("--once", program.pid)
            sites = {s["place"].split(" < ")[1].split(" ")[0]: s for s in line["sites"] if " < " in s["place"]}
            self.assertEqual(sites["grow"]["live_bytes"], MIB)
            loops = [s for name, s in sites.items() if name == "loop"]
            self.assertIn(loops[0]["live_bytes"] if loops else 0, (0, 65536))

    def test_list(self):
        program = self.begin("grow 1024")
        line, = self.lines("--once")
        mine, = [p for p in line["processes"] if p["pid"] == program.pid]
        self.assertEqual((mine["recording"], mine["driver_live_bytes"], mine["driver_peak_bytes"], mine["ooms"], mine["problem"]),
                         (program.recording(), MIB, MIB, 0, None))

    def test_never_writes(self):
        program = self.begin("grow 1024")
        program.kill()
        def state():
            with open(program.recording(), "rb") as f:
                return hashlib.sha256(f.read()).hexdigest(), os.stat(program.recording()).st_mtime_ns
        before = state()
        os.chmod(program.recording(), 0o400)
        self.lines("--once", program.recording())
        terminal = self.top(program.recording())
        terminal.see(KEYS, "ended: killed")
        terminal.keys("s", "Enter", "q")
        terminal.over(0)
        self.assertEqual(state(), before)


class Tensors(phase_programs.Base, top_case.Case):
    """A training program (PyTorch's stand-ins): tensors for the segments that they lie in, and what they are."""

    def test_training(self):
        self.python('''\
net, adam, x = Net(), AdamW(), None
for step in range(3):
    x = inputs(x)
    free(net(x))
    net.backward(1)
    adam.step()
finish()
''', head=test_categories.HEAD)
        recording, = self.recordings()
        done = self.command("top", "--once", recording, env=dict(os.environ, LC_ALL="C.UTF-8", COLUMNS="200"))
        self.assertRegex(done.stdout, r"^\S+  pid \d+ on \S+  ended: .*  step 3\n")
        self.assertRegex(done.stdout, r"\n      driver [\d.]+ MiB \(peak [\d.]+ MiB\)  tensors 27.00 MiB \(peak 42.00 MiB\)  cached unused 35.00 MiB\n")
        self.assertIn("\n      parameters 6.00 MiB, gradients 6.00 MiB, optimizer 12.00 MiB, inputs 3.00 MiB\n", done.stdout)
        self.assertRegex(done.stdout, r"\n   6.00 MiB  22.2%       2 .*  tensor +malloc \(train.py:\d+\) < Net.__init__.<locals>.<lambda> \(train.py:\d+\)\n")
        line = json.loads(self.command("top", "--once", "--json", recording).stdout)
        report = self.report(recording, "end")
        for key in ("training", "devices", "totals"):
            self.assertEqual(line[key], report[key], key)
        categories = {s["id"]: s["category_bytes"] for s in report["sites"] if s["level"] == "tensor"}
        self.assertEqual({s["id"]: s["category_bytes"] for s in line["sites"]},
                         {s["id"]: categories[s["id"]] for s in line["sites"] if s["id"] in categories})
