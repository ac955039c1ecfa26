#!/bin/sh
# README's two commands on a bare Debian: debootstrap makes the least system there is in a folder,
# which gets a copy of the checkout's files and nothing else.
#   sh scripts/dev/chroot.sh trixie           scripts/setup.sh train, then scripts/setup.sh test
#   sh scripts/dev/chroot.sh bookworm test    one of them; more words go on to it
#   sh scripts/dev/chroot.sh trixie deb       builds the Debian packages, then runs them in another
#                                             bare system
# As root. The packages come from $MIRROR, or from where this machine's own do. The folder is removed
# at the end unless $KEEP names one to keep: a second run then goes on in it.
set -eu
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
suite=$1
shift
root=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf --one-file-system "$root" "$root.bare"' EXIT
mkdir -p "$root"
chmod 755 "$root"                                        # apt downloads as a user of its own

if [ ! -e "$root/etc/debian_version" ]; then
  mirror=${MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' |
    sed -n '/-security/d; s/^Debian main //p' | head -n 1)}
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"}
  [ "${1:-}" != deb ] || cp -a "$root" "$root.bare"
  mkdir "$root/tycho"
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
find . -path ./build -prune -o -path ./.git -prune -o -type f -print0 |
  tar --null -T - -c | tar -x -C "$root/tycho"

# what is mounted is seen by these commands only and goes with them
inside() {
  echo "== $suite: sh scripts/setup.sh $*"
  unshare --mount sh -ec '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind -o ro /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmp "$root/tmp"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
      sh -c "cd /tycho && exec sh scripts/setup.sh \"\$@\"" sh "$@"' sh "$root" "$@"
}

# Runs scripts/dev/try_packages.sh with the packages that were built where nothing else is.
try_packages() {
  bare=$root.bare
  cp "$root"/tycho/build/deb/*.deb scripts/dev/try_packages.sh "$bare/root/"
  cp -L /etc/resolv.conf "$bare/etc/resolv.conf"
  echo "== $suite: the packages in a bare system"
  unshare --mount sh -ec '
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
      sh /root/try_packages.sh' sh "$bare"
}

if [ "${1:-}" = deb ]; then
  inside deb
  try_packages
elif [ $# -gt 0 ]; then
  inside "$@"
else
  inside train
  inside test
fi
