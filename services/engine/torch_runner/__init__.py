"""The numeric back end on torch: llama networks over a paged KV cache, on a CPU or on CUDA."""
