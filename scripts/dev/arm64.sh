#!/bin/sh
# Builds for aarch64 with Debian's cross compiler and runs a part of the tests under qemu-user.
#   sh scripts/dev/arm64.sh sysroot   fetches Debian's arm64 libraries into ARM64_SYSROOT (network),
#                                     unless they are there
#   sh scripts/dev/arm64.sh make ...  runs make for aarch64, in build/arm64
#   sh scripts/dev/arm64.sh test      builds, then runs TESTS and SPECS; ends with a line of counts
#
# The host needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user (or qemu-user-static);
# its own packages are left alone. ARM64_SYSROOT: a folder, by default in the user's cache. Where
# something is missing, `test` says so and counts one test as skipped. A program or spec file that
# takes longer than ARM64_LIMIT seconds, by default 120, is ended and counts as failed. qemu is some
# 130 times slower than a processor on vector loops: what takes long here says nothing of speed.
set -eu
cd "$(dirname "$0")/../.."

root=${ARM64_SYSROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/tycho-arm64}
build=build/arm64
lib=$root/usr/lib/aarch64-linux-gnu
compiler=aarch64-linux-gnu-gcc
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
suite=bookworm
[ ! -r /etc/os-release ] || suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-$suite}")

packages="libc6-dev libgomp1 libluajit-5.1-dev libopenblas-pthread-dev libedit-dev libjpeg-dev libpng-dev
  zlib1g-dev lua-filesystem lua-system lua-term"

# Kernels, operators, one training step, and a spec that starts programs. queue_test, threads_test
# and comm_test are left out: they test the system's threads and limits of memory, here qemu's.
TESTS="winograd gemm pointwise narrow reduce train fully_connected image rewrite tensor variates"
SPECS="spec/module/one_step_spec.lua spec/core/fork_spec.lua spec/operators/cache_append_spec.lua
  spec/operators/boolean_mask_spec.lua spec/operators/contrib_math_spec.lua
  spec/operators/integers_spec.lua spec/operators/trials_spec.lua"
LIMIT=${ARM64_LIMIT:-120}
PATIENCE=30                                              # seconds without an answer of a mirror

# an apt of its own, which knows arm64 only, so that dpkg's architectures stay as they are
fetch() {
  mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
  : > "$root/apt/status"
  cat > "$root/apt/conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$root/apt";
Dir::State::status "$root/apt/status";
Dir::State::lists "$root/apt/lists";
Dir::Cache "$root/apt";
Acquire::http::Timeout "$PATIENCE";
Acquire::https::Timeout "$PATIENCE";
END
  APT_CONFIG=$root/apt/conf apt-get update -qq
  APT_CONFIG=$root/apt/conf apt-get install -qq -y --no-install-recommends --download-only $packages
  for deb in "$root"/apt/archives/*.deb; do dpkg -x "$deb" "$root"; done
  # what the packages' scripts do on a system: OpenBLAS is one of several
  for f in libopenblas.so libopenblas.so.0 libblas.so.3 liblapack.so.3; do
    ln -sf "openblas-pthread/$f" "$lib/$f"
  done
  for f in "$root"/usr/include/aarch64-linux-gnu/openblas-pthread/*.h; do
    ln -sf "openblas-pthread/$(basename "$f")" "$root/usr/include/aarch64-linux-gnu/"
  done
  echo "arm64: $root"
}

# what keeps this machine from building, from testing
missing() {
  command -v $compiler > /dev/null || echo "no $compiler (Debian's gcc-aarch64-linux-gnu)"
  [ -e "$lib/libopenblas.so" ] || echo "no libraries in $root (make arm64-sysroot)"
  [ "$1" = make ] || [ -n "$qemu" ] || echo "no qemu-aarch64 (Debian's qemu-user)"
}

cross_make() {
  PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root \
    make --no-print-directory BUILD=$build \
    CC="$compiler --sysroot=$root" AR=aarch64-linux-gnu-ar LUAJIT_DIR="$lib" MPICC= "$@"
}

run_tests() {
  programs=
  for t in $TESTS; do programs="$programs $build/spec/native/${t}_test"; done
  cross_make -j"$(nproc)" all $programs >&2
  export TYCHO_RUNNER="$qemu -L $root" TYCHO_LIB="$PWD/$build/libtycho.so"
  export TYCHO_PROGRAM="$PWD/$build/tycho" TYCHO_TEST_SHARE="${TYCHO_TEST_SHARE:-10}"
  export TYCHO_LIMIT="$LIMIT" OPENBLAS_NUM_THREADS=1
  export BUSTED="$TYCHO_RUNNER $TYCHO_PROGRAM $(command -v busted) --ignore-lua"
  # processors with everything that qemu knows, without dot products, with those of 8-bit integers
  {
    for file in $SPECS; do echo "max --files $file"; done
    for program in $programs; do echo "max $program"; done
    echo "cortex-a72 $build/spec/native/narrow_test"
    echo "cortex-a76 $build/spec/native/narrow_test"
  } | xargs -P "$(nproc)" -L 1 sh -c '
    export QEMU_CPU=$0
    text=$(sh scripts/dev/test.sh "$@" | sed "/_test\$/s/\$/ on $QEMU_CPU/")
    echo "$text"; :' | awk '/^[0-9]+ passed, / { passed += $1; failed += $3; skipped += $5; next }
    { print; fflush() }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
      exit failed > 0 || !passed }'
}

lacks=$(missing "${1:-}")
case ${1:-} in
  sysroot) [ -e "$lib/libopenblas.so" ] || fetch ;;
  make)    [ -z "$lacks" ] || { echo "arm64: $lacks" >&2; exit 1; }
           shift
           cross_make "$@" ;;
  test)    if [ -n "$lacks" ]; then
             echo "$lacks" | sed 's/^/aarch64: skipped, /'
             echo "0 passed, 0 failed, 1 skipped"
           else
             run_tests
           fi ;;
  *)       sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
