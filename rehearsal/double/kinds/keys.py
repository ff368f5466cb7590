"""Key pairs."""

from rehearsal.double import tagging
from rehearsal.double.kinds.network import one
from rehearsal.double.session import Session, tolerated
from rehearsal.double.table import REGION, TAGS, UNSIMULATED, Property, Table, matching
from rehearsal.double.values import Values

PUBLIC_KEY = r"(ssh-(rsa|ed25519)|ecdsa-sha2-nistp\d+) [A-Za-z0-9+/]+=*( [^\r\n]*)?\s*"


class KeyPairHandler:
    """`aws:ec2/keyPair:KeyPair`; its id is the name."""

    def create(self, session: Session, inputs: Values) -> str:
        """Imports the public key."""
        session.ec2(
            "import_key_pair",
            KeyName=inputs["keyName"],
            PublicKeyMaterial=inputs["publicKey"].encode(),
            TagSpecifications=tagging.specifications("key-pair", tagging.wanted(session, inputs)),
        )
        return str(inputs["keyName"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The key pair; AWS does not give the comment of the public key back."""
        pair = one(session.ec2("describe_key_pairs", KeyNames=[resource_id])["KeyPairs"])
        if pair is None:
            return None
        return {
            "arn": session.arn("ec2", f"key-pair/{resource_id}"),
            "keyName": resource_id,
            "keyNamePrefix": "",
            "keyPairId": pair["KeyPairId"],
            "keyType": pair.get("KeyType", ""),
            "fingerprint": pair["KeyFingerprint"],
            "region": session.region,
            **tagging.told(session, pair.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:  # noqa: ARG002
        """Tags."""
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, old["keyPairId"], old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:  # noqa: ARG002 - the protocol's
        """Deletes it."""
        with tolerated(not_found=True):
            session.ec2("delete_key_pair", KeyName=resource_id)


KEY_PAIR = Table(
    pulumi_type="aws:ec2/keyPair:KeyPair",
    what="key pair",
    autoname="keyName",
    properties={
        "keyName": Property(computed=True),
        "keyNamePrefix": UNSIMULATED,
        "publicKey": Property(
            required=True, local=True, wrong=matching(PUBLIC_KEY, "an OpenSSH public key in one line")
        ),
        "region": REGION,
        "tags": TAGS,
    },
    outputs=("arn", "fingerprint", "keyPairId", "keyType", "tagsAll"),
    handler=KeyPairHandler(),
)
