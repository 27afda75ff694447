"""Layout and transport microbenchmarks: what does it cost to read a session's KV back?"""
