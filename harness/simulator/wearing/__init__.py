"""True wear of a simulated run: its SSD log as a store's op stream on a drive with an FTL.

The policy decides what is written and what leaves; a layout of ``harness.stores`` decides where it
lies, with the store's own allocator; ``harness.endurance`` precondition, FTL and lifetimes.
"""
