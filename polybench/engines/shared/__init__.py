"""Code that several engines share."""
