"""Typed clients of what the router talks to: the registry and the engines."""
