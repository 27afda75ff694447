"""Drive a trace against a block device, on time, and prove that it was."""
