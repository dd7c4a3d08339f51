#!/bin/bash
# The command without a GPU: usage errors, and that `vramtrack run` leaves a program as it was.
# shellcheck disable=SC2016 # what the shells under test expand is in single quotes
#
# Prints one PASS or FAIL line per check. BUILD is the build directory.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
v=$build/vramtrack
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset VRAMTRACK_DIR VRAMTRACK_LIBRARY VRAMTRACK_REPORT LD_PRELOAD

# A sanitizer's library changes what it is loaded into; what is tested here is the command.
if [ -n "${SAN:-}" ]; then
    echo 'int vt_placeholder;' | "${CC:-gcc}" -shared -fPIC -x c - -o "$work/placeholder.so" || exit 1
    export VRAMTRACK_LIBRARY=$work/placeholder.so
fi

failed=0
pass() { echo "PASS cli: $1"; }
fail() { echo "FAIL cli: $1: $2"; failed=1; }
verdict() { if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "got '$2' instead of '$3'"; fi; }

# error NAME STATUS PATTERN COMMAND...: that status, nothing on standard output, one line that matches on standard error.
error() {
    local name=$1 status=$2 pattern=$3 rc
    shift 3
    "$@" >out 2>err </dev/null
    rc=$?
    if [ $rc != "$status" ]; then
        fail "$name" "exit status $rc instead of $status"
    elif [ -s out ]; then
        fail "$name" 'something on standard output'
    elif [ "$(wc -l <err)" != 1 ]; then
        fail "$name" "$(wc -l <err) lines on standard error"
    elif ! grep -qE "^vramtrack.*$pattern" err; then
        fail "$name" "$(cat err)"
    else
        pass "$name"
    fi
}

# --- usage -----------------------------------------------------------------------------------------------------------

error 'unknown verb' 2 "no verb 'frobnicate'" "$v" frobnicate
error 'unknown option' 2 "unknown option '--frobnicate'" "$v" --frobnicate
error 'help of an unknown verb' 2 "no verb 'frobnicate'" "$v" help frobnicate
error 'a control character of two bytes is escaped' 2 "no verb 'a\\\\xc2\\\\x9b31m'" "$v" $'a\xc2\x9b31m'
error 'a byte that is no UTF-8 is escaped' 2 "no verb 'a\\\\x9b31m'" "$v" $'a\x9b31m'
error 'a name that looks escaped is told apart' 2 "no verb 'a\\\\x5cx9b31m'" "$v" 'a\x9b31m'
error 'run: nothing to run' 2 'what shall be run' "$v" run
error 'run: nothing behind --' 2 'what shall be run' "$v" run --
error 'run: unknown option' 2 "unknown option '--frob'" "$v" run --frob -- true
error 'run: unknown short option in a group' 2 "unknown option '-z'" "$v" run -qz -- true
error 'run: option without its value' 2 "'--depth' needs a value" "$v" run --depth
error 'run: depth out of range' 2 'from 1 to 256' "$v" run --depth 257 -- true
error 'run: depth not a number' 2 'from 1 to 256' "$v" run --depth 12x -- true
error 'run: bad stack mode' 2 'auto, both, native, python or off' "$v" run --stacks ruby -- true
error 'run: output is forgotten' 2 "a directory is needed, not '--'" "$v" run -o -- true
error 'run: output below a file' 2 'out/deeper' "$v" run -o out/deeper -- true
error 'run: output is a file' 2 'out' "$v" run -o out -- true
error 'run: library that is not there' 2 'VRAMTRACK_LIBRARY' env VRAMTRACK_LIBRARY=/nonexistent "$v" run true
error 'report: missing file' 2 'nothere.*No such file' "$v" report nothere.vtr
error 'report: empty directory' 2 'no recording' "$v" report .
error 'report: two recordings' 2 "not 'b' as well" "$v" report a b
error 'report: bad number' 2 '--top' "$v" report --top 0 .
error 'report: bad colour' 2 'always' "$v" report --colour=blue .
error 'report: bad --fail-on' 2 "no 'frob'" "$v" report --fail-on oom,frob .
error 'report: bad --fail-on lists all' 2 'leak, growth, fragmentation, cache, waste, pending, capacity, limit, misuse, overhead, oom, retry, framework_oom, failed_alloc, failed_free, double_free, interior_pointer, unknown_pointer, wrong_api\)' "$v" report --fail-on frob .
error 'export: no format' 2 'torch-snapshot, pprof, perfetto, speedscope, folded, csv or prometheus is needed' "$v" export .
error 'export: unknown format' 2 'flame: torch-snapshot, pprof, perfetto, speedscope, folded, csv or prometheus is needed' "$v" export --format flame .
error 'export: bad type' 2 'live, at-peak, allocated or leaked' "$v" export --format folded --type dead .
error 'export: bad level' 2 'driver, tensor or all' "$v" export --format folded --level cpu .
error 'export: bad number' 2 'from 1 to' "$v" export --format perfetto --events 0 .
error 'export: option of another format' 2 '--moment is not for --format perfetto' "$v" export --format perfetto --moment end .
error 'export: missing file' 2 'nothere.*No such file' "$v" export --format csv nothere.vtr
error 'export: empty directory' 2 'no recording' "$v" export --format csv .
error 'report: flag with a value' 2 'takes no value' "$v" report --json=yes .
echo 'this is no recording' >text.vtr
: >empty.vtr
head -c 20000 /dev/urandom >noise.vtr
for file in text empty noise; do
    error "report: $file.vtr is no recording" 2 "$file.vtr" "$v" report "$file.vtr"
done
error 'report: a directory of no recordings' 2 'that can be read \(./empty.vtr: is empty; 2 more named' "$v" report .
error 'report: a device' 2 'null' "$v" report /dev/null
rm -f ./*.vtr
error 'full disk' 2 'standard output' sh -c "'$v' --help >/dev/full"

for words in --help --version 'help run' 'help report' 'run --help' 'report --help' 'run -h' 'run --version' 'report --version'; do
    # shellcheck disable=SC2086 # words are words
    if "$v" $words >out 2>err && [ -s out ] && [ ! -s err ]; then
        pass "vramtrack $words"
    else
        fail "vramtrack $words" "$(cat err)"
    fi
done

# --- run: exit status ------------------------------------------------------------------------------------------------

error 'program not found' 127 "'no-such-program'.*No such file" "$v" run -- no-such-program
touch plain
error 'program not executable' 126 "'./plain'.*Permission denied" "$v" run -- ./plain
error 'program is a directory' 126 "Permission denied" "$v" run -- /tmp
for status in 0 1 3 255; do
    "$v" run -- sh -c "exit $status" </dev/null
    verdict "exit status $status" $? $status
done
for signal in TERM:143 KILL:137 SEGV:139 INT:130 PIPE:141 USR1:138; do
    # python shows that it is the signal itself, which a shell can't tell from the status.
    got=$(python3 - "$v" "${signal%:*}" <<'PYTHON' 2>err
import subprocess, sys
child = subprocess.run([sys.argv[1], "run", "--", "sh", "-c", "ulimit -c 0; kill -%s $$" % sys.argv[2]])
print(128 - child.returncode if child.returncode < 0 else "exit %d" % child.returncode)
PYTHON
    )
    verdict "killed by SIG${signal%:*}" "$got" "${signal#*:}"
done

# --- run: streams, arguments, environment ----------------------------------------------------------------------------

head -c 3000000 /dev/urandom >data
"$v" run -- cat <data >out 2>err
verdict 'standard input and output' "$(cmp data out; wc -c <err)" 0
"$v" run -- sh -c 'cat >&2' <data >out 2>err
verdict 'standard error' "$(cmp data err; wc -c <out)" 0
verdict 'arguments' "$("$v" run -- printf '<%s>' -o --help -- '' 'a  b' $'c\nd')" "$(printf '<%s>' -o --help -- '' 'a  b' $'c\nd')"
verdict 'arguments without --' "$("$v" run echo -q --help)" '-q --help'
"$v" run -- sh -c 'exec 3<&0 2>/dev/null; ls /proc/self/fd' >fds </dev/null
ls /proc/self/fd >/dev/null
verdict 'no descriptor is passed on' "$(sort -n fds | tr '\n' ' ')" "$(sh -c 'exec 3<&0 2>/dev/null; ls /proc/self/fd' </dev/null | sort -n | tr '\n' ' ')"
first=$("$v" run -- sh -c 'echo "$LD_PRELOAD"')
verdict 'LD_PRELOAD keeps the others' "$(LD_PRELOAD=/nonexistent/other.so "$v" run -- sh -c 'echo "$LD_PRELOAD"' 2>/dev/null)" \
    "$first:/nonexistent/other.so"
verdict 'LD_PRELOAD is an absolute path' "$first" "$(realpath "$first")"
verdict 'LD_PRELOAD names the recorder once' "$(LD_PRELOAD=$first "$v" run -- sh -c 'echo "$LD_PRELOAD"')" "$first"
verdict 'options become environment' "$("$v" run -o sub --depth 9 --stacks off -- sh -c 'echo "$VRAMTRACK_DIR $VRAMTRACK_DEPTH $VRAMTRACK_STACKS"')" "$work/sub 9 off"
verdict 'VRAMTRACK_RUN is the pid of run' "$("$v" run -- sh -c '[ "$VRAMTRACK_RUN" = $PPID ] && echo same')" same
mkdir link-target && ln -s "$v" link-target/vramtrack
verdict 'called through a link' "$(link-target/vramtrack run -- echo works)" works

# --- run: signals and processes --------------------------------------------------------------------------------------

dispositions='import signal
names = ("SIGHUP", "SIGINT", "SIGPIPE", "SIGCHLD", "SIGTERM")
print([str(signal.getsignal(getattr(signal, n))) for n in names], sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))'
for setting in : 'trap "" HUP INT' 'trap "" CHLD' 'trap "" PIPE'; do
    verdict "signals are inherited ($setting)" "$(bash -c "$setting; '$v' run -- python3 -c '$dispositions'")" \
        "$(bash -c "$setting; python3 -c '$dispositions'")"
done

# forwarded NAME SIGNAL: sent to run alone, the program gets it, and run goes on until the program has ended.
for signal in TERM HUP INT QUIT USR1 USR2; do
    rm -f ready
    # A background job of a script has INT and QUIT ignored; python takes them back.
    "$v" run -- python3 -c "
import signal, sys, time
signal.signal(signal.SIG$signal, lambda *_: (time.sleep(0.1), sys.exit(7)))
open('ready', 'w').close()
time.sleep(20)
sys.exit(8)" &
    pid=$!
    for _ in $(seq 100); do [ -e ready ] && break; sleep 0.05; done
    kill -"$signal" $pid
    wait $pid
    verdict "SIG$signal is passed on" $? 7
done

"$v" run -- sh -c '(sleep 1; touch orphan-ended) >/dev/null 2>&1 & exit 4'
verdict 'waits for orphans' "$? $(ls orphan-ended)" '4 orphan-ended'
start=$(date +%s%N)
"$v" run --no-wait -- sh -c 'sleep 3 >/dev/null 2>&1 & exit 4'
verdict '--no-wait' "$? $((($(date +%s%N) - start) / 1000000000))" '4 0'
start=$(date +%s%N)
bash -c "sleep 3 >/dev/null 2>&1 & exec '$v' run -- true"
verdict 'children from before are not waited for' "$? $((($(date +%s%N) - start) / 1000000000))" '0 0'

verdict 'no file without a GPU' "$(find . -name '*.vtr' -o -name '*.txt')" ''
exit $failed
