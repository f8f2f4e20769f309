"""Creates the stack file of a new cluster, for `gpuinfra init`.

`answers.py` turns answers into a declaration and checks each answer with the rules of `gpuinfra plan`. `choices.py` lists what the catalog
offers for the next answer. `files.py` writes the stack file and, outside a project, the Pulumi project. No module here asks
questions: `gpuinfra.cli.init` does.
"""
