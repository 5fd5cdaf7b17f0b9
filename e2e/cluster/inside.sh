#!/usr/bin/env bash
# PID 1 of one node's namespaces, started by up.sh, which exports the settings: inside.sh INDEX. Node 1 runs the control plane too.
set -euo pipefail
i=$1 name=node-$1 suffix=
: "${state:?is started by up.sh}"
[ "$i" = 1 ] || suffix=-$i
. "$here/config.sh"
ip=$(node_ip "$i")
read -r hostpid _ </proc/self/stat # /proc is still the host's here, so this is the pid as the host sees it
trap 'echo "inside.sh $i: line $LINENO failed" >"$state/failed"' ERR
exec 3<&0 </dev/null

# --- mounts: private, and gone with the namespace
mount --make-rprivate /
mount -t proc proc /proc
mount --make-rshared /                # kubelet wants propagation from here on, to its containers
mount -t tmpfs -o mode=755 tmpfs /run # sockets, CNI state, pid files
mkdir -p /run/lock
hostname "$name"
if [ "$LIFELINE" = 1 ]; then
  trap 'exit 0' TERM
  { cat <&3 >/dev/null; kill -TERM 1; } &
fi
exec 3<&-

# --- network: loopback, the nodes' network, AnyIP
ip link set lo up
if [ "$i" = 1 ]; then
  # A bridge, to which up.sh plugs the other nodes. The veth pair keeps it up meanwhile (the kernel may have no dummy devices).
  ip link add node0 type bridge
  ip link add n1 type veth peer name n1-peer
  ip link set n1 master node0 up
  ip link set n1-peer up
fi
echo "$hostpid" >"$state/pid$suffix"
for _ in $(seq 100); do ip link show node0 >/dev/null 2>&1 && break; sleep 0.05; done
ip addr add "$ip/24" dev node0
ip link set node0 up
ip route add default dev node0 # leads nowhere, but programs that look for a default route find one
for j in $(seq "$NODE"); do
  [ "$j" = "$i" ] || ip route add "$POD_NET.$((j - 1)).0/24" via "$(node_ip "$j")"
done
for range in $ANYIP; do
  case $range in *:*) ip -6 route add local "$range" dev lo ;; *) ip route add local "$range" dev lo ;; esac
done
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind
echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind
# Without this a pod that reaches a pod of the same bridge through a Service gets the answer from the wrong address.
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables 2>/dev/null || true

pki=$state/pki
start() { # start NAME COMMAND...: runs it, again and again; not while /run/NAME.hold exists (see ctl.sh)
  local name=$1
  shift
  while :; do
    while [ -e "/run/$name.hold" ]; do sleep 0.05; done
    "$@" >>"$state/log/$name$suffix.log" 2>&1 &
    echo "$!" >"/run/$name.pid"
    wait "$!" || true
    sleep 0.2
  done &
}

# --- control plane
if [ "$i" = 1 ]; then
  start etcd "$BIN/etcd" --name n --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster n=http://127.0.0.1:2380
  # shellcheck disable=SC2086
  start kube-apiserver "$BIN/kube-apiserver" \
    --etcd-servers http://127.0.0.1:2379 \
    --bind-address 0.0.0.0 --secure-port 6443 --advertise-address "$ip" \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
    --client-ca-file "$pki/ca.crt" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
    --service-cluster-ip-range "$SERVICE_CIDR" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
    --kubelet-certificate-authority "$pki/ca.crt" \
    --kubelet-client-certificate "$pki/apiserver-kubelet.crt" --kubelet-client-key "$pki/apiserver-kubelet.key" \
    --kubelet-preferred-address-types InternalIP \
    $APISERVER_ARGS
fi

# --- node
if [ "$NODE" -gt 0 ]; then
  cg=/cluster-$hostpid
  echo "$cg" >>"$state/cgroups"
  for h in /sys/fs/cgroup/*/; do
    mkdir -p "$h$cg"
    for f in cpuset.cpus cpuset.mems; do # cgroup v1: empty in a new group, and then nothing may run there
      if [ -e "$h$cg/$f" ]; then cat "$h$f" >"$h$cg/$f"; fi
    done
  done
  mkdir -p "$state/containerd$suffix" /var/lib/kubelet /var/log/pods /var/log/containers /run/cni/net.d
  mount -t tmpfs tmpfs /var/lib/kubelet
  mount -t tmpfs tmpfs /var/log/pods
  mount -t tmpfs tmpfs /var/log/containers
  # kubelet wants these values and would set them for the whole host; show it that they are so.
  mkdir /run/sysctl
  for kv in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
    f=/run/sysctl/${kv//[\/=]/_}
    echo "${kv#*=}" >"$f"
    mount --bind "$f" "/proc/sys/${kv%=*}"
  done
  fill() { sed -e "s|@CONTAINERD@|$state/containerd$suffix|g" -e "s|@PKI@|$pki|g" -e "s|@I@|$i|g" -e "s|@CGROUP@|$cg|g" \
    -e "s|@DNS_IP@|$DNS_IP|g" -e "s|@POD_CIDR@|$POD_NET.0.0/16|g" -e "s|@NODE_CIDR@|$POD_NET.$((i - 1)).0/24|g" \
    -e "s|@PROXY_MODE@|$PROXY_MODE|g" "$here/conf/$1" >"$2"; }
  fill containerd.toml /run/containerd.toml
  fill kubelet.yaml /run/kubelet.yaml
  fill kube-proxy.yaml /run/kube-proxy.yaml
  fill 10-bridge.conflist /run/cni/net.d/10-bridge.conflist
  start containerd containerd --config /run/containerd.toml
  until [ -S /run/containerd/containerd.sock ]; do sleep 0.05; done # kubelet gives up at once without it
  start kubelet "$BIN/kubelet" --config /run/kubelet.yaml --kubeconfig "$pki/kubelet-$i.kubeconfig" \
    --hostname-override "$name" --node-ip "$ip" --root-dir /var/lib/kubelet
  start kube-proxy "$BIN/kube-proxy" --config /run/kube-proxy.yaml --hostname-override "$name"
fi

# --- controllers
if [ "$i" = 1 ]; then
  until curl -sfk https://127.0.0.1:6443/readyz >/dev/null 2>&1; do sleep 0.1; done
  # One client per controller, and at the default rate their first requests take seconds: hence qps and burst.
  # shellcheck disable=SC2086
  [ "$KCM" = 0 ] || start kube-controller-manager "$BIN/kube-controller-manager" \
    --kubeconfig "$pki/kube-controller-manager.kubeconfig" \
    --leader-elect=false --use-service-account-credentials --kube-api-qps 500 --kube-api-burst 1000 --bind-address 127.0.0.1 \
    --service-account-private-key-file "$pki/sa.key" --root-ca-file "$pki/ca.crt" \
    --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" $KCM_ARGS
  [ "$SCHED" = 0 ] || start kube-scheduler "$BIN/kube-scheduler" --kubeconfig "$pki/kube-scheduler.kubeconfig" \
    --leader-elect=false --bind-address 127.0.0.1
fi

while :; do # reap orphans for ever; bash does that while it waits
  sleep 3600 &
  wait $! || true
done
