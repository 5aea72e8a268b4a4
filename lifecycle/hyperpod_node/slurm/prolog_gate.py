"""The prolog that slurmctld sends to the image's slurmd: keeps it executable."""

from __future__ import annotations

from ..host import units
from ..host.host import Host
from . import conf

# Where the image's slurmd keeps it.
_FILE = f"/run/slurm/conf/{conf.GATE}"
WATCH = f"""# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Watches the prolog that slurmctld sends

[Path]
PathChanged={_FILE}

[Install]
WantedBy=multi-user.target
"""
# systemd does not watch the file while this service runs, so it sets the mode again before it ends.
SERVICE = f"""# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Makes the prolog that slurmctld sends executable
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=-/bin/chmod --silent 0755 {_FILE}
ExecStart=/bin/sleep 1
ExecStart=-/bin/chmod --silent 0755 {_FILE}
"""


def keep_executable(host: Host) -> None:
    """Have systemd set the file's mode now and each time that slurmctld sends it.

    Slurm 24.11 speaks the protocol of 23.02 to a node that has not registered since the controller lost its state, and
    that protocol lacks a script's mode. slurmd then writes the file without it, and each prolog fails
    (pack_config_file, push_reconfig_to_slurmd). The oldest protocol of 25.11 has the mode.
    """
    host.write(f"{units.UNITS}/{conf.GATE}.service", SERVICE)
    host.write(f"{units.UNITS}/{conf.GATE}.path", WATCH)
    units.start(host, f"{conf.GATE}.path")
    units.start(host, f"{conf.GATE}.service", wait=False)
