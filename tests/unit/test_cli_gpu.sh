#!/bin/bash
# The command around programs that use the (simulated) GPU: what `run` says after each kind of death, and what `report`
# makes of the recordings. Prints one PASS or FAIL line per check.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
v=$build/vramtrack
if [ -n "${SAN:-}" ]; then
    echo 'SKIP cli-gpu: the simulated GPU and sanitizers are covered by the integration tests'
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build/sim # where the runtime finds the simulated driver
unset VRAMTRACK_DIR VRAMTRACK_LIBRARY VRAMTRACK_REPORT LD_PRELOAD RANK

cat >"$work/program.c" <<'C'
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *hold(size_t mib)
{
    void *p = NULL;
    if (cudaMalloc(&p, mib << 20) != cudaSuccess)
        p = NULL;
    return p;
}

__attribute__((noinline)) static void *deep(int depth)
{
    void *p = depth ? deep(depth - 1) : hold(2);
    __asm__ volatile("" ::"r"(p));
    return p;
}

__attribute__((noinline)) static void weights(int count)
{
    while (count--)
        hold(32);
    __asm__ volatile("");
}

__attribute__((noinline)) static void cache(void)
{
    hold(16);
    __asm__ volatile("");
}

static void workers(int count)
{
    for (int i = 0; i < count; i++)
        if (!fork()) {
            char rank[16];
            snprintf(rank, sizeof(rank), "%d", i);
            setenv("RANK", rank, 1);
            hold(16 + i);
            usleep(700000); /* all of them at the same time, */
            cudaFree(hold(1)); /* and this shows it */
            raise(i % 2 ? SIGKILL : SIGTERM);
        }
    while (wait(NULL) > 0)
        ;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "workers")) {
        workers(atoi(argv[2]));
        return 0;
    }
    if (!strcmp(what, "segv")) {
        hold(48);
        raise(SIGSEGV);
    } else if (!strcmp(what, "forked")) {
        cudaFree(hold(8));
        if (!fork())
            exit(hold(8) == NULL);
        wait(NULL);
    } else if (!strcmp(what, "again")) {
        for (int i = 0; i < 31; i++)
            hold((size_t)(16 + i) << 10);
    } else if (!strcmp(what, "deep")) {
        deep(24);
    } else if (!strcmp(what, "wrapped")) {
        weights(2);
        cache();
    } else if (!strcmp(what, "clean")) {
        cudaFree(hold(24));
    } else if (!strcmp(what, "orphan")) {
        int ready[2];
        char byte;
        if (pipe(ready))
            return 1;
        if (!fork()) {
            hold(24);
            if (write(ready[1], "", 1) == 1)
                fclose(fopen("go", "r"));
            _exit(0);
        }
        return read(ready[0], &byte, 1) != 1;
    } else if (!strcmp(what, "kill")) {
        hold(24);
        raise(SIGKILL);
    } else if (!strcmp(what, "twice")) {
        void *p = hold(24);
        cudaFree(p);
        cudaFree(p);
    } else if (!strcmp(what, "full")) {
        while (hold(512))
            ;
        return 9;
    }
    return 0;
}
C
"${CC:-gcc}" -g -isystem "${CUDA_INCLUDE:-/usr/local/cuda/include}" "$work/program.c" -o "$work/program" -L"$build/sim" \
    -l:libcudart.so.13 -Wl,-rpath,"$build/sim" || exit 1
cd "$work" || exit 1

failed=0
verdict() { if [ "$2" = "$3" ]; then echo "PASS cli-gpu: $1"; else echo "FAIL cli-gpu: $1: got '$2' instead of '$3'"; failed=1; fi; }
# has NAME PATTERN FILE
has() { if grep -qE -- "$2" "$3"; then echo "PASS cli-gpu: $1"; else echo "FAIL cli-gpu: $1: no '$2' in:"; sed 's/^/    /' "$3"; failed=1; fi; }
fresh() { rm -rf out && mkdir out; }
count() { find out -name "*.$1" | wc -l; }
run() { "$v" run -o out "$@" >stdout 2>stderr; }

fresh; run -- ./program nothing
verdict 'no GPU use: status, files, output' "$? $(count vtr) $(wc -c <stderr)" '0 0 0'

fresh; run -- ./program clean
verdict 'clean: status, recording, text' "$? $(count vtr) $(count txt)" '0 1 1'
verdict 'clean: one line' "$(wc -l <stderr)" 1
verdict '--fail-on finds nothing' "$("$v" report --fail-on oom,misuse,leak out >/dev/null 2>&1; echo $?)" 0

fresh; run -- ./program kill
verdict 'killed: status, recording, text' "$? $(count vtr) $(count txt)" '137 1 1'
has 'killed: who holds what' '24.00 MiB.*hold' stderr
has 'killed: said so' 'was ended by signal 9 \(Killed\)' stderr
verdict 'killed: no advice on leaks' "$(grep -c 'try: Free' stderr out/*.txt | tr '\n' ' ' | sed 's/[^ ]*://g')" '0 0 '
has 'killed: the text says so too' 'ended by signal 9 \(Killed\)' <(cat out/*.txt)
verdict 'killed: at most 25 lines' "$(($(wc -l <stderr) <= 25))" 1
"$v" report out/*.vtr >text 2>err
verdict 'report: status, no error' "$? $(wc -c <err)" '0 0'
has 'report: the function' 'hold' text
has 'report: the line' 'program.c:1[0-9]' text
"$v" report --json out >json
verdict 'report --json' "$(python3 -c 'import json; r = json.load(open("json")); print(r["schema"], r["process"]["end"], sum(s["live_bytes"] for s in r["sites"]) >> 20)')" \
    'vramtrack-report/1 killed 24'
"$v" report --moment peak out >text; verdict 'report --moment peak' $? 0
"$v" report --moment nothing out >text 2>err; verdict 'report --moment of an unknown name' "$? $(wc -l <err) $(grep -c 'end, peak' err)" '2 1 1'
"$v" report --colour=always out | grep -q "$(printf '\033')"; verdict 'report --colour=always' $? 0
"$v" report --colour=auto out | grep -q "$(printf '\033')"; verdict 'report --colour=auto into a pipe' $? 1
"$v" report out >/dev/full 2>err; verdict 'report to a full disk' "$? $(wc -l <err)" '2 1'
before=$(cat out/*.txt | md5sum)
verdict 'report writes no file' "$("$v" report out >/dev/null; count txt; cat out/*.txt | md5sum)" "$(printf '1\n%s' "$before")"

fresh; run -q -- ./program kill
verdict '-q: status, text, output' "$? $(count txt) $(wc -c <stderr)" '137 1 0'
fresh; run --no-report -- ./program kill
verdict '--no-report: status, recording, text, output' "$? $(count vtr) $(count txt) $(wc -c <stderr)" '137 1 0 0'
fresh; VRAMTRACK_REPORT=oom run -- ./program kill
verdict 'VRAMTRACK_REPORT=oom: nothing about a killed one' "$? $(count vtr) $(wc -c <stderr)" '137 1 0'

fresh; run -- ./program full
verdict 'out of memory: status, recording, text' "$? $(count vtr) $(count txt)" '9 1 1'
has 'out of memory: said so' 'out of memory' stderr
verdict 'out of memory: said once' "$(grep -c 'vramtrack: out of memory' stderr)" 1
"$v" report --fail-on oom out >/dev/null 2>err; verdict '--fail-on oom' "$? $(wc -l <err)" '1 1'
"$v" report --fail-on misuse out >/dev/null 2>&1; verdict '--fail-on misuse finds none' $? 0

fresh; run -- ./program twice
"$v" report --fail-on double_free out >/dev/null 2>&1; verdict '--fail-on double_free' $? 1

fresh; run -- ./program workers 20
verdict 'workers: status, recordings, texts' "$? $(count vtr) $(count txt)" '0 20 20'
verdict 'workers: at most 25 lines' "$(($(wc -l <stderr) <= 25))" 1
has 'workers: counted' '20 processes' stderr
has 'workers: the largest first' 'rank 19 .*35.00 MiB' <(grep -m1 '^  rank' stderr)
has 'workers: places are added up' 'in 20, 20 processes +hold' stderr
"$v" report out >text 2>err
verdict 'report DIR: all ranks in one' "$? $(wc -l <err) $(head -1 text | grep -c '^GPU memory of program: 20 processes')" '0 0 1'
has 'report DIR: places of all' '510.00 MiB in all, hold' text
verdict 'report --all' "$("$v" report --all out | grep -c '^==> ')" 20

# A shell that runs one program after another: each says how it ended and what was found.
fresh; run -- bash -c './program twice; ./program clean; ulimit -c 0; exec ./program segv'
verdict 'one after another: status, recordings' "$? $(count vtr)" '139 3'
has 'one after another: a clean end' 'peak 24.00 MiB, held 0 B at its end, exit status 0' stderr
has 'one after another: the signal' 'held 48.00 MiB at its end, ended by signal 11 \(Segmentation fault\)' stderr
has 'one after another: the finding' '^ +misuse \(certain\): 1 free of memory' stderr
has 'one after another: who holds it' '48.00 MiB in 1, 1 process  hold' stderr
verdict 'one after another: at most 25 lines' "$(($(wc -l <stderr) <= 25))" 1
fresh; run -- bash -c './program clean; ./program clean; true'
has 'one after another: no sum over time' '24.00 MiB at most in one of 2 processes  hold' stderr
has 'one after another: peaks of their own' 'what held it, each at its own peak' stderr

# A child that inherits CUDA from its parent.
fresh; run -- ./program forked
has 'fork: told apart from a lack of memory' 'misuse \(likely\): 1 allocation failed: CUDA was used before fork' stderr
"$v" report --json --fail-on failed_alloc out >json 2>err
verdict 'fork: --fail-on failed_alloc' "$?" 1

# Recordings that are cut off.
fresh; run -q -- ./program twice
head -c 20000 out/*.vtr >out/cut.vtr
"$v" report out/cut.vtr >text 2>err
has 'cut: said on top' '^the recording is incomplete: totals, places, ' <(head -2 text)
has 'cut: nothing is certain' '^Nothing can be said' text
verdict 'cut: no "none (certain)"' "$(grep -c 'none (certain)' text)" 0
"$v" report --fail-on leak out/cut.vtr >/dev/null 2>err; verdict 'cut: --fail-on' "$? $(wc -l <err)" '2 1'

# Directories and moments.
rm -rf deep; "$v" run -q -o deep/er/est -- ./program full >/dev/null 2>&1
verdict '-o makes all directories' "$? $(find deep/er/est -name '*.vtr' | wc -l)" '9 1'
"$v" run -q -o deep/er/est -- ./program clean >/dev/null 2>&1
"$v" report --all --moment oom-1 deep/er/est >text 2>err
verdict '--all --moment: what has none is named' "$? $(grep -c '^GPU memory of' text) $(grep -c 'left out.*oom-1' err)" '0 1 1'

verdict '--all --moment: no empty heads' "$(grep -c '==>' text)" 1
"$v" report --all --moment nope deep/er/est >text 2>err
verdict '--all --moment: nothing has it' "$? $(wc -c <text) $(cat err)" "2 0 vramtrack report: no recording in deep/er/est has a moment 'nope'"
"$v" report --all --fail-on oom deep/er/est >text 2>err
verdict '--all --fail-on: which one' "$? $(grep -c 'found oom in deep/er/est/vramtrack.*vtr (--fail-on)$' err) $(wc -l <err)" '1 1 1'

# A process that outlives the program has not ended.
fresh; mkfifo go; run --no-wait -- ./program orphan; : >go
has '--no-wait: still running' '; the process still runs .* after its first CUDA call, with 24.00 MiB allocated' stderr

# Equal failures are shown once, and the first one is explained.
fresh; run -- ./program again; "$v" report out >text
has 'again and again: once' '^  oom: cudaMalloc .*, 31 times, 16.00 to 46.00 GiB requested' text
verdict 'again and again: one finding' "$(grep -c '^ *capacity (' text)" 1
verdict 'again and again: JSON keeps them' "$("$v" report --json out | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["failures"]))')" 31

# Deep recursion, and the same code reached over different addresses.
fresh; run -q -- ./program deep
has 'recursion: folded' '^ +\.\.\. 2[0-9] more of the same' <(cat out/*.txt)
fresh; run -- ./program wrapped
has 'a wrapper: its callers are told apart' '64.00 MiB in 2 +hold \(program.c:[0-9]+\) < weights \(program.c' stderr
has 'a wrapper: the other one too' '16.00 MiB in 1 +hold \(program.c:[0-9]+\) < cache \(program.c' stderr

# Odd names: what is printed can be typed again.
fresh; mkdir "out/it's a \$(x) dir"; "$v" run -o "out/it's a \$(x) dir" -- ./program 'kill' $'a\tb' "c'd" 2>stderr
next=$(sed -n 's/^vramtrack: next: vramtrack //p' stderr)
verdict 'the next command can be typed' "$(eval "$v $next" | grep -c '^GPU memory of')" 1
has 'the command line is quoted' "command +./program kill \\\$'a.x09b' 'c'.''d'" <(cat out/*/*.txt)

# Two runs in one directory report their own recordings, each exactly one.
fresh
"$v" run -o out -- sh -c 'sleep 0.5; ./program kill; sleep 0.5' 2>first &
run -- sh -c 'sleep 0.5; ./program kill; sleep 0.5'
wait $!
verdict 'two runs at once' "$(grep -c 'processes used' first stderr | tr '\n' ' ')" 'first:0 stderr:0 '
exit $failed
