#!/bin/sh
# Runs the programs of this folder: sh spec/fuzz/run.sh TYCHO FOLDER SECONDS NAME...
# FOLDER holds the programs, and what they find: FOLDER/corpus/NAME (inputs that reach new code) and
# FOLDER/NAME-crash-... (to be made smaller with FOLDER/NAME -minimize_crash=1 FILE). What
# files.lua finds it prints. Closes with one line of counts.
here=$(dirname "$0") tycho=$1 folder=$2 seconds=$3 passed=0 failed=0
shift 3
mkdir -p "$folder"
for name; do
  mkdir -p "$folder/corpus/$name"
  words=
  [ ! -f "$here/$name.dict" ] || words=-dict=$here/$name.dict
  if "$folder/$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2560 -max_len=8192 \
    -print_final_stats=1 $words -artifact_prefix="$folder/$name-" "$folder/corpus/$name" \
    "$here/corpus/$name" > "$folder/$name.log" 2>&1
  then
    passed=$((passed + 1))
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$name.log")
    echo "$name: $runs inputs in $seconds s, no finding"
  else
    failed=$((failed + 1))
    echo "FAIL $name"
    grep -E 'ERROR|SUMMARY|bytes of memory|runtime error|unit written|^ *#[0-9]' \
      "$folder/$name.log" | head -n 20
  fi
done
LUA_PATH='./?.lua;;' "$tycho" "$here/files.lua" "$seconds" > "$folder/files.log" 2>&1
counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$folder/files.log")
grep -v ' passed, ' "$folder/files.log"
set -- ${counts:-0 1}
passed=$((passed + $1)) failed=$((failed + $2))
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
