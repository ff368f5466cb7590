"""Secrets of one world: the person's SSH key and the stack's passphrase, made here and ended with it."""

import secrets

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rehearsal.world.places import Places, write_private


def make_secrets(place: Places) -> None:
    """Writes an ed25519 key pair, a passphrase and an empty file in place of AWS settings; keeps what is there."""
    if not place.ssh_key.exists():
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        write_private(place.ssh_key.with_suffix(".pub"), f"{public.decode()} rayrig-rehearsal\n")
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        write_private(place.ssh_key, private.decode())
    if not place.passphrase.exists():
        write_private(place.passphrase, secrets.token_urlsafe(32))
    if not place.empty.exists():
        write_private(place.empty, "")
