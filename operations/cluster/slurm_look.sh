# shellcheck shell=bash disable=SC2154 # slurm_jobs.py sets variables before it
# What a job on Slurm does, by the number $job or as the newest of $name, and what its log in the folder $all has from
# byte $from on, at most $most. Waits up to $patience seconds for more of the log or for another state than $before.
#
# The log is read as its owner: the folder is everybody's, and root would follow a link to anything.
if [[ -z $job ]]; then
  job=$({ squeue --noheader --states=all --name="$name" --format=%A
    printf "%s\n" "$all"/"$name"-*.log | sed -n "s/^.*\/$name-\([0-9]*\)\.log$/\1/p"; } | sort -n | tail -n 1)
fi
[[ -n $job ]] || exit 4
while true; do
  if said=$(squeue --noheader --states=all --jobs="$job" --format="%T|%u|%r|%j" 2>&1); then
    said=${said%%$'\n'*}
  elif [[ $said != *"Invalid job id"* ]]; then
    said="SILENT|||$name"
  else
    said=
  fi
  if [[ -z $said ]]; then
    said=$(sacct -XnP --jobs="$job" --format=State,User,Reason,JobName 2>/dev/null | head -n 1)
  fi
  IFS="|" read -r state user why called <<< "${said:-FORGOTTEN|||$name}"
  file=$all/$called-$job.log
  [[ -n $called ]] || file=$(compgen -G "$all/*-$job.log" | head -n 1)
  size=$(stat --format=%s "$file" 2>/dev/null || echo 0)
  if [[ $state != "$before" || $state =~ $ended ]] || ((size > from || patience-- <= 0)); then break; fi
  sleep 1
done
if ((patience > 0)) && [[ ! $state =~ $ended ]]; then sleep "$settle"; fi
echo "$job|${state%% *}|$user|$why"
if [[ -n $file && -e $file ]]; then
  runuser -u "$(stat --format=%U "$file")" -- tail -c +$((from + 1)) "$file" | head -c "$most" | gzip -c | base64
fi
