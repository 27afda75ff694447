"""Coins that policies throw: numbers that depend on a seed, an object and a count, nothing else."""

from __future__ import annotations

PRIME = (1 << 31) - 1
"""Seeds are below it."""


def mixed(value: int) -> int:
    """Another number below 2^31 - 1, by Lehmer's rule and a shift, all within 64 bits."""
    value = value * 48271 % PRIME
    value = (value ^ (value >> 13)) % PRIME
    value = value * 69621 % PRIME
    return (value ^ (value >> 16)) % PRIME


def thrown(seed: int, o: int, offer: int) -> float:
    """A number from 0 up to, not including, 1."""
    value = mixed(seed + 12345)
    value = mixed((value + o + 1) % PRIME)
    value = mixed((value + offer + 1) % PRIME)
    return value / PRIME
