"""What every part needs: errors, units, operations, assets, run folders, subprocesses."""
