"""A real Kubernetes control plane on this machine; kwok plays the kubelets."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import yaml

from ..patience import until
from .certificates import Authority
from .kubectl import Kubectl, Refused
from .network import own_address
from .processes import Process, Processes, free_ports

# EKS's service block if the VPC uses the lower part of 10.0.0.0/8 (Amazon EKS User Guide, "VPC and subnets").
_SERVICE_CIDR = "172.20.0.0/16"
_ISSUER = "https://kubernetes.default.svc"
_READY_SECONDS = 90.0
ADMIN = "rehearsal-admin"
# Labels of pods whose programs really run here (see operators.py): their state is not kwok's to play.
PLAYED_LABEL = "rehearsal.hyperpod/process"


class ControlPlaneError(Exception):
    """A component did not come up. The text has the end of its log."""


class ControlPlane:
    """Owns the processes and the folder with their keys and data. Both are removed when the context ends.

    ``kubelets``: names of nodes that have a token of their own, as EKS's authenticator gives nodes. A node is lost
    that has not renewed its lease for ``lease_seconds``: more where many nodes share this machine.
    """

    def __init__(self, binaries: Mapping[str, Path], kubelets: Iterable[str] = (), *, lease_seconds: int = 40) -> None:
        self.binaries, self._lease_seconds = binaries, lease_seconds
        self.kubelet_tokens = {name: secrets.token_hex(16) for name in kubelets}
        self.address = own_address()
        self.folder = Path(tempfile.mkdtemp(prefix="rehearsal-kubernetes-"))
        self.processes = Processes(self.folder)
        self._etcd_port, self._etcd_peers, self.port, self._kwok_port = free_ports(4)
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubectl = Kubectl(binaries, self.folder / "admin.kubeconfig")

    def __enter__(self) -> ControlPlane:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def ca_certificate(self) -> Path:
        """The CA certificate that clients trust."""
        return self._authority.certificate

    def client(self, user: str, group: str = "") -> tuple[Path, Path]:
        """A user's certificate and key."""
        return self._authority.client(user, group)

    def check(self) -> None:
        """Raise ControlPlaneError if a component has ended."""
        for process in self.processes.running:
            if process.code is not None:
                raise ControlPlaneError(f"{process.name} ended with {process.code}: {process.last_words()}")

    def kubeconfig(self, name: str, user: Mapping[str, str]) -> Path:
        """A kubeconfig with a user's credentials, readable only by its owner."""
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        cluster = {"server": self.url, "certificate-authority": str(self.ca_certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rehearsal", "cluster": cluster}],
            "users": [{"name": name, "user": dict(user)}],
            "contexts": [{"name": name, "context": {"cluster": "rehearsal", "user": name}}],
            "current-context": name,
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def _start(self) -> None:
        self._authority = Authority(self.folder)
        self._user(ADMIN, "system:masters", name="admin")
        etcd = self._start_etcd()
        server = self._start_api_server()
        self._wait(server, etcd)
        manager = self._user("system:kube-controller-manager")
        scheduler = self._user("system:kube-scheduler")
        fast = ("--kube-api-qps=200", "--kube-api-burst=400", "--leader-elect=false", "--secure-port=0")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={manager}",
            *fast,
            # Kubernetes' own relation of the two is 40 to 50 seconds.
            f"--node-monitor-grace-period={self._lease_seconds * 5 // 4}s",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._signing_key}",
            f"--root-ca-file={self.ca_certificate}",
        )
        self._run("kube-scheduler", f"--kubeconfig={scheduler}", *fast)
        self._start_kwok()

    def _start_etcd(self) -> Process:
        client, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._etcd_peers}"
        return self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            # Nothing of it outlives the run.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_api_server(self) -> Process:
        certificate, key = self._authority.server(["127.0.0.1", self.address, _first_service_address()])
        public, self._signing_key = self._authority.signing_key("service-accounts")
        proxy, proxy_key = self._authority.client("front-proxy-client")
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        rows = (f'{token},system:node:{name},{name},"system:nodes"' for name, token in self.kubelet_tokens.items())
        tokens.write_text("".join(f"{row}\n" for row in rows))
        return self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            # Nothing connects through its own Service, and Kubernetes refuses loopback addresses there.
            "--endpoint-reconciler-type=none",
            f"--advertise-address={self.address}",
            f"--service-cluster-ip-range={_SERVICE_CIDR}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.ca_certificate}",
            "--authorization-mode=Node,RBAC",
            # What EKS enables besides Kubernetes' defaults (EKS User Guide, "View Amazon EKS platform versions").
            "--enable-admission-plugins=NodeRestriction,ExtendedResourceToleration",
            "--anonymous-auth=false",
            *([f"--token-auth-file={tokens}"] if self.kubelet_tokens else []),
            "--allow-privileged=true",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={self._signing_key}",
            # Webhooks and aggregated APIs are called at their endpoints, since there is no kube-proxy.
            "--enable-aggregator-routing=true",
            f"--proxy-client-cert-file={proxy}",
            f"--proxy-client-key-file={proxy_key}",
            f"--requestheader-client-ca-file={self.ca_certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        )

    def _start_kwok(self) -> None:
        stages = self.folder / "kwok.yaml"
        shutil.copy(Path(__file__).with_name("kwok.yaml"), stages)
        self._run(
            "kwok",
            f"--kubeconfig={self._user('kwok', 'system:masters')}",
            f"--config={stages}",
            "--manage-all-nodes=true",
            f"--node-lease-duration-seconds={self._lease_seconds}",
            "--cidr=10.0.0.1/16",
            f"--node-ip={self.address}",
            f"--server-address=127.0.0.1:{self._kwok_port}",
        )

    def _user(self, user: str, group: str = "", *, name: str = "") -> Path:
        certificate, key = self.client(user, group)
        credentials = {"client-certificate": str(certificate), "client-key": str(key)}
        return self.kubeconfig(name or user.replace(":", "-"), credentials)

    def _run(self, name: str, *arguments: str) -> Process:
        return self.processes.start(name, [self.binaries[name], *arguments])

    def _wait(self, *needed: Process) -> None:
        def ready() -> bool:
            for process in needed:
                if process.code is not None:
                    raise ControlPlaneError(f"{process.name} ended with {process.code}: {process.last_words()}")
            try:
                return self.kubectl.run("get", "--raw", "/readyz") == "ok"
            except Refused:
                return False

        if not until(ready, _READY_SECONDS):
            raise ControlPlaneError(f"no API server after {_READY_SECONDS:.0f} s: {needed[0].last_words()}")

    def _end(self) -> None:
        self.processes.stop_all()
        shutil.rmtree(self.folder, ignore_errors=True)


def _first_service_address() -> str:
    """The address of the ``kubernetes`` service: the first of the block."""
    return _SERVICE_CIDR.replace(".0.0/16", ".0.1")
