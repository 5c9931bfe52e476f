"""The subcommands, one a file: arguments in, text out; the work is done elsewhere."""
