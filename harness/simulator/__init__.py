"""Two cache tiers, DRAM and SSD, under a policy: what is hit, and what it writes."""
