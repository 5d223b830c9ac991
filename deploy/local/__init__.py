"""The native runner: one machine, real processes, one supervisor. Started by `inferway up` and `make up`."""
