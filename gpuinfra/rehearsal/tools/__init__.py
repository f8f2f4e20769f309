"""Stand-in commands: what a node's steps call that needs hardware or a vendor's server.

Every module here runs inside a stand-in node with nothing but the standard library, isolated and without `site`, because
hundreds of calls are made per node. They answer from the node's state (`state.py`): a step that did not run shows.
What a package brings is data (`universe.json`), not code. What devices print is `gpuinfra.rehearsal.devices`.
Modules import each other relatively, so that they work as `tools` in a node and as `gpuinfra.rehearsal.tools` in a test.
"""
