"""`python -m services.engine --self-check MODEL`: what a model folder is worth on this machine, in checks that pass or fail."""
