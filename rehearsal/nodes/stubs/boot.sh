#!/bin/sh
# First process of a host: its root, then systemd. Arguments: the host's directory, its name, the machine image, the
# directory with the shared file systems. Runs in fresh mount, PID, network, UTS and IPC namespaces,
# and begins with systemd when a line comes on its input.
set -e
read -r pid rest < /proc/self/stat
disk=$1 name=$2 image=$3 shared=$4
# This host's systemd creates its control groups below a separate one.
group=$disk/../../cgroup/hyperpod-rehearsal-$HYPERPOD_REHEARSAL/${disk##*/}
mkdir -p "$group"
echo 0 > "$group/cgroup.procs"
root=$disk/root
mount -t overlay overlay -o "lowerdir=$image:/,upperdir=$disk/upper,workdir=$disk/work" "$root"
mount -t proc proc "$root/proc"
# A host has its own kernel settings, so that the machine's do not change.
mount -t overlay sysctl -o "lowerdir=$disk/../../sysctl,upperdir=$disk/sysctl,workdir=$disk/sysctl-work" "$root/proc/sys"
mount -t tmpfs -o mode=755,nosuid dev "$root/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$root/dev"
# For x-systemd.automount. In a container the machine may not have the device.
mknod "$root/dev/autofs" c 10 235
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mkdir -p "$root/run/rehearsal/lustre" "$root/run/rehearsal/sysfs"
mount --rbind "$shared" "$root/run/rehearsal/lustre"
mount -t sysfs sysfs "$root/run/rehearsal/sysfs"
mount -t tmpfs -o mode=755 sys "$root/sys"
cp -a "$disk/sys/." "$root/sys"
unshare --cgroup mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
cp -a "$disk/dev/." "$root/dev"
hostname "$name"
cd "$root"
mkdir -p .outside
pivot_root . .outside
umount -l .outside
rmdir .outside
echo "$pid"
read -r _
# In a container systemd does not mount the kernel's file systems, and if /sys is read-only it does not wait for udev to
# announce devices.
mount.real -o remount,bind,ro /sys
exec setpriv --bounding-set -sys_time,-sys_module,-sys_rawio,-syslog \
  unshare --cgroup env -i container=rehearsal HYPERPOD_REHEARSAL="$HYPERPOD_REHEARSAL" \
  /lib/systemd/systemd --system --show-status=no < /dev/null > /dev/null 2>&1
