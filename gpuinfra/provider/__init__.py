"""gpuinfra as a Pulumi package, which programs in any language that Pulumi supports can use.

The package contains the `GpuCluster` component and the resources of `gpuinfra.handover`. `service.py` is the plugin that the engine starts,
`component.py` creates the component for programs in other languages, and `schema.py` describes the package.
"""
