#!/usr/bin/env bash
# Starts a cluster, each node inside namespaces of its own (network, mount, pid); waits until it is ready.
#   up.sh STATE_DIR          settings: see config.sh
# Running already: does nothing; with another number of nodes: an error. KEEP=1 keeps the etcd data of the last run. Imported
# images are always kept.
# Afterwards: enter.sh STATE_DIR kubectl get nodes
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/config.sh"
state=$(mkdir -p "${1:?usage: up.sh STATE_DIR}" && cd "$1" && pwd)
t0=${EPOCHREALTIME/./}
say() { printf '%6d ms  %s\n' $(((${EPOCHREALTIME/./} - t0) / 1000)) "$*"; }

if [ -s "$state/pid" ] && grep -q "inside.sh" "/proc/$(cat "$state/pid")/cmdline" 2>/dev/null; then
  if [ "$(cat "$state/nodes")" != "$NODE" ]; then
    echo "a cluster with $(cat "$state/nodes") nodes runs in $state, not one with $NODE; end it first" >&2
    exit 1
  fi
  echo "running already: pid $(cat "$state/pid")"
  exit 0
fi
for program in etcd kube-apiserver kubectl; do
  [ -x "$BIN/$program" ] || { echo "$program is not in $BIN; \`cargo xtask cluster build\` builds it" >&2; exit 1; }
done
# What ends the cluster when it ends; the commands below read nothing.
if [ "$LIFELINE" = 1 ]; then exec 3<&0; else exec 3</dev/null; fi
exec </dev/null
"$here/down.sh" "$state" # what an unclean end left behind
[ "${KEEP:-0}" = 1 ] || rm -rf "$state/etcd"
mkdir -p "$state/log"
mkdir -p "$state/etcd"
chmod 700 "$state/etcd"
rm -f "$state"/log/* "$state/failed"
echo "$NODE" >"$state/nodes"

nodes=$((NODE > 1 ? NODE : 1))
ips=()
for i in $(seq $nodes); do ips+=("$(node_ip "$i")"); done
"$here/pki.sh" "$state/pki" "$SERVICE_IP" "${ips[@]}"
cp "$state/pki/admin.kubeconfig" "$state/kubeconfig"
say "keys and certificates"

ended() { [ -s "$state/pid" ] && [ ! -e "/proc/$(cat "$state/pid")" ]; } # whether node-1 is gone again
wait_for() { # wait_for SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ] || [ -e "$state/failed" ] || ended; then
      echo "not ready: $what; see $state/log" >&2
      cat "$state/failed" 2>/dev/null >&2 || true
      "$here/down.sh" "$state"
      exit 1
    fi
    sleep 0.1
  done
  say "$what"
}
run() { "$here/enter.sh" "$state" "$@"; }

export here state BIN NODE KCM SCHED DNS PROXY_MODE NODE_NET SERVICE_CIDR SERVICE_IP DNS_IP POD_NET ANYIP APISERVER_ARGS KCM_ARGS LIFELINE
for i in $(seq $nodes); do
  # unshare stays as the parent; its child is PID 1 of the namespace, and when that dies the kernel ends everything inside.
  setsid unshare --mount --net --pid --ipc --uts --fork --kill-child=KILL -- bash "$here/inside.sh" "$i" \
    <&3 >"$state/log/inside-$i.log" 2>&1 &
  disown
  [ "$i" = 1 ] && pid=$state/pid || pid=$state/pid-$i
  wait_for 10 "namespaces of node-$i" test -s "$pid"
  if [ "$i" != 1 ]; then # a cable to node-1's bridge
    NET_ONLY=1 run ip link add "n$i" type veth peer name node0 netns "$(cat "$pid")"
    NET_ONLY=1 run ip link set "n$i" master node0 up
  fi
done

images() { # makes sure that the nodes have image localhost/$1:1
  for i in $(seq "$NODE"); do
    ON=$i run ctr -n k8s.io images ls -q | grep -x "localhost/$1:1" >/dev/null && continue
    ON=$i "$here/image.sh" "$state" "localhost/$1:1" "$BIN/images/$1" "/$1" >/dev/null
  done
}
if [ "$NODE" -gt 0 ]; then
  for i in $(seq "$NODE"); do ON=$i wait_for 20 "containerd of node-$i" run ctr version; done
  images pause
  [ "$DNS" = 0 ] || images coredns
fi
wait_for 60 "kube-apiserver /readyz" run curl -sfk "https://127.0.0.1:6443/readyz"
if [ "$DNS" = 1 ]; then sed "s/@DNS_IP@/$DNS_IP/" "$here/conf/dns.yaml" | run kubectl apply -f - >/dev/null; fi
[ "$KCM" = 0 ] || wait_for 60 "default service account" run kubectl -n default get serviceaccount default
for i in $(seq "$NODE"); do
  wait_for 60 "node-$i Ready" run kubectl wait --for=condition=Ready "node/node-$i" --timeout=5s
done
[ "$DNS" = 0 ] || wait_for 60 "CoreDNS" run kubectl -n kube-system rollout status deployment/coredns --timeout=5s
say "up; KUBECONFIG=$state/kubeconfig, inside the network namespace of pid $(cat "$state/pid")"
