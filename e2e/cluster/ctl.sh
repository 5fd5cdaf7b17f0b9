#!/usr/bin/env bash
# Faults. NAME: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet, kube-proxy (ON=2: that of node-2)
#   ctl.sh STATE_DIR stop|start|restart|hang|resume NAME
#     stop kills it (KILL), and it stays down until start; restart kills it and lets it come back; hang and resume: SIGSTOP, SIGCONT
#   ctl.sh STATE_DIR lose|unplug|plug N
#     node N (2 and up): ends at once with all its pods; its cable to the others out; in again
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=$1 what=$2 name=$3
signal() { "$here/enter.sh" "$state" sh -c "kill -$1 \$(cat /run/$name.pid)"; }
case $what in
stop)
  "$here/enter.sh" "$state" touch "/run/$name.hold"
  # It may be just about to start again, so until it is gone; "no such process" is what is wanted.
  while signal KILL 2>/dev/null; do sleep 0.05; done
  ;;
start) "$here/enter.sh" "$state" rm -f "/run/$name.hold" ;;
restart) signal KILL ;;
hang) signal STOP ;;
resume) signal CONT ;;
lose) kill -KILL "$(cat "$state/pid-$name")" ;;
unplug) "$here/enter.sh" "$state" ip link set "n$name" down ;;
plug) "$here/enter.sh" "$state" ip link set "n$name" up ;;
*) echo "unknown: $what" >&2; exit 2 ;;
esac
