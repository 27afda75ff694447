"""Many points: a grid, the records it makes, and the processes or cluster that make them."""
