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

static void workers(int count)
{
    for (int i = 0; i < count; i++)
        if (!fork()) {
            char rank[16];
            snprintf(rank, sizeof(rank), "%d", i);
            setenv("RANK", rank, 1);
            hold(16 + i);
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
    if (!strcmp(what, "clean")) {
        cudaFree(hold(24));
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
has 'killed: said so' 'killed' stderr
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
has 'workers: the largest first' 'rank 19 .*35.00 MiB' <(sed -n 2p stderr)
has 'workers: places are added up' 'in 20, 20 processes +hold' stderr
"$v" report out >text 2>err
verdict 'report DIR: says which' "$? $(grep -c 'newest of 20' err)" '0 1'
verdict 'report --all' "$("$v" report --all out | grep -c '^==> ')" 20

# Two runs in one directory report their own recordings, each exactly one.
fresh
"$v" run -o out -- sh -c 'sleep 0.5; ./program kill; sleep 0.5' 2>first &
run -- sh -c 'sleep 0.5; ./program kill; sleep 0.5'
wait $!
verdict 'two runs at once' "$(grep -c 'processes used' first stderr | tr '\n' ' ')" 'first:0 stderr:0 '
exit $failed
