"""The services of the mesh."""
