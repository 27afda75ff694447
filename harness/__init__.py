"""Measures how KV-cache offloading wears and reads flash."""

__version__ = "0.1.0"
