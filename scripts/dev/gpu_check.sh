#!/bin/sh
# What can only be seen with a GPU, in one go of at most eight minutes; the machine needs the driver
# and a toolkit.
#   sh scripts/dev/gpu_check.sh FOLDER [PART...]
# Parts, by default all: platform train specs sanitizer vectors host bench.
# Each part writes FOLDER/PART.log; FOLDER/summary says how it ended, FOLDER/changes which sentences
# become what. `make` builds before, on this machine or one like it. TYCHO_CUDA_PATH says where the
# libraries are; with build/cudasim in it the parts run on the stand-in, which shows that this file
# works and nothing else.
set -u
cd "$(dirname "$0")/../.." || exit 1
: "${TYCHO_CUDA_PATH:=}"
export TYCHO_CUDA_PATH

platform() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader ||
    echo "a device that nvidia-smi does not tell"
  build/tycho --platform
  [ "$(build/tycho -e 'require("tycho").num_gpus()')" -gt 0 ]
}

train() {
  for words in "train_mnist --network mlp" train_mnist train_cifar10 lstm_bucketing; do
    echo "== $words"
    # shellcheck disable=SC2086
    set -- $words
    name=$1
    shift
    timeout 100 build/tycho "scripts/$name.lua" "$@" --quick --gpus 0 || return 1
  done
}

specs() { TYCHO_PRECISION=highest make test-gpu TYCHO_CUDA_PATH="$TYCHO_CUDA_PATH"; }

sanitizer() {
  compute-sanitizer --error-exitcode=1 \
    build/tycho scripts/train_mnist.lua --network mlp --quick --gpus 0
}

# the median of no step may be above 50 microseconds
host() {
  DEVICE=gpu build/tycho scripts/dev/bench/bench.lua --one host |
    awk '{ print } /"value":/ { n++; sub(/.*"value":/, ""); bad += $0 + 0 > 50 }
      END { exit !n || bad }'
}

# beside PyTorch's figures where TYCHO_BENCH_TORCH names a Python that has it
bench() {
  for work in W1 W2 W4 W5; do
    echo "== $work"
    DEVICE=gpu QUICK=1 PEERS="${TYCHO_BENCH_TORCH:+1}" \
      build/tycho scripts/dev/bench/bench.lua --rounds 1 "$work" || return 1
  done
}

vectors() {
  TYCHO_PRECISION=highest make test-gpu TYCHO_CUDA_PATH="$TYCHO_CUDA_PATH" GPU_SPECS=spec/vectors
}

if [ "${1:-}" = --part ]; then
  "$2"
  exit
fi
[ $# -gt 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
mkdir -p "$1" || exit 1
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- platform train specs sanitizer vectors host bench
: > "$folder/summary"

# seconds that a part may take; eight minutes in all
limit() {
  case $1 in
    platform) echo 10 ;;
    host) echo 20 ;;
    train | sanitizer | vectors) echo 60 ;;
    specs) echo 120 ;;
    bench) echo 150 ;;
  esac
}

# part NAME: in a shell of its own, which is ended with its children when its time is over
part() {
  begin=$(date +%s)
  if timeout "$(limit "$1")" sh scripts/dev/gpu_check.sh --part "$1" > "$folder/$1.log" 2>&1; then
    how=passed
  else
    how="failed with status $?"
  fi
  echo "$1: $how, $(($(date +%s) - begin)) s" | tee -a "$folder/summary"
}

for name; do
  [ -n "$(limit "$name")" ] || { echo "no part is called $name" >&2; exit 2; }
done
reason=$(build/tycho -e 'local ty = require("tycho")
  if ty.num_gpus() == 0 then
    local _, why = pcall(ty.nd.zeros, {1}, {ctx = ty.gpu(0)})
    print(why)
  end')
if [ -n "$reason" ]; then
  echo "no part can run: $reason" | tee -a "$folder/summary" >&2
  exit 1
fi
for name; do part "$name"; done

# -- what changes ----------------------------------------------------------------------------------

device=$(sed -n '/nvidia-smi: /d; p; q' "$folder/platform.log" 2> /dev/null)
passed=$(sed -n 's/: passed.*//p' "$folder/summary" | tr '\n' ' ')
failed=$(sed -n 's/: failed.*//p' "$folder/summary" | tr '\n' ' ')

# change PART FILE OLD NEW: where the part passed, what stands in the file becomes NEW
change() {
  case " $passed" in
    *" $1 "*) printf '%s\n  - %s\n  + %s\n' "$2" "$3" "$4" ;;
  esac
}

# counts PART: the last line of counts in its log
counts() { grep -E '^[0-9]+ passed, ' "$folder/$1.log" 2> /dev/null | tail -n 1; }

{
  where="on $(date +%F) on ${device:-a device that part platform tells}"
  change platform doc/gpu.md "**What ran on a GPU so far: nothing.**" \
    "**What ran on a GPU so far**, $where: ${passed% }; failed: ${failed:-none}"
  change specs doc/gpu.md "What ran so far, on the stand-in and without a GPU:" \
    "a row more, \`make test-gpu\` $where: $(counts specs)"
  change vectors doc/gpu.md "What ran so far, on the stand-in and without a GPU:" \
    "a row more, recorded cases $where: $(counts vectors)"
  change sanitizer doc/gpu.md "What ran so far, on the stand-in and without a GPU:" \
    "a row more, compute-sanitizer $where: clean"
  change host doc/gpu.md "what a step costs the host" "its figures, in $folder/host.log"
  change bench doc/gpu.md "a figure of \`make bench DEVICE=gpu\`" \
    "it goes; the figures of $folder/bench.log stand in doc/performance.md"
  for part in $failed; do echo "$part failed, see $folder/$part.log: a case for the stand-in"; done
} | tee "$folder/changes"
[ -z "$failed" ]
