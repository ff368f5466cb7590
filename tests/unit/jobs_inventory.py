"""An inventory of one head, as it is on the wire."""

INVENTORY = {
    "schemaVersion": 1,
    "clusterId": "dev-abc",
    "stack": "dev",
    "accountId": "000012345678",
    "region": "eu-west-1",
    "availabilityZone": "eu-west-1a",
    "endpoint": {"kind": "aws"},
    "nodes": [
        {
            "name": "head",
            "role": "head",
            "instanceId": "i-1",
            "instanceType": "m7i.large",
            "cpuCount": 2,
            "memoryBytes": 8,
            "gpuCount": 0,
            "privateIp": "10.77.0.4",
        }
    ],
    "access": {"method": "ssh", "user": "ubuntu"},
    "image": {"reference": "r/x@sha256:" + "a" * 64},
    "storage": {"bucket": "b", "resultsUri": "s3://b/runs/dev", "clusterUri": "s3://b/clusters/dev-abc"},
    "deadline": "2100-01-01T00:00:00Z",
}
