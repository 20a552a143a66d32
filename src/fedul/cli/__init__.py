"""Command line: parses options, calls the library and prints results."""
