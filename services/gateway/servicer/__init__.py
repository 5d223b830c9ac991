"""The faces of the gateway: proto in, domain call, proto out."""
