#!/bin/sh
# Packs a build, and all that scripts/dev/gpu_check.sh needs besides the tree, for a machine that
# has a GPU, and neither a network nor -dev packages: .gpu/carry.tar.gz, which git ignores. There
# scripts/dev/gpu_run.sh unpacks and uses it.
#   sh scripts/dev/gpu_pack.sh [--stand-in] [--no-kernels] [--parts "PART..."] [ARCHITECTURE...]
# Builds; runs the check's parts on the stand-in, which shows what kernels they ask for; compiles
# these by the real NVRTC for the architectures (90: H100, H200), so that no time on a GPU goes into
# that. NVRTC is found where the system looks, or in /usr/local/cuda*. What was compiled stays in
# build/gpu and is not compiled again. A run that was interrupted goes on where the tree is the
# same: parts that have passed are not run again.
#   --stand-in     packs the stand-in and what it compiled instead of kernels for a GPU: a rehearsal
#                  on a machine without one
#   --no-kernels   packs no kernels: they are compiled on the GPU's time
#   --parts        of gpu_check.sh, whose kernels are packed; by default all
#   TYCHO_VECTORS  the folder of recorded cases, packed where it is there
#   GPU_FOLDER     instead of .gpu
set -eu
cd "$(dirname "$0")/../.."
stand_in='' kernels=1 parts="platform train operators sanitizer bench specs vectors"
while [ $# -gt 0 ]; do
  case $1 in
    --stand-in)   stand_in=1; shift ;;
    --no-kernels) kernels=''; shift ;;
    --parts)      parts=$2; shift 2 ;;
    -*)           sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
    *)            break ;;
  esac
done
[ $# -gt 0 ] || set -- 90
cores=$(nproc 2>/dev/null || echo 1)
g=${GPU_FOLDER:-.gpu} work=build/gpu
make -j"$cores" all cudasim
rm -rf "$g" && mkdir -p "$g/use/lib" "$g/use/modules" "$g/use/cmodules" "$g/use/bin" "$work"

# -- kernels ---------------------------------------------------------------------------------------

# Prints what is the same as long as no file of the tree has changed.
tree_state() {
  git rev-parse HEAD
  git diff HEAD | cksum
  git ls-files --others --exclude-standard -z | xargs -0 -r cksum
}

# What the parts ask for, in $work/keys: those of runs, and in dry/ those of what is not done.
collect() {
  tree_state > "$work/state.now"
  if ! cmp -s "$work/state" "$work/state.now"; then
    rm -rf "$work/keys" "$work/rehearsal"
    mv "$work/state.now" "$work/state"
  fi
  mkdir -p "$work/keys/dry" "$work/rehearsal"
  # shellcheck disable=SC2086
  TYCHO_CUDA_PATH=build/cudasim TYCHO_CACHE=$PWD/$work/keys GPU_CHECK_SCALE=60 \
    PATH="$PWD/scripts/dev/stand_in:$PATH" TYCHO_BENCH_TORCH='' \
    sh scripts/dev/gpu_check.sh --again "$work/rehearsal" $parts ||
    echo "gpu_pack: the parts do not all pass on the stand-in; what they ask for is packed" >&2
}

# compile ARCHITECTURE: into $work/sm_ARCHITECTURE, what is there already taken from $work/before
compile() {
  to=$work/sm_$1
  rm -rf "$work/before"
  mkdir -p "$to" && mv "$to" "$work/before" && mkdir "$to"
  for from in "$work/keys" "$work/keys/dry"; do
    seq "$cores" | xargs -P "$cores" -I '{}' \
      build/tycho scripts/dev/cubins.lua compile "$from" "$to" "$1" "{}/$cores" "$work/before"
  done
  rm -rf "$work/before"
}

if [ -n "$kernels" ]; then
  collect
  if [ -n "$stand_in" ]; then
    build/tycho scripts/dev/cubins.lua pack "$work/keys" "$g/use/cubins.pack"
  else
    mkdir -p "$work/all"
    find "$work/all" -name '*.cubin' -delete
    for architecture; do
      compile "$architecture"
      ln -f "$work/sm_$architecture"/*.cubin "$work/all"
    done
    build/tycho scripts/dev/cubins.lua pack "$work/all" "$g/use/cubins.pack"
  fi
fi

# -- the build, its libraries, busted --------------------------------------------------------------

cp build/tycho build/libtycho.so "$g/use/"
strip -g "$g/use/tycho" "$g/use/libtycho.so"
ln -s "$(realpath --relative-to="$g/use" runtime/lua)" "$g/use/lua"
ldd build/tycho build/libtycho.so | awk '/=> \// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libpthread|libdl|librt|libgcc_s|libstdc\+\+|libtycho)\.so' |
  while read -r library; do cp -L "$library" "$g/use/lib/"; done

# copy TO MODULE FOLDER...: a module of Lua, from the first folder that has it
copy() {
  to=$1 module=$2
  shift 2
  for folder; do
    [ -e "$folder/$module" ] || continue
    cp -rL "$folder/$module" "$g/use/$to/"
    return
  done
}
for module in argparse.lua busted luassert say say.lua mediator.lua pl cliargs cliargs.lua \
  dkjson.lua cjson system term; do
  copy modules "$module" /usr/share/lua/5.1 /usr/local/share/lua/5.1
done
for module in cjson.so lfs.so system term; do
  copy cmodules "$module" /usr/lib/*/lua/5.1 /usr/local/lib/lua/5.1 /usr/local/lib/*/lua/5.1
done
cp "$(readlink -f "$(command -v busted)")" "$g/use/bin/busted"
git rev-parse --short=10 HEAD > "$g/use/commit" 2>/dev/null || echo unknown > "$g/use/commit"
vectors=${TYCHO_VECTORS:-../shared/vectors}
if [ -d "$vectors" ]; then cp -r "$vectors" "$g/use/vectors"; fi
if [ -n "$stand_in" ]; then
  mkdir "$g/use/cudasim"
  cp build/cudasim/lib*.so.* "$g/use/cudasim/"
  cp scripts/dev/stand_in/compute-sanitizer "$g/use/bin/"
fi
tar -C "$g" -cf - use | gzip -9 > "$g/carry.tar.gz"
rm -rf "$g/use"
ls -l "$g/carry.tar.gz"
