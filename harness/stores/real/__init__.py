"""Real stores, each in a Python environment of its own: LMCache, and vLLM with it.

``environment`` finds them, ``workload`` scales a request trace to a device, ``lmcache_store`` runs
``lmcache_driver`` under the other Python and hands back what ``emit`` does.
"""
