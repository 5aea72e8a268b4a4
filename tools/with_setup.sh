#!/usr/bin/env bash
# Runs a command, for which it installs what tests need beside Python packages: Debian's packages for simulated nodes,
# where it is root, and Kubernetes' programs, where Go is. Tests skip what could not be installed, and name it.
# With SETUP=no it installs nothing, and says what is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON_OF_TESTS:-venv/bin/python}
nodes=$("$python" -m rehearsal.nodes.requirements --lacking)
programs=$("$python" -m rehearsal.kubernetes.binaries --lacking)

left_out() {
  echo "Left out: $1, $2"
}

if [[ ${SETUP:-yes} == no ]]; then
  [[ -z $nodes ]] || left_out "tests on simulated nodes" "which lack $nodes (make node-packages)"
  [[ -z $programs ]] || left_out "tests on Kubernetes" "which lack $programs (make kubernetes-tools)"
  exec "$@"
fi

if [[ -n $programs ]]; then
  if command -v go > /dev/null; then
    # It takes more CPU time than everything else: at idle priority, and only the last part of the tests waits for it.
    log=$(mktemp)
    idle=()
    if command -v chrt > /dev/null; then idle=(chrt --idle 0); fi
    echo "Building Kubernetes' programs beside the tests, once: minutes to half an hour of an idle processor."
    "${idle[@]}" make kubernetes-tools > "$log" 2>&1 &
    tools=$!
    trap 'kill "$tools" 2> /dev/null || true; cat "$log"; rm -f "$log"' EXIT
  else
    left_out "tests on Kubernetes" "since there is no Go here to build $programs with"
  fi
fi
if [[ -n $nodes ]]; then
  if [[ $(id -u) == 0 ]] && command -v apt-get > /dev/null; then
    make node-packages || left_out "tests on simulated nodes" "whose packages could not be installed"
  else
    left_out "tests on simulated nodes" "which need root on Debian, and lack $nodes"
  fi
fi
"$@"
