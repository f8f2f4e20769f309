"""The search for capacity of `gpuinfra up`: it deploys a stack, and tries the alternatives in `fallback` for pools that get no capacity.

`placements` derives the alternatives and edits the stack file, `outcome` reads why nodes are missing, `journal` records the search, and `run` is the loop.
The package deploys nothing itself: the caller passes the functions that run the engine.
"""
