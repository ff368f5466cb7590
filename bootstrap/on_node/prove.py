"""Runs in the head's container as a Ray driver: proves every node by what it does, then saves the proof.

Argument: {"address", "gcs_address", "dashboard_port", "nodes": [{"name", "ip", "gpus", "shm_bytes"}], "cluster_uri",
"cluster_id", "task_seconds", "proof_seconds", "earlier": {...}}. Answers line by line: progress lines
`{"progress": …}`, at the end `{"ok", "failures", "document"}`.

Proofs per node: a task, objects fetched from the other nodes, an actor that runs the image's
verification, a nonce written to shared storage and read back on the head, GPUs as wanted, and an age beyond what Ray
needs to notice a deaf node.
"""

import http.client
import json
import os
import secrets
import sys
import time
import typing
from datetime import datetime, timezone
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

OBJECT_BYTES = 2 * 2**20
"""Large enough to live in the object store (Ray inlines up to 100 KiB)."""
AGE_POLL_SECONDS = 0.25
ALL_PAIRS_NODES = 16
RING_NEIGHBOURS = 3


def say(text: str) -> None:
    """One progress line."""
    print(json.dumps({"progress": text}), flush=True)


def make_object(size: int) -> "tuple[str, bytes]":
    """A task that leaves an object on its node."""
    return ray.get_runtime_context().get_node_id(), os.urandom(1) * size


def sources(names: "list[str]", name: str) -> "list[str]":
    """Whose objects a node fetches: everybody else's, on a large cluster the head's and the next ones' in a ring."""
    if len(names) <= ALL_PAIRS_NODES:
        return [other for other in names if other != name]
    at = names.index(name)
    ring = [names[(at + step) % len(names)] for step in range(1, RING_NEIGHBOURS + 1)]
    return [other for other in dict.fromkeys([names[0], *ring]) if other != name]


class Prober:
    """An actor pinned to one node."""

    def fetch(self, objects: "list[typing.Any]") -> "list[int]":
        """Sizes of objects that other nodes made."""
        return [len(ray.get(reference)[1]) for reference in objects]

    def verify(self, gpus: int, shm_bytes: int) -> "dict[str, typing.Any]":
        """The image's verification, in a Ray worker process as jobs have it.

        The GPUs are looked at past Ray, which hides them from whoever reserved none: a job may hold them all.
        """
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        from images.verify import as_json, verify  # noqa: PLC0415 - exists in the image only

        return dict(json.loads(as_json(verify(gpus=gpus, shm_bytes=shm_bytes))))

    def write(self, uri: str, nonce: str) -> str:
        """Writes to shared storage and reads it back."""
        import fsspec  # noqa: PLC0415 - half a second

        with fsspec.open(uri, "w") as file:
            file.write(nonce)
        with fsspec.open(uri, "r") as file:
            return str(file.read())


class Proof:
    """Collects what was seen and what failed."""

    def __init__(self, asked: "dict[str, typing.Any]") -> None:
        self.asked = asked
        self.nodes: list[dict[str, typing.Any]] = asked["nodes"]
        self.by_ip = {node["ip"]: node for node in self.nodes}
        self.failures: list[str] = []
        self.seen: dict[str, dict[str, typing.Any]] = {node["name"]: {} for node in self.nodes}
        self.ids: dict[str, str] = {}
        self.strangers: list[str] = []
        self.nonce = secrets.token_hex(8)

    def gather(self, what: str, references: "dict[str, typing.Any]", seconds: float) -> "dict[str, typing.Any]":
        """Results by node name; a failure or a deadline is noted with the node's name."""
        ready, _ = ray.wait(list(references.values()), num_returns=len(references), timeout=seconds)
        results = {}
        for name, reference in references.items():
            if reference not in ready:
                self.failures.append(
                    f"{name}: {what} did not finish within {seconds:g} s; Ray's worker ports between it and the others"
                    " are shut, or it is overloaded"
                )
                continue
            try:
                results[name] = ray.get(reference)
            except ray.exceptions.RayError as error:
                self.failures.append(f"{name}: {what} failed: {str(error).strip().splitlines()[-1]}")
        return results

    def find_nodes(self) -> None:
        """Ray's node ids by name; each address alive exactly once, with the CPUs and GPUs that were asked for."""
        alive = [node for node in ray.nodes() if node["Alive"]]
        for node in self.nodes:
            mine = [a for a in alive if a["NodeManagerAddress"] == node["ip"]]
            if len(mine) != 1:
                self.failures.append(f"{node['name']}: Ray lists {len(mine)} alive nodes at {node['ip']}, not one")
                continue
            self.ids[node["name"]] = mine[0]["NodeID"]
            gpus = int(mine[0]["Resources"].get("GPU", 0))
            if gpus != node["gpus"]:
                self.failures.append(f"{node['name']}: Ray offers {gpus} GPUs, the instance type has {node['gpus']}")
        self.strangers = sorted({a["NodeManagerAddress"] for a in alive} - set(self.by_ip))
        if self.strangers:
            # No failure: it has the token, so it is a node of an earlier `up`, whose instance Pulumi ends after us.
            say(f"still in Ray, but not of this cluster any more: {', '.join(self.strangers)}")

    def on(self, name: str) -> NodeAffinitySchedulingStrategy:
        """Runs on this node or nowhere."""
        return NodeAffinitySchedulingStrategy(self.ids[name], soft=False)

    def tasks(self) -> "dict[str, typing.Any]":
        """A task on each node that leaves an object there, read here."""
        task: typing.Any = ray.remote(num_cpus=0, max_retries=0)(make_object)
        objects = {n: task.options(scheduling_strategy=self.on(n)).remote(OBJECT_BYTES) for n in self.ids}
        for name in self.gather("a task", objects, self.asked["task_seconds"]):
            self.seen[name]["task"] = True
        return objects

    def actors(self, objects: "dict[str, typing.Any]") -> None:
        """An actor on each node: fetches all others' objects, verifies the image, writes to shared storage.

        Only once the tasks are done, so that it takes over their worker process instead of starting one more.
        """
        seconds = self.asked["task_seconds"]
        prober: typing.Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Prober)
        prefix = f"{self.asked['cluster_uri']}/readiness"
        fetches, checks, writes = {}, {}, {}
        for node in self.nodes:
            name = node["name"]
            actor = prober.options(scheduling_strategy=self.on(name)).remote()
            fetches[name] = actor.fetch.remote([objects[other] for other in sources(list(self.ids), name)])
            checks[name] = actor.verify.remote(node["gpus"], node["shm_bytes"])
            writes[name] = actor.write.remote(f"{prefix}/{name}", f"{self.nonce}-{name}")
        for name, sizes in self.gather("an object fetch across nodes", fetches, seconds).items():
            self.seen[name]["objects_fetched"] = len(sizes)
            if any(size != OBJECT_BYTES for size in sizes):
                self.failures.append(f"{name}: an object fetched from another node has the wrong size: {sizes}")
        if self.failures:
            return
        say("objects went both ways between all nodes")
        for name, report in self.gather("an actor with the image's verification", checks, 3 * seconds).items():
            self.seen[name].update({"actor": True, "versions": report["versions"], "checks": report["checks"]})
            self.failures += [f"{name}: {c['name']}: {c['detail']}" for c in report["checks"] if not c["ok"]]
        if self.failures:
            return
        say("the image is verified on every node")
        self.storage(self.gather("a write to shared storage", writes, seconds), prefix)

    def storage(self, written: "dict[str, str]", prefix: str) -> None:
        """Every nonce read on the head, whoever wrote it."""
        import fsspec  # noqa: PLC0415 - half a second

        for name, echoed in written.items():
            try:
                with fsspec.open(f"{prefix}/{name}", "r") as file:
                    read = file.read()
            except OSError as error:
                self.failures.append(f"head: what {name} wrote to shared storage cannot be read: {error}")
                continue
            good = echoed == read == f"{self.nonce}-{name}"
            self.seen[name]["storage"] = good
            if not good:
                self.failures.append(f"{name}: shared storage gave {read!r} instead of what the node wrote")
        if not self.failures:
            say("shared storage works on every node")

    def versions_equal(self) -> None:
        """The same versions everywhere."""
        keys = sorted({key for seen in self.seen.values() for key in seen.get("versions", {})} - {"driver"})
        for key in keys:
            values = {name: seen["versions"].get(key) for name, seen in self.seen.items() if "versions" in seen}
            if len(set(values.values())) > 1:
                self.failures.append(f"{key} differs: {', '.join(f'{n} {v}' for n, v in values.items())}")

    def ages(self) -> None:
        """Waits until every node has been alive for longer than Ray needs to notice that it is deaf."""
        wanted = self.asked["proof_seconds"]
        end = time.monotonic() + wanted + 10
        told = False
        while True:
            rows = {row["node_ip"]: row for row in self.state() if row["state"] == "ALIVE"}
            lost = [node["name"] for node in self.nodes if node["ip"] not in rows]
            if lost:
                self.failures.append(f"no longer alive in Ray: {', '.join(lost)}; its raylet ports may be shut")
                return
            ages = {n["name"]: time.time() - rows[n["ip"]]["start_time_ms"] / 1000 for n in self.nodes}
            if all(age >= wanted for age in ages.values()):
                for name, age in ages.items():
                    self.seen[name]["alive_seconds"] = round(age, 1)
                return
            if time.monotonic() > end:
                self.failures.append(f"node ages {ages} do not reach {wanted:g} s: do the clocks agree?")
                return
            if not told:
                told = True
                say(f"waiting until every node is alive for {wanted:g} s (now {min(ages.values()):.0f} s)")
            time.sleep(AGE_POLL_SECONDS)

    def state(self) -> "list[dict[str, typing.Any]]":
        """GCS's node table, through the dashboard."""
        bearer = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text(encoding="utf-8").strip()
        connection = http.client.HTTPConnection("127.0.0.1", self.asked["dashboard_port"], timeout=15)
        connection.request(
            "GET", "/api/v0/nodes?detail=true&limit=10000", headers={"Authorization": f"Bearer {bearer}"}
        )
        try:
            return list(json.loads(connection.getresponse().read())["data"]["result"]["result"])
        finally:
            connection.close()

    def save(self) -> "dict[str, typing.Any]":
        """Writes the proof beside the cluster's other documents."""
        import fsspec  # noqa: PLC0415 - half a second

        document = {
            "schemaVersion": 1,
            "clusterId": self.asked["cluster_id"],
            "provenAt": datetime.now(timezone.utc).isoformat(),  # noqa: UP017 - the node's Python may be 3.10
            "nodes": {n["name"]: {**self.seen[n["name"]], "ip": n["ip"], "gpus": n["gpus"]} for n in self.nodes},
            "strangers": self.strangers,
            **self.asked["earlier"],
        }
        with fsspec.open(f"{self.asked['cluster_uri']}/readiness.json", "w") as file:
            file.write(json.dumps(document, indent=1))
        return document


def main() -> None:
    """Proves, saves, answers."""
    asked = json.loads(sys.argv[1])
    ray.init(
        address=asked["gcs_address"],
        _node_ip_address=asked["address"],
        namespace="rayrig-readiness",
        log_to_driver=False,
        logging_level="ERROR",
    )
    proof = Proof(asked)
    proof.find_nodes()
    if not proof.failures:
        objects = proof.tasks()
        if not proof.failures:
            say("a task ran on every node")
            proof.actors(objects)
            proof.versions_equal()
    if not proof.failures:
        proof.ages()
    document = proof.save() if not proof.failures else None
    print(json.dumps({"ok": not proof.failures, "failures": proof.failures, "document": document}), flush=True)


if __name__ == "__main__":
    main()
