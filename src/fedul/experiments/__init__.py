"""The paper's tables and figures: declared as data, one file each, and run by one loop."""
