"""What a cache's hits cost in time and money: transfers, queues for them, recomputation."""
