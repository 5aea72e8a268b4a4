"""Home directories on a separate file system, if one is configured. It hides the image's /home."""

from __future__ import annotations

from ..facts.model import HOME_MADE, IMAGE_USER, Node
from . import fsx

FOLDER = "/home"
# After a reboot homes may be mounted before Lustre, which listens on port 988 and cannot be mounted where NFS has taken
# it (FSx for Lustre User Guide, "File system mount fails during system boot"). noresvport would do, where the server
# takes clients of other ports; by default an NFS server does not (exports(5), "secure"). So NFS's ports begin after it
# (the kernel's "command-line parameters", sunrpc.min_resvport).
PORTS_FILE = "/etc/modprobe.d/90-hyperpod-home.conf"
PORTS = "# Made by the HyperPod lifecycle scripts.\noptions sunrpc min_resvport=989\n"
SKELETON = "/etc/skel"


def run(node: Node) -> str:
    """Step ``home``."""
    known = node.parameters.home_fsx_id
    assert known is not None, "the step is only there when one is configured"
    if node.by_image:
        return fsx.await_image_mount(node, FOLDER)
    node.host.write(PORTS_FILE, PORTS)
    detail = fsx.mount(node, fsx.tagged(node, "OPENZFS") if known == HOME_MADE else {"id": known}, FOLDER)
    home = node.host.home(IMAGE_USER)
    if home and home.startswith(f"{FOLDER}/"):
        _make(node, IMAGE_USER, home)
    return detail


def _make(node: Node, user: str, home: str) -> None:
    """Create a user's folder like useradd; all nodes try, and the first one fills it."""
    host = node.host
    try:
        host.path(home).mkdir()
    except FileExistsError:
        return
    host.changes.append(home)
    if host.path(SKELETON).is_dir():
        host.run("cp", "-r", f"{host.path(SKELETON)}/.", str(host.path(home)))
    host.run("chown", "-R", f"{user}:", str(host.path(home)))
