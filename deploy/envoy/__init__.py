"""The edge: Envoy's configuration, rendered from a few settings."""
