"""Engines: where clients run. They yield clients' updates; what becomes of these is the algorithm's business."""
