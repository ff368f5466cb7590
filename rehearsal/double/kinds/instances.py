"""EC2 instances: launch, wait, look, change in place, end."""

import base64
from collections.abc import Mapping
from typing import Any

from contract.errors import CloudError
from rehearsal.double import tagging
from rehearsal.double.session import AwsError, Session
from rehearsal.double.values import Values

ENDED = frozenset({"shutting-down", "terminated"})
STOPPED_FIRST = frozenset({"instanceType", "userData", "userDataBase64", "ebsOptimized"})
"""Changes that EC2 takes only from a stopped instance."""
METADATA = {
    "httpEndpoint": "HttpEndpoint",
    "httpProtocolIpv6": "HttpProtocolIpv6",
    "httpPutResponseHopLimit": "HttpPutResponseHopLimit",
    "httpTokens": "HttpTokens",
    "instanceMetadataTags": "InstanceMetadataTags",
}
ROOT = {
    "deleteOnTermination": "DeleteOnTermination",
    "encrypted": "Encrypted",
    "iops": "Iops",
    "throughput": "Throughput",
    "volumeSize": "VolumeSize",
    "volumeType": "VolumeType",
}
PLAIN = {
    "ami": "ImageId",
    "instanceType": "InstanceType",
    "keyName": "KeyName",
    "disableApiStop": "DisableApiStop",
    "disableApiTermination": "DisableApiTermination",
    "ebsOptimized": "EbsOptimized",
    "instanceInitiatedShutdownBehavior": "InstanceInitiatedShutdownBehavior",
}


def launch_params(session: Session, inputs: Values, root_device: str) -> dict[str, Any]:
    """What RunInstances is asked.

    Args:
        session: for the default tags.
        inputs: the checked inputs.
        root_device: name of the image's root device.
    """
    params: dict[str, Any] = {"MinCount": 1, "MaxCount": 1}
    params |= {name: inputs[key] for key, name in PLAIN.items() if key in inputs}
    if "availabilityZone" in inputs:
        params["Placement"] = {"AvailabilityZone": inputs["availabilityZone"]}
    if "iamInstanceProfile" in inputs:
        params["IamInstanceProfile"] = {"Name": inputs["iamInstanceProfile"]}
    if inputs.get("monitoring"):
        params["Monitoring"] = {"Enabled": True}
    if "metadataOptions" in inputs:
        params["MetadataOptions"] = {METADATA[key]: value for key, value in inputs["metadataOptions"].items()}
    text = user_data_text(inputs)
    if text is not None:
        params["UserData"] = text
    root = {ROOT[key]: value for key, value in inputs.get("rootBlockDevice", {}).items() if key in ROOT}
    if root:
        params["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": root}]
    return params | _network(inputs) | _tags(session, inputs)


def _network(inputs: Values) -> dict[str, Any]:
    """A whole interface where the public address is asked for or refused, else EC2's short form, as the provider."""
    subnet, groups, address = inputs.get("subnetId"), inputs.get("vpcSecurityGroupIds"), inputs.get("privateIp")
    if "associatePublicIpAddress" in inputs:
        interface = {
            "DeviceIndex": 0,
            "AssociatePublicIpAddress": inputs["associatePublicIpAddress"],
            "DeleteOnTermination": True,
            "SubnetId": subnet,
            "Groups": groups,
            "PrivateIpAddress": address,
        }
        return {"NetworkInterfaces": [{key: value for key, value in interface.items() if value is not None}]}
    short = {"SubnetId": subnet, "SecurityGroupIds": groups, "PrivateIpAddress": address}
    return {key: value for key, value in short.items() if value is not None}


def _tags(session: Session, inputs: Values) -> dict[str, Any]:
    volume = session.default_tags | dict(inputs.get("volumeTags", {}))
    volume |= inputs.get("rootBlockDevice", {}).get("tags", {})
    specifications = [
        *tagging.specifications("instance", tagging.wanted(session, inputs)),
        *tagging.specifications("volume", volume),
    ]
    return {"TagSpecifications": specifications} if specifications else {}


def user_data_text(inputs: Values) -> str | None:
    """User data as text (boto makes base64 of it); None for none."""
    if "userDataBase64" in inputs:
        return base64.b64decode(inputs["userDataBase64"]).decode()
    text: str | None = inputs.get("userData")
    return text


class InstanceHandler:
    """`aws:ec2/instance:Instance`."""

    def create(self, session: Session, inputs: Values) -> str:
        """Launches it, in one try: a refusal for want of capacity reaches the person at once."""
        root = "/dev/sda1"
        if "rootBlockDevice" in inputs:
            images = session.ec2("describe_images", ImageIds=[inputs["ami"]])["Images"]
            root = images[0]["RootDeviceName"] if images else root
        params = launch_params(session, inputs, root)
        answer = session.call("ec2", "run_instances", attempts=1, **params)
        return str(answer["Instances"][0]["InstanceId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Waits until it runs."""
        self._wait(session, resource_id, "running")
        if not inputs.get("sourceDestCheck", True):
            session.ec2("modify_instance_attribute", InstanceId=resource_id, SourceDestCheck={"Value": False})

    def _wait(self, session: Session, instance_id: str, state: str) -> None:
        def seen() -> bool | None:
            instance = self._describe(session, instance_id)
            if instance is None:  # AWS may not show a new instance for a moment
                return True if state in ENDED else None
            now = instance["State"]["Name"]
            if now in ENDED and state not in ENDED:
                reason = instance.get("StateReason", {}).get("Message", "no reason given")
                raise CloudError(f"instance {instance_id} ended while it should become {state}", why=reason)
            return True if now == state else None

        session.wait(f"instance {instance_id}: state {state}", seen)

    def _describe(self, session: Session, instance_id: str) -> dict[str, Any] | None:
        try:
            reservations = session.ec2("describe_instances", InstanceIds=[instance_id])["Reservations"]
        except AwsError as failure:
            if failure.not_found:
                return None
            raise
        found: dict[str, Any] | None = reservations[0]["Instances"][0] if reservations else None
        return found

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The instance, its root volume and switches; None for one that has ended."""
        instance = self._describe(session, resource_id)
        if instance is None or instance["State"]["Name"] in ENDED:
            return None
        interfaces = sorted(instance["NetworkInterfaces"], key=lambda each: int(each["Attachment"]["DeviceIndex"]))
        primary = interfaces[0] if interfaces else {}
        profile = instance.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2]
        options = instance.get("MetadataOptions", {})
        return {
            "arn": session.arn("ec2", f"instance/{resource_id}"),
            "ami": instance["ImageId"],
            "instanceType": instance["InstanceType"],
            "instanceState": instance["State"]["Name"],
            "instanceLifecycle": instance.get("InstanceLifecycle", ""),
            "availabilityZone": instance["Placement"]["AvailabilityZone"],
            "tenancy": instance["Placement"].get("Tenancy", "default"),
            "subnetId": instance.get("SubnetId", ""),
            "vpcSecurityGroupIds": sorted(each["GroupId"] for each in instance["SecurityGroups"]),
            "keyName": instance.get("KeyName", ""),
            "iamInstanceProfile": profile,
            "privateIp": instance.get("PrivateIpAddress", ""),
            "privateDns": instance.get("PrivateDnsName", ""),
            "publicIp": instance.get("PublicIpAddress", ""),
            "publicDns": instance.get("PublicDnsName", ""),
            "associatePublicIpAddress": bool(primary.get("Association")),
            "primaryNetworkInterfaceId": primary.get("NetworkInterfaceId", ""),
            "monitoring": instance["Monitoring"]["State"] in {"enabled", "pending"},
            "ebsOptimized": instance.get("EbsOptimized", False),
            "sourceDestCheck": instance.get("SourceDestCheck", True),
            "metadataOptions": {key: options[name] for key, name in METADATA.items() if name in options},
            "outpostArn": "",
            "passwordData": "",
            "spotInstanceRequestId": "",
            "region": session.region,
            **self._switches(session, resource_id),
            **self._user_data(session, resource_id, state),
            **self._volumes(session, instance, state),
            **tagging.told(session, instance.get("Tags", []), state),
        }

    def _attribute(self, session: Session, instance_id: str, name: str) -> Any:  # noqa: ANN401 - boto's answers
        answer = session.ec2("describe_instance_attribute", InstanceId=instance_id, Attribute=name)
        return answer.get(name[0].upper() + name[1:], {}).get("Value")

    def _switches(self, session: Session, instance_id: str) -> Values:
        names = ("disableApiStop", "disableApiTermination", "instanceInitiatedShutdownBehavior")
        return {name: self._attribute(session, instance_id, name) for name in names}

    def _user_data(self, session: Session, instance_id: str, state: Values) -> Values:
        encoded = self._attribute(session, instance_id, "userData") or ""
        if "userDataBase64" in state:
            return {"userDataBase64": encoded}
        return {"userData": base64.b64decode(encoded).decode()} if encoded else {}

    def _volumes(self, session: Session, instance: Mapping[str, Any], state: Values) -> Values:
        mappings = {each["DeviceName"]: each["Ebs"] for each in instance["BlockDeviceMappings"]}
        device = instance["RootDeviceName"]
        if device not in mappings:
            return {}
        ids = [each["VolumeId"] for each in mappings.values()]
        volumes = {each["VolumeId"]: each for each in session.ec2("describe_volumes", VolumeIds=ids)["Volumes"]}
        root = volumes[mappings[device]["VolumeId"]]
        tags = {tag["Key"]: tag["Value"] for tag in root.get("Tags", [])}
        own = {key: value for key, value in tags.items() if session.default_tags.get(key) != value}
        found: Values = {
            "rootBlockDevice": {
                "deviceName": device,
                "volumeId": root["VolumeId"],
                "deleteOnTermination": mappings[device]["DeleteOnTermination"],
                "encrypted": root["Encrypted"],
                "iops": root.get("Iops", 0),
                "kmsKeyId": root.get("KmsKeyId", ""),
                "throughput": root.get("Throughput", 0),
                "volumeSize": root["Size"],
                "volumeType": root["VolumeType"],
                "tags": {} if "volumeTags" in state else own,
            }
        }
        return found | ({"volumeTags": own} if "volumeTags" in state else {})

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Changes it in place; stops and starts it where EC2 asks for that."""
        if changed & STOPPED_FIRST:
            session.ec2("stop_instances", InstanceIds=[resource_id])
            self._wait(session, resource_id, "stopped")
            self._change_stopped(session, resource_id, new, changed)
            session.ec2("start_instances", InstanceIds=[resource_id])
            self._wait(session, resource_id, "running")
        self._change_running(session, resource_id, new, changed)
        if "iamInstanceProfile" in changed:
            self._change_profile(session, resource_id, new.get("iamInstanceProfile", ""))
        if "rootBlockDevice" in changed:
            self._change_root(session, resource_id, old, new)
        if "volumeTags" in changed:
            volume_id = old["rootBlockDevice"]["volumeId"]
            before = {"tagsAll": session.default_tags | old.get("volumeTags", {})}
            tagging.update_ec2(session, volume_id, before, {"tags": new.get("volumeTags", {})})
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def _modify(self, session: Session, instance_id: str, **params: Any) -> None:  # noqa: ANN401 - boto's
        session.ec2("modify_instance_attribute", InstanceId=instance_id, **params)

    def _change_stopped(self, session: Session, instance_id: str, new: Values, changed: frozenset[str]) -> None:
        if "instanceType" in changed:
            self._modify(session, instance_id, InstanceType={"Value": new["instanceType"]})
        if "ebsOptimized" in changed:
            self._modify(session, instance_id, EbsOptimized={"Value": new["ebsOptimized"]})
        if changed & {"userData", "userDataBase64"}:
            self._modify(session, instance_id, UserData={"Value": (user_data_text(new) or "").encode()})

    def _change_running(self, session: Session, instance_id: str, new: Values, changed: frozenset[str]) -> None:
        for key, name in (
            ("disableApiTermination", "DisableApiTermination"),
            ("disableApiStop", "DisableApiStop"),
            ("sourceDestCheck", "SourceDestCheck"),
        ):
            if key in changed:
                self._modify(session, instance_id, **{name: {"Value": new[key]}})
        if "instanceInitiatedShutdownBehavior" in changed:
            behaviour = new["instanceInitiatedShutdownBehavior"]
            self._modify(session, instance_id, Attribute="instanceInitiatedShutdownBehavior", Value=behaviour)
        if "vpcSecurityGroupIds" in changed:
            self._modify(session, instance_id, Groups=new["vpcSecurityGroupIds"])
        if "monitoring" in changed:
            session.ec2("monitor_instances" if new["monitoring"] else "unmonitor_instances", InstanceIds=[instance_id])
        if "metadataOptions" in changed:
            options = {METADATA[key]: value for key, value in new["metadataOptions"].items()}
            session.ec2("modify_instance_metadata_options", InstanceId=instance_id, **options)

    def _change_profile(self, session: Session, instance_id: str, name: str) -> None:
        mine = [{"Name": "instance-id", "Values": [instance_id]}]
        found = session.ec2("describe_iam_instance_profile_associations", Filters=mine)[
            "IamInstanceProfileAssociations"
        ]
        if found and name:
            session.ec2(
                "replace_iam_instance_profile_association",
                AssociationId=found[0]["AssociationId"],
                IamInstanceProfile={"Name": name},
            )
        elif found:
            session.ec2("disassociate_iam_instance_profile", AssociationId=found[0]["AssociationId"])
        elif name:
            session.ec2("associate_iam_instance_profile", InstanceId=instance_id, IamInstanceProfile={"Name": name})

    def _change_root(self, session: Session, instance_id: str, old: Values, new: Values) -> None:
        have, want = old["rootBlockDevice"], new["rootBlockDevice"]
        differs = {key: value for key, value in want.items() if have.get(key) != value}
        sizes = {"volumeSize": "Size", "volumeType": "VolumeType", "iops": "Iops", "throughput": "Throughput"}
        changes = {sizes[key]: value for key, value in differs.items() if key in sizes}
        if changes:
            session.ec2("modify_volume", VolumeId=have["volumeId"], **changes)
        if "deleteOnTermination" in differs:
            ebs = {"DeleteOnTermination": differs["deleteOnTermination"]}
            mapping = {"DeviceName": have["deviceName"], "Ebs": ebs}
            self._modify(session, instance_id, BlockDeviceMappings=[mapping])
        if "tags" in differs:
            before = {"tagsAll": session.default_tags | have.get("tags", {})}
            tagging.update_ec2(session, have["volumeId"], before, {"tags": want["tags"]})

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Ends it and waits until it has ended."""
        instance = self._describe(session, resource_id)
        if instance is None or instance["State"]["Name"] == "terminated":
            return
        if state.get("forceDestroy"):
            self._modify(session, resource_id, DisableApiTermination={"Value": False})
        session.ec2("terminate_instances", InstanceIds=[resource_id])
        self._wait(session, resource_id, "terminated")
