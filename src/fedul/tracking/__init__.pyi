from fedul.tracking.json_lines import JsonLinesLogger as JsonLinesLogger
from fedul.tracking.make import make_trackers as make_trackers
from fedul.tracking.mlflow import MLflowTracker as MLflowTracker
from fedul.tracking.tensorboard import TensorBoardTracker as TensorBoardTracker
