#!/bin/sh
# Runs C test programs, then the specs, and closes with one line of counts.
#   sh scripts/dev/test.sh program ... [-- words for busted | --files file or folder ...]
# Without words for busted every spec file, or every one of --files, is a run of its own, as many at
# a time as there are cores (four at most: each has a thread for every core), the longest first.
# Called by `make test`, which sets the environment: TYCHO_LIB, TYCHO_PROGRAM, SANITIZER, a library
# that an interpreter must load before one that was compiled with it, and BUSTED, a command instead
# of busted. A program or run that prints no counts has crashed. TYCHO_RUNNER: what a program of
# another processor is started by, as "qemu-aarch64 -L folder". TYCHO_LIMIT: seconds after which a
# program or spec file is ended. WITHOUT: a pattern (grep -E) of spec files that are left out.

passed=0 failed=0 skipped=0
logs=$(mktemp -d) || exit 1
log=$logs/one
trap 'rm -rf "$logs"' EXIT

# count STATUS NAME: adds the last line of counts in the log
count() {
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
  if [ -n "$limit" ] && { [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; }; then
    echo "FAIL $2: ended after $TYCHO_LIMIT seconds"
    failed=$((failed + 1))
    return
  elif [ -z "$line" ]; then
    echo "FAIL $2: no result, exit status $1"
    failed=$((failed + 1))
    return
  fi
  set -- "$1" "$2" $(echo "$line" | tr -dc '0-9 ')
  passed=$((passed + $3)) failed=$((failed + $4)) skipped=$((skipped + ${5:-0}))
  if [ "$1" -ne 0 ] && [ "$4" -eq 0 ]; then
    echo "FAIL $2: exit status $1"
    failed=$((failed + 1))
  fi
}

# run NAME COMMAND...: shows the output as it comes, keeps it in the log, counts
run() {
  name=$1
  shift
  { "$@" 2>&1; echo "$?" > "$log.status"; } | tee "$log" | grep -vE '^[0-9]+ passed, '
  count "$(cat "$log.status")" "$name"
}

limit=${TYCHO_LIMIT:+timeout -k 5 $TYCHO_LIMIT}
busted=${BUSTED:-"env ${SANITIZER:+LD_PRELOAD=$SANITIZER ASAN_OPTIONS=detect_leaks=0} busted"}
busted="$limit $busted"

jobs=$(nproc 2>/dev/null || echo 1)
[ "$jobs" -le 4 ] || jobs=4

# each_spec FILE OR FOLDER...: each file with its output in a file, shown when it is complete
each_spec() {
  find "$@" -name '*_spec.lua' | grep -vE "${WITHOUT:-^$}" |
    awk '{ print !/(vectors|variants|scripts)_spec/, $0 }' | sort | cut -d ' ' -f 2 |
    LOGS=$logs BUSTED=$busted xargs -P "$jobs" -n 1 sh -c '
      log=$LOGS/$(echo "$0" | tr / :)
      $BUSTED "$0" < /dev/null > "$log" 2>&1
      echo "$?" > "$log.status"
      grep -vE "^[0-9]+ passed, " "$log"; :'
  for log in "$logs"/*_spec.lua; do count "$(cat "$log.status")" "$(basename "$log" | tr : /)"; done
}

specs=
while [ $# -gt 0 ]; do
  case $1 in
    --|--files) specs=$1; shift; break ;;
    *)  echo "$1"; run "$1" $limit $TYCHO_RUNNER "$1"; shift ;;
  esac
done
case $specs in
  --files) each_spec "$@" ;;
  --)      if [ $# -gt 0 ]; then run busted $busted "$@"; else each_spec spec; fi ;;
esac
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
