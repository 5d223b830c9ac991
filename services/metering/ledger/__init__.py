"""The ledger: what was used, kept in SQL; rows, dedupe keys, offsets and roll-up change in one transaction."""
