#!/usr/bin/env bash
# Entry point that HyperPod runs as root on every new node.
set -euo pipefail
log=/var/log/hyperpod/on_create.log
mkdir -p "$(dirname "$log")"
exec > >(tee -a "$log") 2>&1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
config=${HYPERPOD_RESOURCE_CONFIG:-/opt/ml/config/resource_config.json}
if [[ ! -r $config ]]; then
  echo "on_create: no resource configuration at $config"
  exit 1
fi
echo "on_create: scripts in $here, resource configuration in $config"
