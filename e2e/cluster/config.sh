# Sourced by the other scripts: what can be set from the environment.
# shellcheck shell=bash
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${BIN:=$here/../../target/cluster/current/bin}" # where `cargo xtask cluster build` put the programs
: "${NODE:=1}"                       # how many nodes; 0: control plane only (no containerd, kubelet, kube-proxy)
: "${KCM:=1}"                        # 0: no controller manager
: "${SCHED:=$((NODE > 0))}"          # 0: no scheduler
: "${DNS:=$((NODE > 0))}"            # 0: no CoreDNS
: "${PROXY_MODE:=nftables}"          # or iptables
: "${NODE_NET:=192.0.2}"             # node-1 is .10, node-2 .11 ...: a documentation range, can't be a real host
: "${SERVICE_CIDR:=10.96.0.0/16}"
: "${SERVICE_IP:=10.96.0.1}"         # the first of SERVICE_CIDR: kubernetes.default
: "${DNS_IP:=10.96.0.10}"
: "${POD_NET:=10.244}"               # node-1 has .0.0/24, node-2 .1.0/24 ...
: "${ANYIP:=198.51.100.0/24 2001:db8::/64}" # any process may bind these: load balancer addresses, fake endpoints
: "${APISERVER_ARGS:=}" "${KCM_ARGS:=}"
: "${LIFELINE:=0}"                   # 1: the cluster ends when stdin of up.sh does, so with whoever holds its other end
node_ip() { echo "$NODE_NET.$((9 + $1))"; }
