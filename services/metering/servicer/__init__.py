"""Metering's RPCs: proto in, ledger call, proto out."""
