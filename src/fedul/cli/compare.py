"""`fedul compare`: methods and algorithms on one federation, with several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape

from fedul._utils.settings import build_config
from fedul.cli import show
from fedul.cli.options import ConfigFile, default_folder, merge_settings, select_settings, with_options
from fedul.cli.train import DATA_CONFIGS
from fedul.config import CompareConfig, TrackingConfig, TrainConfig
from fedul.data.load import resolve_data_config
from fedul.experiments.variants import CHOSEN_BY_VARIANTS

CONFIGS = (CompareConfig, *DATA_CONFIGS, TrainConfig, TrackingConfig)


@with_options(*CONFIGS, leave_out=CHOSEN_BY_VARIANTS)
def compare(settings: dict[str, Any], config: ConfigFile = None) -> None:
    """Compare methods and algorithms on one federation over several seeds.

    Prints mean and standard deviation of the test error, and a paired t-test against the best method without labels.
    On your own data it is the error on held-out rows if --truth-column is given, else the loss on sets left out of
    training, which needs no labels; methods that need labels are left out. The runs are in the folder of the
    comparison, which --resume extends.
    """
    options = merge_settings(settings, config, CONFIGS, leave_out=CHOSEN_BY_VARIANTS)
    # A wrong option is refused before torch is loaded, but for options of data that a resumed comparison knows.
    command = build_config(CompareConfig, select_settings(options, CompareConfig))
    build_config(TrainConfig, select_settings(options, TrainConfig))
    tracking = build_config(TrackingConfig, select_settings(options, TrackingConfig))
    options = {name: value for name, value in options.items() if name not in vars(tracking)}
    folder = command.out
    if not command.resume:
        data = resolve_data_config(select_settings(options, *DATA_CONFIGS))
        folder = folder or default_folder(f"compare-{Path(data.data).stem}")

    from fedul.experiments.compare import compare as run_comparison
    from fedul.tracking import make_trackers

    trackers = make_trackers(tracking)
    with show.TrainingProgress() as progress:
        result = run_comparison(**{**options, "out": folder, "callbacks": [progress, *trackers]})
    files = f"comparison [bold]{escape(str(folder))}[/]; plot {escape(str(result.plot_file))}"
    show.print_result(command.json, result.to_dict(), result, files)
