#!/usr/bin/env bash
# Gives Services of type LoadBalancer an address out of a range, as a cloud would: lb.sh [PREFIX [FIRST]]
# Needs kubectl and KUBECONFIG; runs until it is ended. Default addresses: 198.51.100.100, .101, ...
# kube-proxy serves such an address by itself (ipMode VIP); the range must be routed to the node (AnyIP in up.sh does that).
set -uo pipefail
prefix=${1:-198.51.100.} first=${2:-100}
watch=
trap '[ -z "$watch" ] || kill "$watch"; exit 0' EXIT INT TERM
while :; do
  # One line per Service now and per change later: namespace/name type wanted-address- present-address-
  exec 3< <(exec kubectl get services -A --watch -o 'jsonpath={.metadata.namespace}/{.metadata.name} {.spec.type} {.spec.loadBalancerIP}- {.status.loadBalancer.ingress[0].ip}-{"\n"}')
  watch=$!
  while read -r service type want have <&3; do
    if [ "$type" != LoadBalancer ] || [ "$have" != - ]; then continue; fi
    ip=${want%-}
    if [ -z "$ip" ]; then
      used=$(kubectl get services -A -o 'jsonpath={range .items[*]}{.status.loadBalancer.ingress[*].ip}{"\n"}{end}')
      n=$first
      while grep -qxF "$prefix$n" <<<"$used"; do n=$((n + 1)); done
      ip=$prefix$n
    fi
    kubectl -n "${service%/*}" patch service "${service#*/}" --subresource=status --type=merge \
      -p "{\"status\":{\"loadBalancer\":{\"ingress\":[{\"ip\":\"$ip\",\"ipMode\":\"VIP\"}]}}}"
  done
  watch=
  sleep 1
done
