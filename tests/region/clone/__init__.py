"""Tests of `gpuinfra.region.clone`."""
