"""Runs a model on a CPU through a small native kernel set."""
