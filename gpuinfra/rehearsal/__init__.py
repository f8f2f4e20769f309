"""Rehearsals: run stacks with the real Pulumi engine, a stand-in cloud and stand-in nodes.

`run` is the entry point: folder, environment, stand-in cloud, Pulumi's CLI, report.
`cloud/` is the stand-in cloud, `nodes/` and `tools/` are the stand-in nodes, `devices/` are their device tools.
Components, bootstrap steps and checks do not detect a rehearsal. Only their endpoints differ.
"""
