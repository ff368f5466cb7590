"""What a cluster costs per hour, from a dated table of AWS's list prices kept in this folder (prices.yaml)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

import yaml

_TABLE = Path(__file__).with_name("prices.yaml")


@dataclass(frozen=True, kw_only=True)
class PriceTable:
    """List prices in USD per hour.

    Attributes:
        read_on: the day on which they were read from their source.
        public_ipv4: of one public IPv4 address.
        on_demand: by instance type, then region.
    """

    read_on: date
    public_ipv4: float
    on_demand: dict[str, dict[str, float]]


@cache
def table() -> PriceTable:
    """The table that comes with rayrig."""
    document = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return PriceTable(
        read_on=document["read_on"],
        public_ipv4=float(document["public_ipv4_usd_per_hour"]),
        on_demand=document["on_demand_usd_per_hour"],
    )


def instance_usd_per_hour(instance_type: str, region: str) -> float | None:
    """On-demand price of one instance; None when the table does not hold it ("unpriced")."""
    price = table().on_demand.get(instance_type, {}).get(region)
    return None if price is None else float(price)


def region_usd_per_hour(region: str) -> dict[str, float]:
    """On-demand prices of the region by instance type, as far as the table holds them."""
    return {name: float(regions[region]) for name, regions in table().on_demand.items() if region in regions}


def cluster_usd_per_hour(instance_types: Sequence[str], region: str) -> float | None:
    """Price of running these instances, each with a public IPv4 address; disks and traffic are not in it.

    Returns:
        USD per hour, or None when one of the types is unpriced.
    """
    total = 0.0
    for name in instance_types:
        price = instance_usd_per_hour(name, region)
        if price is None:
            return None
        total += price + table().public_ipv4
    return round(total, 5)
