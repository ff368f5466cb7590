"""A small cluster through the provider's SDK: one of every type that the double knows."""

import json
import os
from pathlib import Path

import pulumi
import pulumi_aws as aws

wanted = json.loads(Path("wanted.json").read_text())
url = os.environ["AWS_ENDPOINT_URL"]
provider = aws.Provider(
    "aws",
    region="eu-west-1",
    allowed_account_ids=[os.environ["ENGINE_ACCOUNT"]],
    max_retries=3,
    endpoints=[{"ec2": url, "iam": url, "sts": url, "ssm": url, "s3": url}],
    s3_use_path_style=True,
    skip_metadata_api_check=True,
)
opts = pulumi.ResourceOptions(provider=provider)
tags = {"rayrig:cluster": "engine"}

vpc = aws.ec2.Vpc("vpc", cidr_block="10.77.0.0/16", enable_dns_hostnames=True, tags=tags, opts=opts)
subnet = aws.ec2.Subnet(
    "subnet",
    vpc_id=vpc.id,
    cidr_block="10.77.0.0/20",
    availability_zone="eu-west-1a",
    map_public_ip_on_launch=True,
    tags=tags | wanted.get("subnet_tags", {}),
    opts=opts,
)
gateway = aws.ec2.InternetGateway("gateway", vpc_id=vpc.id, tags=tags, opts=opts)
table = aws.ec2.RouteTable("table", vpc_id=vpc.id, tags=tags, opts=opts)
route = aws.ec2.Route(
    "route", route_table_id=table.id, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.id, opts=opts
)
link = aws.ec2.RouteTableAssociation("link", route_table_id=table.id, subnet_id=subnet.id, opts=opts)
group = aws.ec2.SecurityGroup("group", description="cluster", vpc_id=vpc.id, tags=tags, opts=opts)
aws.vpc.SecurityGroupIngressRule(
    "ssh",
    security_group_id=group.id,
    ip_protocol="tcp",
    from_port=wanted.get("ssh_port", 22),
    to_port=wanted.get("ssh_port", 22),
    cidr_ipv4="198.18.77.1/32",
    description="ssh",
    opts=opts,
)
aws.vpc.SecurityGroupIngressRule(
    "own",
    security_group_id=group.id,
    ip_protocol="tcp",
    from_port=0,
    to_port=65535,
    referenced_security_group_id=group.id,
    description="inside",
    opts=opts,
)
aws.vpc.SecurityGroupEgressRule("out", security_group_id=group.id, ip_protocol="-1", cidr_ipv4="0.0.0.0/0", opts=opts)
key = aws.ec2.KeyPair(
    "key",
    public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl engine",
    opts=opts,
)
trust = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
role = aws.iam.Role("role", assume_role_policy=json.dumps(trust), tags=tags, opts=opts)
reads = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
policy = aws.iam.RolePolicy("policy", role=role.name, policy=json.dumps(reads), opts=opts)
profile = aws.iam.InstanceProfile("profile", role=role.name, tags=tags, opts=opts)
names = wanted.get("nodes", ["head", "worker-1"])
nodes = [
    aws.ec2.Instance(
        name,
        ami="ami-0a11ce0024040001",
        instance_type="m7i.large",
        subnet_id=subnet.id,
        vpc_security_group_ids=[group.id],
        key_name=key.key_name,
        iam_instance_profile=profile.name,
        instance_initiated_shutdown_behavior="terminate",
        user_data=wanted.get("user_data", "#!/bin/sh\n"),
        user_data_replace_on_change=True,
        metadata_options={"http_tokens": "required", "http_endpoint": "enabled", "instance_metadata_tags": "enabled"},
        root_block_device={
            "volume_size": 30,
            "volume_type": "gp3",
            "iops": 4000,
            "throughput": 500,
            "encrypted": True,
        },
        volume_tags=tags,
        tags=tags | {"Name": name},
        opts=pulumi.ResourceOptions(provider=provider, depends_on=[route, link, policy]),
    )
    for name in names
]
pulumi.export("addresses", {name: node.private_ip for name, node in zip(names, nodes, strict=True)})
