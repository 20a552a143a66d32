"""A user's own tables, images and arrays with their class priors, as a federation."""
