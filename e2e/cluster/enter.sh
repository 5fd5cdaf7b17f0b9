#!/usr/bin/env bash
# Runs a command inside the cluster's namespaces: enter.sh STATE_DIR COMMAND...
# ON=2: on node-2 (default node-1). NET_ONLY=1: only the network namespace; the command keeps the host's files and processes
# (right for a test runner, and for whatever you want to end by its pid: the other way forks).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/config.sh"
state=$(cd "${1:?usage: enter.sh STATE_DIR COMMAND...}" && pwd)
shift
[ "${ON:-1}" = 1 ] && file=$state/pid || file=$state/pid-$ON
[ -s "$file" ] || { echo "node-${ON:-1} does not run in $state" >&2; exit 1; }
pid=$(cat "$file")
ns=(--net)
[ "${NET_ONLY:-0}" = 1 ] || ns+=(--mount --pid --ipc --uts)
PATH="$BIN:$PATH" KUBECONFIG="$state/kubeconfig" exec nsenter -t "$pid" "${ns[@]}" --wdns="$PWD" -- "$@"
