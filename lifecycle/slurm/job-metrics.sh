#!/bin/bash
# "begin" by a job's prolog and "end" by its epilog, as root: a folder for what the job's ranks tell of their training,
# and, for the DCGM exporter, which job has which GPU. Nothing here is a reason to drain a node.
metrics=${HYPERPOD_METRICS:-/var/lib/hyperpod/metrics}
training=${HYPERPOD_TRAINING:-/var/spool/hyperpod/training}
gpus=${HYPERPOD_GPU_JOBS:-/run/hyperpod/gpu-jobs}
job=${SLURM_JOB_ID-}
[[ -d $metrics && $job =~ ^[0-9]+$ ]] || exit 0
shopt -s nullglob

# Only root can put anything beside the jobs' folders.
begin_training() {
  local mine=$training/$job
  [[ -d $training && ! -L $training && $(stat -c %u -- "$training") == "$EUID" ]] || return
  rm -rf -- "$mine" && mkdir -m 0700 -- "$mine" && chown -h -- "${SLURM_JOB_UID:-0}" "$mine"
}

# Several jobs may share a GPU: a file has a line for each. It is replaced, never written to: the exporter reads it.
put() { # GPU LINE...
  local file=$gpus/$1
  shift
  if (($#)); then printf '%s\n' "$@" >"$gpus/.new" && mv -f -- "$gpus/.new" "$file"; else rm -f -- "$file"; fi
}
others() { grep -vx -- "$job" "$1" 2>/dev/null; }

begin_gpus() {
  local part first last gpu lines
  for part in ${SLURM_JOB_GPUS//,/ }; do
    [[ $part =~ ^([0-9]{1,3})(-([0-9]{1,3}))?$ ]] || continue
    first=$((10#${BASH_REMATCH[1]})) last=$((10#${BASH_REMATCH[3]:-${BASH_REMATCH[1]}}))
    for ((gpu = first; gpu <= last; gpu++)); do
      mapfile -t lines < <(others "$gpus/$gpu")
      put "$gpu" "${lines[@]}" "$job"
    done
  done
}

end_gpus() {
  local file lines
  for file in "$gpus"/[0-9]*; do
    mapfile -t lines < <(others "$file")
    put "${file##*/}" "${lines[@]}"
  done
}

mkdir -p -- "$gpus"
# Anybody may lock what they may read, and hold it (prolog.sh).
(umask 077 && : >>"$gpus.lock")
exec {lock}<>"$gpus.lock"
flock -w 10 "$lock"
case ${1-} in
  begin)
    begin_training
    begin_gpus
    ;;
  end)
    rm -rf -- "${training:?}/$job"
    end_gpus
    ;;
esac
exit 0
