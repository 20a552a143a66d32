"""Engines: where clients run. They train clients and yield their updates; what becomes of these is the algorithm's business."""
