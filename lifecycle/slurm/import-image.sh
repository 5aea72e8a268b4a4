#!/bin/bash
# hyperpod-import-image IMAGE FILE: brings a container image into a file on the shared file system, once for all nodes.
# One worker fetches it, and nobody sees the file before it is complete.
if (($# != 2)) || [[ $2 != /*.sqsh ]]; then
  echo 'usage: hyperpod-import-image [REGISTRY/]IMAGE[:TAG|@sha256:DIGEST] /fsx/FOLDER/NAME.sqsh' >&2
  exit 2
fi
image=${1#docker://} file=$2 partial=$2.part-$$
# Enroot's own form, which its older releases need too: REGISTRY#IMAGE:TAG, where the tag may be a digest.
if [[ $image != *'#'* && ${image%%/*} == *[.:]* && $image == */* ]]; then image=${image/\//#}; fi
if [[ $image == *@sha256:* ]]; then
  name=${image%@*}
  if [[ ${name##*/} == *:* ]]; then name=${name%:*}; fi
  image=$name:${image##*@}
fi
if [[ -e $file ]]; then
  echo "$file is there already; remove it to import it anew" >&2
  exit 1
fi
mkdir -p -- "${file%/*}" || exit 1
trap 'rm -rf -- "$partial" "$partial.enroot"' EXIT
# The worker's role lets it pull from the account's ECR. The file has no password, but the command that gets one.
if [[ $image =~ ^([0-9]+\.dkr\.ecr\.([a-z0-9-]+)\.[a-z.]+)# ]]; then
  export ENROOT_CONFIG_PATH=$partial.enroot
  mkdir -- "$ENROOT_CONFIG_PATH" || exit 1
  echo "machine ${BASH_REMATCH[1]} login AWS password \$(/opt/hyperpod/bin/hyperpod-credentials ecr ${BASH_REMATCH[2]})" \
    >"$ENROOT_CONFIG_PATH/.credentials"
fi
# shellcheck disable=SC2016 # the worker's shell expands them
srun --nodes=1 --ntasks=1 --job-name=import-image --mpi=none bash -c '
  enroot import --output "$1" "$2" && /opt/hyperpod/bin/hyperpod-check-image "$1" "$0"' \
  "$file" "$partial" "docker://$image" || exit
# A link replaces nothing that another import has put there meanwhile.
ln -- "$partial" "$file" || exit 1
echo "$file $(sha256sum "$file" | cut -d' ' -f1)"
