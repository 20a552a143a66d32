"""DP-SGD of the rows of one client: arithmetic on tensors, without methods and engines.

Abadi et al., Deep Learning with Differential Privacy, CCS 2016. A step draws a random batch (`sampling`), sums the
clipped gradients of its rows (`row_gradients`), and adds noise (`noise`). All randomness is a `RandomStream`.
"""
