#!/bin/sh
# Sets a machine up and does one thing. All a fresh Debian needs is this file: what is missing is
# installed from Debian's packages, as root or through sudo; where neither works the command to type
# is printed instead.
#   sh scripts/setup.sh            installs what building, training and testing need
#   sh scripts/setup.sh train ...  builds and trains a small model of text:
#                                  scripts/lstm_bucketing.lua; words go on to it; a first word names
#                                  another script: train_mnist, train_cifar10, char_rnn ...
#   sh scripts/setup.sh test ...   builds and runs all tests (words go on to busted)
#   sh scripts/setup.sh check      runs the linters: rooms, names, sizes, style, warnings of two
#                                  compilers; builds the pages
#   sh scripts/setup.sh doc        builds the documentation in build/doc
#   sh scripts/setup.sh deb        builds Debian packages in build/deb, which lintian checks
#   sh scripts/setup.sh arm64      builds for aarch64 and runs a part of the tests under qemu; what
#                                  cannot be fetched is a test that is skipped
set -eu
cd "$(dirname "$0")/.."

build="make gcc libc6-dev pkg-config luajit lua-argparse lua-cjson libluajit-5.1-dev"
build="$build libopenblas-dev libdnnl-dev libedit-dev libjpeg-dev libpng-dev zlib1g-dev"
tests="lua-busted zip unzip libopenmpi-dev openmpi-bin iproute2"
checks="lua-check lua-ldoc clang musl-tools mandoc luarocks git"
packages="build-essential pkgconf dpkg-dev debhelper fakeroot lintian zip libopenmpi-dev"
cross="make gcc-aarch64-linux-gnu libc6-dev-arm64-cross pkg-config lua-busted qemu-user-static"

# the packages of a list that are not installed
missing() {
  for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || echo "$package"
  done
}

install() {
  if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is no Debian; needed are the equivalents of: $*" >&2
    return
  fi
  need=$(missing "$@")
  [ -n "$need" ] || return 0
  need=$(echo $need)
  get="apt-get install -y --no-install-recommends $need"
  if [ "$(id -u)" -eq 0 ]; then
    root=""
  elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    root=sudo
  else
    echo "setup: these packages are missing; install them and start again:" >&2
    sudo=
    command -v sudo >/dev/null 2>&1 && sudo="sudo "
    [ -n "$sudo" ] || echo "setup: (as root: this machine has no sudo)" >&2
    echo "  ${sudo}apt-get update && $sudo$get" >&2
    exit 1
  fi
  echo "setup: installing $need"
  $root apt-get update -qq
  $root env DEBIAN_FRONTEND=noninteractive $get
}

what=${1:-}
[ $# -eq 0 ] || shift
jobs=$(nproc 2>/dev/null || echo 1)
case $what in
  "")    install $build $tests ;;
  train) install $build
         make -j"$jobs" all
         script=lstm_bucketing
         case ${1:-} in [a-z]*) script=$1; shift ;; esac
         exec build/tycho "scripts/$script.lua" "$@" ;;
  test)  install $build $tests
         make -j"$jobs" all
         exec make test TEST="$*" ;;
  check) install $build $tests $checks
         exec make -k -j"$jobs" check doc ;;
  doc)   install $build
         make -j"$jobs" doc
         echo "setup: the pages are in $(pwd)/build/doc; begin with index.html" ;;
  deb)   install $build $packages
         make deb
         exec lintian --allow-root --fail-on error,warning build/deb/*.changes ;;
  arm64) (install $cross) || true        # what is missing then is said by the tests
         make arm64-sysroot || true
         exec make arm64-test ;;
  *)     echo "usage: sh scripts/setup.sh [train|test|check|doc|deb|arm64]" >&2
         exit 2 ;;
esac
