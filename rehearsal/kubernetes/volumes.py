"""The volumes of pods that run as processes: folders on this machine for what the kubelet would mount."""

import base64
import shutil
import threading
from pathlib import Path

from ..patience import until
from .container import Mount
from .kubectl import Kubectl, Manifest, Refused

_FILE_SYSTEM, _MOUNT_SECONDS = "fsx", 60.0
_GID = "pv.beta.kubernetes.io/gid"
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Takes the place of the image's own programs.
IMAGE = Path(__file__).with_name("image")


class Volumes:
    """Creates folders for ConfigMaps, Secrets, claims and emptyDirs. All pods share the claims and the file system."""

    def __init__(self, kubectl: Kubectl, workspace: Path) -> None:
        self._kubectl, self._workspace = kubectl, workspace
        self._lock = threading.Lock()

    def data(self, kind: str, name: str, pod: Manifest) -> dict[str, str]:
        """The content of a ConfigMap or Secret of the pod's namespace, as text."""
        found = self._kubectl.get(kind, name, pod["metadata"]["namespace"]) or {}
        content = found.get("data") or {}
        if kind == "secret":
            return {key: base64.b64decode(value).decode() for key, value in content.items()}
        return {key: str(value) for key, value in content.items()}

    def mounts(self, pod: Manifest, container: Manifest) -> list[Mount]:
        """Everything that the container mounts, its service account's token included."""
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        mounts = [Mount(IMAGE, "/image")]
        for one in container.get("volumeMounts", []):
            if one["mountPath"] == _ACCOUNT:
                mounts.append(Mount(self._account(pod), _ACCOUNT))
            elif folder := self._folder(volumes[one["name"]], pod):
                mounts.append(Mount(folder / one.get("subPath", ""), one["mountPath"]))
        return mounts

    def claim(self, namespace: str, name: str) -> Path:
        """The folder with a claim's files: of a volume of the file system, the directory that it mounts.

        Like a node it waits for the directory, which it does not make. Raises Refused if it never comes.
        """
        below = str(self._volume(namespace, name).get("csi", {}).get("volumeAttributes", {}).get("mountname", ""))
        if not below:
            return self._make("claim", namespace, name)
        folder = self._make(_FILE_SYSTEM) / below.partition("/")[2]
        if not until(folder.is_dir, _MOUNT_SECONDS):
            raise Refused(f"mount.lustre: {below}: No such file or directory")
        return folder

    def groups(self, pod: Manifest) -> list[int]:
        """The groups that a pod gets from its volumes."""
        claims = [
            one["persistentVolumeClaim"] for one in pod["spec"].get("volumes", []) if "persistentVolumeClaim" in one
        ]
        found = [self._annotations(pod["metadata"]["namespace"], claim["claimName"]) for claim in claims]
        return [int(one[_GID]) for one in found if _GID in one]

    def _volume(self, namespace: str, claim: str) -> Manifest:
        return self._persistent(namespace, claim).get("spec") or {}

    def _annotations(self, namespace: str, claim: str) -> Manifest:
        return self._persistent(namespace, claim).get("metadata", {}).get("annotations") or {}

    def _persistent(self, namespace: str, claim: str) -> Manifest:
        """The volume that a claim is bound to."""
        found = self._kubectl.get("pvc", claim, namespace) or {}
        name = found.get("spec", {}).get("volumeName")
        return (self._kubectl.get("pv", name) if name else None) or {}

    def refresh(self, pod: Manifest) -> None:
        """Update Secrets that changed while a pod runs, as when an operator writes its own certificates."""
        for volume in pod["spec"].get("volumes", []):
            if "secret" in volume:
                folder = self._make(pod["metadata"]["uid"], volume["name"])
                if not any(folder.iterdir()):
                    self._write(folder, self.data("secret", volume["secret"]["secretName"], pod))

    def _folder(self, volume: Manifest, pod: Manifest) -> Path | None:
        """A volume's folder, or None for kinds that only a real node has."""
        if claim := volume.get("persistentVolumeClaim"):
            return self.claim(pod["metadata"]["namespace"], claim["claimName"])
        if "emptyDir" in volume:
            folder = self._make(pod["metadata"]["uid"], volume["name"])
            folder.chmod(0o777)
            return folder
        for kind, key, field in (("configmap", "configMap", "name"), ("secret", "secret", "secretName")):
            if key in volume:
                folder = self._make(pod["metadata"]["uid"], volume["name"])
                self._write(folder, self.data(kind, volume[key][field], pod))
                return folder
        return None

    def _account(self, pod: Manifest) -> Path:
        """A pod's credentials: a token of its service account, and the CA certificate to trust."""
        namespace, folder = pod["metadata"]["namespace"], self._make(pod["metadata"]["uid"], "account")
        account = pod["spec"].get("serviceAccountName", "default")
        token = self._kubectl.run("create", "token", account, "-n", namespace, "--duration=24h").strip()
        authority = self._workspace / "ca.crt"
        shutil.copy(authority, folder / "ca.crt")
        self._write(folder, {"token": token, "namespace": namespace})
        return folder

    def _make(self, *parts: str) -> Path:
        folder = self._workspace.joinpath("volumes", *parts)
        with self._lock:
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @staticmethod
    def _write(folder: Path, files: dict[str, str]) -> None:
        # Files appear atomically, and a key before its certificate, so whoever waits for the certificate finds both.
        for name in sorted(files, reverse=True):
            unfinished = folder / f"..{name}"
            unfinished.touch(mode=0o644)
            unfinished.write_text(files[name])
            unfinished.replace(folder / name)
