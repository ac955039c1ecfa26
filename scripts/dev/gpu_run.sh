#!/bin/sh
# On a machine with a GPU that cannot build: unpacks what scripts/dev/gpu_pack.sh has made, and runs
# a command with it, such as
#   sh scripts/dev/gpu_run.sh sh scripts/dev/gpu_check.sh FOLDER
# Libraries of CUDA are those of TYCHO_CUDA_PATH, else those that Python's wheels have beside PyTorch
# (nvidia/*/lib), else the system's and the toolkit's. Kernels come from the pack, whatever version of
# NVRTC is here; what it lacks is compiled into .gpu/use/cubins.
set -u
cd "$(dirname "$0")/../.." || exit 1
[ $# -gt 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
g=${GPU_FOLDER:-$PWD/.gpu}
if [ ! -f "$g/carry.tar.gz" ]; then
  echo "gpu_run: there is no $g/carry.tar.gz; scripts/dev/gpu_pack.sh makes it" >&2
  exit 1
fi
fresh=''
if [ ! -f "$g/use/.unpacked" ] || [ "$g/carry.tar.gz" -nt "$g/use/.unpacked" ]; then
  rm -rf "$g/use"
  tar -C "$g" --no-same-owner -xzf "$g/carry.tar.gz" || exit 1
  fresh=1
fi

# libraries that the system lacks; PyTorch gets none of them
given=${LD_LIBRARY_PATH:-}
mkdir -p "$g/use/missing"
has() { { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | awk '{ print $1 }' | grep -qxF "$1"; }
for file in "$g"/use/lib/*; do
  has "$(basename "$file")" || ln -sf "$file" "$g/use/missing/"
done

# the folders of Python's wheels that have libraries of CUDA
wheels() {
  python3 - <<'P' 2>/dev/null
import glob, os, sys
found = set()
for folder in filter(None, sys.path):
    for name in ("nvrtc.so.1*", "cublasLt.so.1*", "cudnn.so.9", "cusolver.so.1*", "nccl.so.2"):
        pattern = os.path.join(folder, "nvidia", "**", "lib", "lib" + name)
        found.update(os.path.dirname(path) for path in glob.glob(pattern, recursive=True))
print(":".join(sorted(found)))
P
}
if [ -z "${TYCHO_CUDA_PATH:-}" ]; then
  TYCHO_CUDA_PATH=$g/use/cudasim
  [ -d "$TYCHO_CUDA_PATH" ] || TYCHO_CUDA_PATH=$(wheels)
fi
export TYCHO_CUDA_PATH
[ -n "${CUDA_HOME:-}" ] || [ ! -d /usr/local/cuda/lib64 ] || export CUDA_HOME=/usr/local/cuda
export PATH="$g/use/bin:$PATH:/usr/local/cuda/bin"
export LD_LIBRARY_PATH="$g/use/missing${TYCHO_CUDA_PATH:+:$TYCHO_CUDA_PATH}${given:+:$given}"
export TYCHO_PROGRAM="$g/use/tycho" TYCHO_LIB="$g/use/libtycho.so"
export LUA_PATH="./?.lua;$g/use/modules/?.lua;$g/use/modules/?/init.lua;;"
export LUA_CPATH="$g/use/cmodules/?.so;;"
export BUSTED="$TYCHO_PROGRAM $g/use/bin/busted --ignore-lua"
export TYCHO_CACHE="${TYCHO_CACHE-$g/use/cubins}"
[ ! -d "$g/use/vectors" ] || export TYCHO_VECTORS="$g/use/vectors"

if python3 -c 'import importlib.util as u, sys
sys.exit(not (u.find_spec("torch") and u.find_spec("numpy")))' 2>/dev/null; then
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec python3 "$@"\n' "'$given'" > "$g/use/bin/python-torch"
  chmod +x "$g/use/bin/python-torch"
  export TYCHO_BENCH_TORCH="${TYCHO_BENCH_TORCH-$g/use/bin/python-torch}"
fi

# for the versions that are here: "13000 13000"
if [ -n "$fresh" ] && [ -f "$g/use/cubins.pack" ] && [ -n "$TYCHO_CACHE" ]; then
  mkdir -p "$TYCHO_CACHE"
  versions=$("$TYCHO_PROGRAM" --platform | awk '
    /driver of CUDA [0-9.]+, NVRTC [0-9.]+/ {
      split($4, driver, "[.,]"); split($6, nvrtc, ".")
      print nvrtc[1] * 1000 + nvrtc[2] * 10, driver[1] * 1000 + driver[2] * 10
    }')
  # shellcheck disable=SC2086
  [ -z "$versions" ] || "$TYCHO_PROGRAM" scripts/dev/cubins.lua unpack "$g/use/cubins.pack" \
    "$TYCHO_CACHE" $versions || exit 1
fi
[ -z "$fresh" ] || : > "$g/use/.unpacked"
"$@"
