"""Tests of `gpuinfra.clone`."""
