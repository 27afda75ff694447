"""KV stores as block I/O: what they write where, driven by request traces."""
