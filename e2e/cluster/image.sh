#!/usr/bin/env bash
# Makes a container image out of a folder, without a container engine, and imports it into a running cluster.
#   image.sh STATE_DIR NAME:TAG ROOT_DIR ENTRYPOINT [ARG...]
# ROOT_DIR becomes the image's /. STATE_DIR "-": only write the archive to $OUT. Env: IMAGE_USER (e.g. 65532:65532),
# IMAGE_ENV (space-separated K=V), IMAGE_WORKDIR. NAME needs a host part (localhost/...), or it is taken for docker.io/library/...
# A tag other than :latest keeps imagePullPolicy at IfNotPresent. WITH_LIBS=1: adds the shared libraries that ENTRYPOINT
# needs on this machine (for a Rust or C program that isn't static).
set -euo pipefail
dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=$1 name=$2 root=$3
shift 3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ "${WITH_LIBS:-0}" = 1 ]; then
  cp -a "$root" "$tmp/root"
  root=$tmp/root
  ldd "$root/$1" | grep -oE '/[^ ]+\.so[^ ]*' | sort -u | while read -r lib; do
    install -D "$(realpath "$lib")" "$root$lib"
  done
fi
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$tmp/layer.tar" .
diff=$(sha256sum "$tmp/layer.tar" | cut -d' ' -f1)
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
jq -nc --arg arch "$arch" --arg diff "sha256:$diff" --arg user "${IMAGE_USER-}" --arg env "${IMAGE_ENV-}" \
  --arg wd "${IMAGE_WORKDIR:-/}" '{
  architecture: $arch, os: "linux", created: "1970-01-01T00:00:00Z",
  config: {Entrypoint: $ARGS.positional, User: $user, WorkingDir: $wd,
           Env: (["PATH=/usr/local/bin:/usr/bin:/bin:/"] + ($env | split(" ") | map(select(. != ""))))},
  rootfs: {type: "layers", diff_ids: [$diff]},
  history: [{created: "1970-01-01T00:00:00Z", created_by: "image.sh"}]}' --args "$@" >"$tmp/config.json"
jq -nc --arg name "$name" '[{Config: "config.json", RepoTags: [$name], Layers: ["layer.tar"]}]' >"$tmp/manifest.json"
tar --sort=name --mtime=@0 --owner=0 --group=0 -C "$tmp" -cf "${OUT:-$tmp/image.tar}" manifest.json config.json layer.tar
[ "$state" = - ] && exit 0
for pid in "$state"/pid "$state"/pid-*; do # every node, or only node $ON
  node=${pid##*/pid-}
  if [ "$pid" = "$state/pid" ]; then node=1; fi
  if [ ! -e "$pid" ] || [ "${ON:-$node}" != "$node" ]; then continue; fi
  ON=$node "$dir/enter.sh" "$state" ctr -n k8s.io images import "$(realpath "${OUT:-$tmp/image.tar}")"
done
