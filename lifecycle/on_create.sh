#!/usr/bin/env bash
# The entry point: HyperPod runs it as root on every new node, from the folder with the downloaded lifecycle files.
# The Python package next to it does the work; this script only makes sure that the output is kept.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=${HYPERPOD_LOG:-/var/log/hyperpod/on_create.log}
mkdir -p "$(dirname "$log")"
# HyperPod sends standard output to CloudWatch; the file stays on the node.
exec > >(tee -a "$log") 2>&1

cd "$here"
exec python3 -IBu isolated.py hyperpod_node
