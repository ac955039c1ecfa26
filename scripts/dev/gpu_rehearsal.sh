#!/bin/sh
# The check of scripts/dev/gpu_check.sh on a bare Debian, on the stand-in: no -dev package, no
# compiler, no Python, no network, and the tracked files with .gpu alone, as a machine with a GPU
# gets them.
#   sh scripts/dev/gpu_pack.sh --stand-in        before
#   sh scripts/dev/gpu_rehearsal.sh FOLDER [PART...]
# As root. The system is made by debootstrap (bookworm, or $SUITE) in $KEEP, where it stays, or in a
# folder that is removed; packages come from $MIRROR, or from where this machine's own do.
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
root=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root"
chmod 755 "$root"

if [ ! -e "$root/etc/debian_version" ]; then
  mirror=${MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' |
    sed -n '/-security/d; s/^Debian main //p' | head -n 1)}
  debootstrap --variant=minbase "${SUITE:-bookworm}" "$root" ${mirror:+"$mirror"}
fi
rm -rf --one-file-system "$root/tycho"
mkdir -p "$root/tycho" "$root/results"
{ git ls-files -z; printf '.gpu/carry.tar.gz\0'; } | tar --null -T - -c | tar -x -C "$root/tycho"

# what is mounted is seen by these commands only and goes with them; the network is none
unshare --mount --net --pid --fork sh -ec '
  root=$1 folder=$2
  shift 2
  mount -t proc proc "$root/proc"
  mount --rbind -o ro /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmp "$root/tmp"
  mount --bind "$folder" "$root/results"
  exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
    GPU_CHECK_SCALE="${GPU_CHECK_SCALE:-60}" sh -c "cd /tycho && exec sh scripts/dev/gpu_run.sh \
      sh scripts/dev/gpu_check.sh /results \"\$@\"" sh "$@"' sh "$root" "$folder" "$@"
