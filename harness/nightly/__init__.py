"""The same measurements night after night: their history and what changed in it."""
