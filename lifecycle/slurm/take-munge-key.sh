#!/bin/bash
# munged's ExecStartPre, as root: takes the cluster's key from the shared file system ($1), where one is published. The
# file system may not answer: munged starts with the key of before then.
folder=${HYPERPOD_MUNGE:-/etc/munge}
new=$(mktemp "$folder/.key.XXXXXX") || exit 0
trap 'rm -f "$new"' EXIT
# No link is followed. munged(8) wants 32 to 1024 bytes.
timeout --kill-after=1 60 dd "if=$1" "of=$new" iflag=nofollow bs=1024 count=1 status=none 2>/dev/null || exit 0
[[ $(stat -c %s "$new") -ge 32 ]] || exit 0
cmp -s "$new" "$folder/munge.key" && exit 0
chmod 0400 "$new" && chown --reference="$folder" "$new" && mv -f "$new" "$folder/munge.key"
exit 0
