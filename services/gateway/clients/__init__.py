"""Typed links to the services that the gateway calls: router, engines, etcd and the usage outbox."""
