"""The mesh as containers."""
