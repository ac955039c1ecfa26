#!/bin/sh
# What can only be seen with a GPU, in parts of some minutes, nine minutes in all. The machine needs
# a driver, CUDA's libraries and a build; nothing is built here. Where it cannot be built, what
# scripts/dev/gpu_pack.sh has packed serves: sh scripts/dev/gpu_run.sh sh scripts/dev/gpu_check.sh ...
#   sh scripts/dev/gpu_check.sh FOLDER [PART...]
#   sh scripts/dev/gpu_check.sh --again FOLDER [PART...]
#   sh scripts/dev/gpu_check.sh --list PART
# Parts, in this order unless named: platform train operators sanitizer bench specs vectors.
# A part is a list of items, which --list prints. Each item leaves a line in FOLDER/results.jsonl
# when it ends, and its output in FOLDER/PART/. The same command goes on with what is not there yet;
# --again repeats what has not passed, too. FOLDER/summary says how each part ended; a part that
# ran nothing has failed. Status 0: all passed; 1: something failed; 3: nothing failed, and not all
# was reached in the time. scripts/dev/gpu_table.lua writes the results into doc/gpu.md.
#   TYCHO_PROGRAM       the program (build/tycho)
#   BUSTED              what runs specs (busted, by the program)
#   TYCHO_BENCH_TORCH   a Python that has PyTorch, for the bench
#   TYCHO_VECTORS       the folder of recorded cases
#   GPU_CHECK_SCALE     how many times as long parts and items may take (1)
#   GPU_CHECK_SECONDS   what each part may take instead of its own time
#   GPU_CHECK_ITEM      what an item may take (80)
set -u
cd "$(dirname "$0")/../.." || exit 1
program=${TYCHO_PROGRAM:-$PWD/build/tycho}
export TYCHO_PROGRAM="$program" TYCHO_LIB="${TYCHO_LIB:-$PWD/build/libtycho.so}"
scale=${GPU_CHECK_SCALE:-1}
PARTS="platform train operators sanitizer bench specs vectors"
VECTOR_PARTS=24
tab=$(printf '\t')

# seconds that a part may take: 540 in all, so that a run of ten minutes holds them
limit() {
  case $1 in
    platform)            seconds=20 ;;
    train)               seconds=70 ;;
    operators|sanitizer) seconds=60 ;;
    bench)               seconds=170 ;;
    specs|vectors)       seconds=80 ;;
  esac
  echo $((${GPU_CHECK_SECONDS:-$seconds} * scale))
}

# seconds that one item may take
item_limit() { echo $((${GPU_CHECK_ITEM:-80} * scale)); }

# how many items run at a time: times are taken one after the other
jobs() {
  case $1 in
    operators|sanitizer|specs|vectors)
      n=$(nproc 2>/dev/null || echo 1)
      [ "$n" -le 8 ] || n=8
      echo "$n" ;;
    *) echo 1 ;;
  esac
}

# -- items -----------------------------------------------------------------------------------------

# Prints those of the specs on its input of which busted runs something: not those whose tests are
# all marked #slow (.busted).
leave_out_slow() {
  xargs awk '
    FNR == 1 { file[++n] = FILENAME }
    /^ *it\(/ { if (/#slow/) slow[FILENAME] = 1; else other[FILENAME] = 1 }
    END { for (i = 1; i <= n; i++) if (!slow[file[i]] || other[file[i]]) print file[i] }'
}

items() {
  case $1 in
    platform)  echo platform ;;
    train)     printf '%s\n' step mlp lenet resnet lstm ;;
    operators) "$program" scripts/dev/gpu_values.lua --list ;;
    sanitizer) printf '%s\n' memcheck racecheck synccheck initcheck ;;
    bench)     printf '%s\n' host W1 W2 W3 W4 W5 W3-tf32 W4-tf32 ;;
    specs)
      find spec/autograd spec/executor spec/initializer spec/io spec/kvstore spec/metric \
        spec/module spec/ndarray spec/optimizer spec/rnn spec/symbol \
        spec/operators/edges_spec.lua \
        spec/operators/indices_spec.lua spec/operators/reduce_spec.lua \
        spec/operators/rows_spec.lua $(for name in small_sizes lengths ctc_loss bools positions \
          far_out integers nans quantized_rnn; do echo "spec/operators/${name}_spec.lua"; done) \
        -name '*_spec.lua' | sort | leave_out_slow ;;
    vectors)   seq "$VECTOR_PARTS" ;;
    *)         echo "no part is called $1" >&2; return 2 ;;
  esac
}

run_specs() {
  TYCHO_TEST_DEVICE='gpu(0)' TYCHO_PRECISION=highest TYCHO_VERIFY=1 \
    ${BUSTED:-$program $(command -v busted) --ignore-lua} "$@"
}

# run_item PART ITEM FOLDER: with its output, the last line of which may be counts
run_item() {
  case $1:$2 in
    platform:*)
      nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap,compute_mode \
        --format=csv,noheader || echo "nvidia-smi does not run"
      "$program" --platform
      [ "$("$program" -e 'require("tycho").num_gpus()')" -gt 0 ] ;;
    train:step)   "$program" scripts/dev/gpu_step.lua ;;
    train:mlp)    "$program" scripts/train_mnist.lua --network mlp --quick --gpus 0 ;;
    train:lenet)  "$program" scripts/train_mnist.lua --quick --gpus 0 ;;
    train:resnet) "$program" scripts/train_cifar10.lua --quick --gpus 0 ;;
    train:lstm)   "$program" scripts/lstm_bucketing.lua --quick --gpus 0 ;;
    operators:*)  TYCHO_PRECISION=highest "$program" scripts/dev/gpu_values.lua "$2" ;;
    sanitizer:*)
      compute-sanitizer --tool "$2" --error-exitcode 9 "$program" scripts/dev/gpu_kernels.lua ;;
    bench:*)
      case $2 in *-tf32) precision=high ;; *) precision=highest ;; esac
      rm -f "$3/bench/$2.jsonl"
      DEVICE=gpu QUICK=1 PEERS_COMPILE=0 PEERS="${TYCHO_BENCH_TORCH:+1}" \
        TYCHO_PRECISION=$precision "$program" scripts/dev/bench/bench.lua --rounds 1 \
        --json "$3/bench/$2.jsonl" "${2%-tf32}" ;;
    specs:*)      run_specs "$2" ;;
    vectors:*)    TYCHO_VECTORS_PART=$2/$VECTOR_PARTS run_specs spec/vectors ;;
  esac
}

# -- one item --------------------------------------------------------------------------------------

# without what would end a text in JSON
plain() { tr -d '"\\\000-\037' | cut -c 1-300; }

is_done() { grep -qF "\"part\":\"$1\",\"item\":\"$2\"," "$3/results.jsonl"; }

# note PART ITEM FOLDER STATUS SECONDS LOG: its line of results
note() {
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$6" | tail -n 1)
  how=passed passed=1 failed=0 skipped=0
  if [ -n "$line" ]; then
    # shellcheck disable=SC2046
    set -- "$@" $(echo "$line" | tr -dc '0-9 ')
    passed=$7 failed=$8 skipped=${9:-0}
  fi
  case $4 in
    0) [ "$failed" -eq 0 ] || how=failed ;;
    124|137) how="timed out" ;;
    *) how=failed ;;
  esac
  [ "$how" != passed ] || [ "$passed" -gt 0 ] || how="ran nothing"
  [ "$how" = passed ] || [ -n "$line" ] || passed=0
  why=
  [ "$how" = passed ] || why=$(grep -vE '^$|^[0-9]+ passed, ' "$6" | tail -n 1 | plain)
  {
    printf '{"part":"%s","item":"%s","how":"%s","seconds":%d,' "$1" "$2" "$how" "$5"
    printf '"passed":%d,"failed":%d,"skipped":%d,' "$passed" "$failed" "$skipped"
    printf '"note":"%s"}\n' "$why"
  } > "$6.line"
  cat "$6.line" >> "$3/results.jsonl" # at once: others write there, too
  rm "$6.line"
}

# one PART END FOLDER ITEM: unless it is done, or the part's time is over
one() {
  part=$1 end=$2 folder=$3 item=$4
  is_done "$part" "$item" "$folder" && return 0
  begin=$(date +%s)
  left=$((end - begin)) most=$(item_limit)
  [ "$left" -gt 0 ] || return 0
  [ "$left" -lt "$most" ] && most=$left
  log=$folder/$part/$(echo "$item" | tr / _).log
  timeout -k 5 "$most" sh scripts/dev/gpu_check.sh --item "$part" "$item" "$folder" \
    > "$log" 2>&1 < /dev/null
  status=$?
  # cut short by the part's time: it comes again
  case $status in 124|137) [ "$most" -lt "$(item_limit)" ] && return 0 ;; esac
  note "$part" "$item" "$folder" "$status" $(($(date +%s) - begin)) "$log"
  rows=$folder/$part/$item.jsonl
  [ "$part" != bench ] || [ ! -f "$rows" ] || cat "$rows" >> "$folder/results.jsonl"
}

# -- parts -----------------------------------------------------------------------------------------

# What the lines of a part come to.
report() {
  items "$1" | sed "s/^/$1$tab/" | awk -F '\t' -v results="$2/results.jsonl" -v took="$3" '
    function field(line, name) {
      if (!match(line, "\"" name "\":(\"[^\"]*\"|[0-9]+)")) return ""
      line = substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
      gsub(/"/, "", line)
      return line
    }
    BEGIN {
      while ((getline line < results) > 0) if (field(line, "how") != "")
        how[field(line, "part") "\t" field(line, "item")] = line
    }
    {
      name = $1; all++
      line = how[$1 "\t" $2]
      if (line == "") { missing++; next }
      ended = field(line, "how")
      passed += field(line, "passed"); failed += field(line, "failed")
      skipped += field(line, "skipped")
      if (ended == "passed") good++
      else if (ended == "ran nothing") nothing++
      else bad = bad (bad == "" ? "" : ", ") $2 " " ended
    }
    END {
      text = sprintf("%s: %d of %d items passed, tests: %d passed, %d failed, %d skipped", name,
        good, all, passed, failed, skipped)
      if (bad != "") text = text "; " bad
      if (nothing) text = text "; " nothing " ran nothing"
      if (missing) text = text "; " missing " not reached"
      if (all == missing) text = name ": nothing was reached"
      else if (!good && bad == "") text = name ": failed, it ran nothing"
      print text ", " took " s"
      exit bad != "" || (!good && all != missing) ? 1 : missing ? 3 : 0
    }'
}

# part NAME FOLDER: prints its line of the summary
part() {
  mkdir -p "$2/$1"
  begin=$(date +%s)
  end=$((begin + $(limit "$1")))
  printf '{"part":"%s","items":%d}\n' "$1" "$(items "$1" | wc -l)" >> "$2/results.jsonl"
  items "$1" | tr '\n' '\0' | xargs -0 -P "$(jobs "$1")" -n 1 \
    sh scripts/dev/gpu_check.sh --one "$1" "$end" "$2"
  report "$1" "$2" $(($(date +%s) - begin))
}

# What the first line of results says: on what it ran. A stand-in's device is called cudasim.
head_line() {
  text=$("$program" --platform)
  device=$(echo "$text" | sed -n 's/^gpu(0)  *\([^,]*\), compute capability.*/\1/p' | plain)
  versions=$(echo "$text" | sed -n 's/^ *driver of \(CUDA .*\)/\1/p' | plain)
  libraries=$(echo "$text" |
    sed -n 's/^\(cublasLt\|cuDNN\|NCCL\)  *\([0-9][0-9.]*\).*/\1 \2/p' | paste -s -d , | plain)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  commit=$(git rev-parse --short=10 HEAD 2>/dev/null ||
    cat "${GPU_FOLDER:-.gpu}/use/commit" 2>/dev/null)
  printf '{"device":"%s","driver":"%s","cuda":"%s","libraries":"%s","date":"%s","commit":"%s"}\n' \
    "$device" "$driver" "$versions" "$libraries" "$(date +%F)" "$commit"
}

# The stand-in does work where it is given and lets the host look, as in make test-gpu. What would
# take it hours is asked for and not done.
prepare_stand_in() {
  export CUDASIM_GUARD=0 CUDASIM_STREAMS=eager CUDASIM_SPOIL=4096
  case $1:$2 in
    bench:*|train:resnet)
      export CUDASIM_DRY=1 TYCHO_CACHE="${TYCHO_CACHE:-$HOME/.cache/tycho}/dry" ;;
  esac
}

case ${1:-} in
  --list) items "${2:-}"; exit ;;
  --one)  shift; one "$@"; exit ;;
  --item)
    grep -q '"device":"cudasim"' "$4/results.jsonl" && prepare_stand_in "$2" "$3"
    run_item "$2" "$3" "$4"
    exit ;;
esac
again=
[ "${1:-}" != --again ] || { again=1; shift; }
[ $# -gt 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
mkdir -p "$1" || exit 1
folder=$(cd "$1" && pwd)
shift
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $PARTS
for name; do items "$name" > /dev/null || exit 2; done

reason=$("$program" -e 'local ty = require("tycho")
  if ty.num_gpus() == 0 then
    local _, why = pcall(ty.nd.zeros, {1}, {ctx = ty.gpu(0)})
    print(why)
  end' 2>&1)
if [ -n "$reason" ]; then
  echo "no part can run: $reason" | tee "$folder/summary" >&2
  exit 1
fi
if [ ! -s "$folder/results.jsonl" ]; then
  head_line > "$folder/results.jsonl"
elif [ -n "$again" ]; then
  grep -vE '"how":"(failed|timed out|ran nothing)"' "$folder/results.jsonl" > "$folder/results.new"
  mv "$folder/results.new" "$folder/results.jsonl"
fi
: > "$folder/summary"
status=0
for name; do
  part "$name" "$folder" >> "$folder/summary"
  ended=$?
  tail -n 1 "$folder/summary"
  case $ended in
    0) ;;
    3) [ "$status" -eq 1 ] || status=3 ;;
    *) status=1 ;;
  esac
done
exit "$status"
