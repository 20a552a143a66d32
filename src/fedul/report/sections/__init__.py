"""The parts of the page of a run, one file each: facts in, markup out."""
