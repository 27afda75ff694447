"""LRU, written back: the oldest goes first in both tiers, and all that leaves DRAM is written.

The paper's LRU baseline. All hooks have their defaults.
"""
