#!/usr/bin/env bash
# Builds the programs that a Go module in tools/ pins as its tools, and copies the charts and manifests that belong to
# them: tools/kubernetes_programs.sh MODULE TARGET. Go's progress is on stderr.
set -euo pipefail
module=$1 target=$2
cd "$(dirname "$0")/$module"
# No C compiler is needed, and the result runs on any Linux. More memory before garbage collection, and no debug
# information, save a seventh of the CPU time.
export CGO_ENABLED=0 GOWORK=off GOGC="${GOGC:-800}"

mkdir -p "$target"
exec 9> "$(dirname "$target")/.lock"
flock 9 # one build at a time on this machine
unfinished=$(mktemp -d "$target/unfinished-XXXXXX")
trap 'rm -rf "$unfinished"' EXIT
mkdir "$unfinished/out"

# copy MODULE PATH NAME: writable, since Go's module cache is not.
copy() {
  go mod download "$1"
  cp -r "$(go list -m -f '{{.Dir}}' "$1")/$2" "$unfinished/$3"
  chmod -R u+w "$unfinished/$3"
}

pins=() flags="-s -w"
if [[ $module == kubernetes ]]; then
  copy sigs.k8s.io/kueue charts/kueue out/kueue-chart
  copy sigs.k8s.io/karpenter pkg/apis/crds out/karpenter-crds
  copy github.com/kubeflow/mpi-operator manifests/base out/mpi-operator-crds
  # kwok 0.7 reads an annotation that Kubernetes 1.34 has removed. kwok's own "Bump k8s to 1.34" drops the check, and so
  # does this. This way kwok uses the libraries that the others have already compiled.
  copy sigs.k8s.io/kwok . kwok-source
  perl -0pi -e 's/\n\t*base64EncodedInitialEventsListBlueprint := .*\n.*\n.*\n\t*\}(?=\n)//
    or die "kwok has changed: the check to remove is not in informer.go\n"' \
    "$unfinished/kwok-source/pkg/utils/informer/informer.go"
  cp go.mod go.sum "$unfinished"
  go mod edit -replace="sigs.k8s.io/kwok=$unfinished/kwok-source" "$unfinished/go.mod"
  pins=("-modfile=$unfinished/go.mod")
  # Without the version, an API server reports v0.0.0, and charts that require a minimum version are refused.
  version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
  IFS=. read -r major minor _ <<< "${version#v}"
  to=k8s.io/component-base/version
  flags+=" -X $to.gitVersion=$version -X $to.gitMajor=$major -X $to.gitMinor=$minor"
else
  copy github.com/kubeflow/training-operator manifests/base/crds out/training-operator-crds
fi

# One run of Go for all programs: shared code is compiled once, and no core waits for a linker.
go build -v -trimpath "${pins[@]}" -gcflags=all=-dwarf=false -ldflags="$flags" -o "$unfinished/out/" tool

# Go names a program after its package's folder.
for renamed in server:etcd training-operator.v1:training-operator; do
  if [[ -e $unfinished/out/${renamed%:*} ]]; then mv "$unfinished/out/${renamed%:*}" "$unfinished/out/${renamed#*:}"; fi
done
# What is there already may be in use.
for made in "$unfinished"/out/*; do mv -nT "$made" "$target/${made##*/}"; done
