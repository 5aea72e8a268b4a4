#!/bin/bash
# hyperpod-check-image FILE.sqsh [NAME]: warns of what in a container image keeps CUDA from this node's driver or NCCL
# from EFA, with the fix. It refuses nothing, and says nothing on a node without NVIDIA GPUs.
file=$1 name=${2:-$1}
driver=$(grep -oEm1 '[0-9]{3}\.[0-9.]+' "${HYPERPOD_NVIDIA:-/proc/driver/nvidia/version}" 2>/dev/null) || exit 0
if ! paths=$(unsquashfs -l "$file" 2>/dev/null); then
  echo "$name was not checked for this node's driver and EFA: unsquashfs cannot list it" >&2
  exit 0
fi
warn() { echo "WARNING: $name $1" >&2; }

# NVIDIA's own images keep it in compat/lib.real, where no program finds it by itself.
compat=$(grep -oE '/cuda[^/]*/compat/libcuda\.so\.[0-9.]+[0-9.]{2}$' <<<"$paths" | head -n 1)
if [[ $compat ]]; then
  warn "brings a CUDA driver library (cuda-compat, ${compat##*.so.}) that can hide the node's driver ($driver): CUDA fails
  with error 803 or 804, or NCCL hangs (aws-ofi-nccl, issue 970). Unless its CUDA needs a newer driver, build it with
  RUN rm -rf /usr/local/cuda*/compat"
fi
[[ -n $(ls -A "${HYPERPOD_EFA:-/sys/class/infiniband}" 2>/dev/null) ]] || exit 0
mapfile -t plugins < <(grep -E '/libnccl-net[^/]*\.so[.0-9]*$' <<<"$paths")
if ((${#plugins[@]} == 0)); then
  warn "has no aws-ofi-nccl: on several nodes NCCL finds no EFA, and fails. Run AWS's EFA installer
  in it (./efa_installer.sh --yes --skip-kmod --skip-limit-conf --no-verify), or start from one of AWS's deep learning
  containers"
  exit 0
fi
if grep -qE '/(libnccl\.so\.2\.28\.9|nvidia_nccl_cu[0-9]+-2\.28\.9\.dist-info)$' <<<"$paths"; then
  # The plug-in is the first of these that is no link.
  for plugin in "${plugins[@]}"; do
    version=$(unsquashfs -cat "$file" "${plugin#squashfs-root/}" 2>/dev/null | grep -aoEm1 'aws-ofi-nccl [0-9.]+[0-9]') && break
  done
  version=${version#* }
  # Its release notes name 2.28.9 among the releases that it was tested with since 1.20.0.
  if [[ $version && $version != 1.20.0 && $(printf '%s\n' 1.20.0 "$version" | sort -V | head -n 1) == "$version" ]]; then
    warn "has NCCL 2.28.9 with aws-ofi-nccl $version, with which it can hang or crash (aws-ofi-nccl, issue 1055). Use
  aws-ofi-nccl 1.20.0 or newer, from a newer EFA installer, or NCCL 2.27.7"
  fi
fi
exit 0
