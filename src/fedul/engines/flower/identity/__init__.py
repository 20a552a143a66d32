"""Identity of sites: keys, the roster that binds names to keys, and signed replies."""
