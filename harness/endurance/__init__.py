"""How long a drive lives: TBW, WAF and lifetimes, and the wear of a trace or a store."""
