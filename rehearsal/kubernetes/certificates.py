"""A control plane's certificates: one authority, the API server's, and a client certificate per component."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A run takes minutes; the certificates are worthless after a day.
_LIFETIME = datetime.timedelta(days=1)
_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


class Authority:
    """Issues certificates into a folder. Only the owner can read the private keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("hyperpod-rehearsal")
        self.certificate = folder / "ca.crt"
        issued = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.certificate.write_bytes(_pem(issued.sign(self._key, hashes.SHA256())))

    def server(self, addresses: list[str]) -> tuple[Path, Path]:
        """The API server's certificate and key, valid for these IP addresses and the names that pods use."""
        names = [x509.DNSName(name) for name in _SERVICE_NAMES]
        names_and_addresses = [*names, *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
        return self._issue("kube-apiserver", "", [ExtendedKeyUsageOID.SERVER_AUTH], names_and_addresses)

    def client(self, user: str, group: str = "") -> tuple[Path, Path]:
        """A user's certificate and key. Kubernetes reads the common name as user and the organisation as group."""
        return self._issue(user, group, [ExtendedKeyUsageOID.CLIENT_AUTH], [])

    def signing_key(self, name: str) -> tuple[Path, Path]:
        """A public and a private key without a certificate, for service account tokens."""
        key, public = ec.generate_private_key(ec.SECP256R1()), self.folder / f"{name}.pub"
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
        return public, self._write_key(name, key)

    def _issue(
        self, user: str, group: str, usages: list[x509.ObjectIdentifier], names: list[x509.GeneralName]
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(user, group), key).add_extension(x509.ExtendedKeyUsage(usages), False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        file = user.replace(":", "-")
        certificate = self.folder / f"{file}.crt"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        return certificate, self._write_key(file, key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _LIFETIME)
        )

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self.folder / f"{name}.key"
        path.touch(mode=0o600)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return path


def _name(common: str, organisation: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organisation:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
