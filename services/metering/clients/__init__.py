"""What other services send, in metering's own words."""
