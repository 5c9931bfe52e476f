"""Pure records and arithmetic: no framework, no input or output."""
