"""The `inferway` command."""
