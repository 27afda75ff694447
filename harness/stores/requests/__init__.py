"""Request traces: which prefix each request brings, when, from which session."""
