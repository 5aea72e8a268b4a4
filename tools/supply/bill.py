"""What this project consists of, as a software bill of materials (CycloneDX 1.6) and a list of licences: ``make sbom``.

Components are the locked Python packages, ``required`` those that `pulumi up` needs, the Helm charts of EKS stacks with
their digests, and the packages of `hyperpod containers`. The Go modules in ``tools/`` are not in it: nothing that is
deployed has them, and ``go.sum`` locks them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from components.kubernetes.charts import HYPERPOD, KUEUE
from operations.deployment.containers import PACKAGES as CONTAINERS
from tools.supply.licences import Package, licence, packages, refused

ROOT = Path(__file__).parents[2]
_LICENCES = LicenseFactory()


def bill(root: Path = ROOT) -> str:
    """The bill of materials, as JSON."""
    project = Component(name="hyperpod-pulumi", type=ComponentType.APPLICATION, licenses=_licensed("Apache-2.0"))
    made = Bom(components=[*(_package(one) for one in packages(root)), *_charts(), *_containers()])
    made.metadata.component = project
    made.register_dependency(project, made.components)
    return JsonV1Dot6(made).output_as_string(indent=2)


def _package(package: Package) -> Component:
    address = PackageURL(type="pypi", name=package.name, version=package.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/project/{package.name}/{package.version}/#files"),
        hashes=[_sha256(digest) for digest in package.digests],
    )
    return Component(
        name=package.name,
        version=package.version,
        bom_ref=str(address),
        purl=address,
        scope=ComponentScope.REQUIRED if package.deployed else ComponentScope.OPTIONAL,
        licenses=_licensed(licence(package.name)),
        external_references=[files],
    )


def _charts() -> Iterator[Component]:
    """An archive has an address only: the digest is of the folder in it (components/kubernetes/charts.py)."""
    for chart in (HYPERPOD, KUEUE):
        yield _chart(chart.name, chart.version, chart.archive, ())
        for needed in chart.dependencies:
            yield _chart(needed.name, needed.version, needed.url, (_sha256(needed.sha256),))


def _containers() -> Iterator[Component]:
    """Where no digest is published, the user's folder has it (operations/deployment/containers.py)."""
    for package in CONTAINERS:
        address = PackageURL(
            type="generic", name=package.name, version=package.version, qualifiers={"download_url": package.url}
        )
        yield Component(
            name=package.name,
            version=package.version,
            bom_ref=str(address),
            purl=address,
            scope=ComponentScope.OPTIONAL,
            licenses=_licensed(package.licence),
            external_references=[ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(package.url))],
        )


def _chart(name: str, version: str, url: str, hashes: Sequence[HashType]) -> Component:
    address = PackageURL(type="generic", name=name, version=version, qualifiers={"download_url": url})
    source = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(url))
    return Component(
        name=name, version=version, bom_ref=str(address), purl=address, hashes=hashes, external_references=[source]
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def _licensed(expression: str | None) -> list[License]:
    return [_LICENCES.make_from_string(expression)] if expression else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bill and print the licences; 1 if a package has none, or one that is not accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "sbom.cdx.json", metavar="FILE")
    chosen = parser.parse_args(arguments)
    chosen.output.write_text(bill() + "\n")
    good = True
    for package in packages(ROOT):
        said = licence(package.name)
        bad = refused(package.name, said) if said else ["unknown"]
        good &= not bad
        print(
            f"{package.name:42} {package.version:16} {said or '?'}{'  NOT ACCEPTED: ' + ', '.join(bad) if bad else ''}"
        )
    print(f"\n{chosen.output}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
