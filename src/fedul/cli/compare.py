"""`fedul compare`: methods and algorithms on one federation, with several seeds."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from fedul._utils.settings import build_configs
from fedul.cli import show
from fedul.cli.options import ConfigFile, default_folder, merge_settings, with_options
from fedul.config import BenchmarkDataConfig, CompareConfig, TrainConfig
from fedul.experiments.variants import CHOSEN_BY_VARIANTS

KINDS = (CompareConfig, BenchmarkDataConfig, TrainConfig)


@with_options(*KINDS, leave_out=CHOSEN_BY_VARIANTS)
def compare(settings: dict[str, Any], config: ConfigFile = None) -> None:
    """Compare methods and algorithms on one benchmark federation over several seeds.

    Prints mean and standard deviation of the test error, and a paired t-test against the best method without labels.
    The runs are in the folder of the comparison, which --resume extends.
    """
    options = merge_settings(settings, config, KINDS, leave_out=CHOSEN_BY_VARIANTS)
    command, data, _ = build_configs(options, *KINDS)  # a wrong option is refused before torch is loaded
    folder = command.out or default_folder(f"compare-{data.data}")

    from fedul.experiments.compare import compare as run_comparison

    with show.TrainingProgress() as progress:
        result = run_comparison(**{**options, "out": folder, "callbacks": [progress]})
    files = f"comparison [bold]{escape(folder)}[/]; plot {escape(str(result.plot_file))}"
    show.print_result(command.json, result.to_dict(), result, files)
