#!/usr/bin/env bash
# Entry point that HyperPod runs as root on every new node, from the folder it downloaded the lifecycle files into.
# Everything else is in the Python package next to it; this only makes sure that what it says is kept.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=${HYPERPOD_LOG:-/var/log/hyperpod/on_create.log}
mkdir -p "$(dirname "$log")"
# Standard output is what HyperPod sends to CloudWatch; the file stays on the node.
exec > >(tee -a "$log") 2>&1

cd "$here"
exec python3 -IBu isolated.py hyperpod_node
