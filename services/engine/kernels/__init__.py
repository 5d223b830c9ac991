"""Device kernels of the engine; each has a torch twin that defines what it computes."""
