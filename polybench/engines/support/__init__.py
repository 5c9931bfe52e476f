"""What engines share beside the protocol."""
