"""Checks images of one's own before the first resource of a stack is created."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.catalogue.accelerators import InstanceType, lookup

from ..target import Target
from .lack import Lack

# SageMaker Developer Guide, "Cluster management with custom AMIs": the tag by which its policy limits what is shared.
SHARED_TAG = ("AllowSharing", "true")


def lacks(target: Target) -> Iterator[Lack]:
    """Why HyperPod could not start nodes with the images that the configuration names.

    SageMaker API Reference, ClusterInstanceGroupSpecification, ImageId; "Build a custom AMI".
    """
    settings = target.config.settings
    groups = {
        f"hyperpod:workers[{number}].imageId": (group.image_id, lookup(group.instance_type))
        for number, group in enumerate(settings.groups)
        if group.image_id
    }
    if not groups:
        return
    ids = sorted({name for name, _ in groups.values()})
    # By a filter, EC2 leaves out what is not there, and does not refuse the whole question.
    only = [{"Name": "image-id", "Values": ids}]
    found = {one["ImageId"]: one for one in target.aws.pages("ec2", "describe_images", "Images", Filters=only)}
    account = target.aws.account_id
    for key, (name, row) in groups.items():
        if name in found:
            yield from _defects(key, row, found[name], account, settings.security.kms_key)
        else:
            yield Lack(what=f"{key}: there is no image {name} in {target.aws.region}", fix="an image of this region")


def _defects(
    key: str, row: InstanceType, image: Mapping[str, Any], account: str, kms_key: str | None
) -> Iterator[Lack]:
    name, public = image["ImageId"], image.get("ImageOwnerAlias") == "amazon"
    if image["OwnerId"] != account and not public:
        yield Lack(what=f"{key}: {name} belongs to {image['OwnerId']}", fix=f"a copy that {account} owns")
    if (state := image.get("State", "available")) != "available":
        yield Lack(what=f"{key}: {name} is {state}", fix="wait until it is available")
    if image["Architecture"] != row.architecture:
        yield Lack(
            what=f"{key}: {name} is for {image['Architecture']}, and {row.name} has {row.architecture}",
            fix=f"an image for {row.architecture}",
        )
    disks = [one["Ebs"] for one in image.get("BlockDeviceMappings", []) if "Ebs" in one]
    if len(disks) > 1:
        yield Lack(what=f"{key}: {name} has {len(disks)} volumes", fix="an image with only its root volume")
    if any(disk.get("Encrypted") for disk in disks) and not kms_key:
        yield Lack(
            what=f"{key}: {name} is encrypted",
            fix="an unencrypted image, or its key as hyperpod:security.kmsKey, which encrypts root volumes too",
        )
    snapshots = " ".join(disk["SnapshotId"] for disk in disks if "SnapshotId" in disk)
    if not public and SHARED_TAG not in [(tag["Key"], tag["Value"]) for tag in image.get("Tags", [])]:
        yield Lack(
            what=f"{key}: {name} has no tag {'='.join(SHARED_TAG)}, without which the policy of `hyperpod policy` does "
            "not allow its deployer to share it with HyperPod",
            fix=f"aws ec2 create-tags --resources {name} {snapshots} --tags Key={SHARED_TAG[0]},Value={SHARED_TAG[1]}",
            sure=False,
        )
