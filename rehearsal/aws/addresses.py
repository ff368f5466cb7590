"""Public addresses for instances: from one block, each held by one instance, released ones reused last."""

import ipaddress
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import moto.ec2.models.elastic_network_interfaces as moto_interfaces

from rehearsal.aws.wire import AwsRefusal

FIRST_HOST = 2
"""Hosts before this one belong to the lab (the person's own address is the first)."""


class PublicAddresses:
    """A block of addresses, handed out in order; one that moto no longer shows goes to the end of the queue."""

    def __init__(self, cidr: str, in_use: Callable[[], set[str]]) -> None:
        hosts = [str(host) for host in ipaddress.IPv4Network(cidr).hosts()]
        self._free = deque(hosts[FIRST_HOST - 1 :])
        self._given: set[str] = set()
        self._in_use = in_use
        self._lock = threading.Lock()

    def take(self) -> str:
        """The next address.

        Raises:
            AwsRefusal: every address is held.
        """
        with self._lock:
            if not self._free:
                self._collect()
            if not self._free:
                raise AwsRefusal("InsufficientFreeAddressesInSubnet", "the lab's block of public addresses is used up")
            address = self._free.popleft()
            self._given.add(address)
            return address

    def _collect(self) -> None:
        released = sorted(self._given - self._in_use(), key=ipaddress.IPv4Address)
        self._given -= set(released)
        self._free.extend(released)


def hand_out(addresses: PublicAddresses) -> Callable[[], None]:
    """Makes moto take instances' public addresses from the block; returns the way back."""
    original: Any = moto_interfaces.random_public_ip
    moto_interfaces.random_public_ip = addresses.take

    def restore() -> None:
        moto_interfaces.random_public_ip = original

    return restore
