"""How much was used: reads usage records from Kafka into the ledger, exactly once, and answers questions about it."""
