"""The live page of a run (`fedul watch`): what it shows, how it is drawn, and the server on loopback."""
