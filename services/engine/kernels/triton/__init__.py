"""Kernels in Triton, for CUDA devices; Triton's interpreter runs them on a CPU in the tests."""
