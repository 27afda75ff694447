"""Block devices: their guard, identity, rings, buffers, counters and guests."""
