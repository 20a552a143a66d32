"""Choices and options that several configuration classes share."""

from __future__ import annotations

from functools import partial

from fedul._utils.settings import option

PRIOR_RECIPES = ("boosted", "text")
NOISE_FORMULAS = ("intended", "printed")
IN_MEMORY = "<DataFrame>"
"""Stands for the path of data or priors that were passed as a DataFrame."""
SCORES = ("log", "brier", "authors")
"""Losses between the predicted and the true set of a row."""

# Options of several configurations.
force_option = partial(option, False, "Train even if the class priors cannot tell the classes apart.")
held_out_option = partial(
    option, 0.2, "Share of the rows held out to select the best round, without labels.", low=0, high=0.9
)
json_option = partial(option, False, "Print one JSON document on standard output.")
seed_option = partial(option, 0, "Seed of all randomness.", low=0)
priors_option = partial(
    option, None, "Table of class priors (client,set,CLASS...). For a benchmark, the sets are drawn with these."
)
TEST_PRIOR_HELP = "Class mix that the classifier is for: natural (of all rows), uniform, 'A=0.1,B=0.9', or a file."
