"""The gateway: who asks, for what exactly, and may they; then the life of the request until it is settled."""
