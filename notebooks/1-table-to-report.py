# %% [markdown]
# # 1. From a table and its prevalences to a report
#
# Four hospitals have a table of winter patients without diagnoses. The health authority publishes how common cold, flu
# and pneumonia were at every hospital in every month. That is enough to train a classifier. All data here are
# simulated, so that the true answers are known.
#
# The same steps on the command line are in the [guide](../docs/get-started.md).

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import fedul
from fedul import plotting
from fedul.data.example import write_example

plt.rcParams.update(plotting.style())
write_example(Path("hospitals"))  # the same as the command: fedul example hospitals
patients, prevalence = pd.read_csv("hospitals/patients.csv"), pd.read_csv("hospitals/prevalence.csv")
patients.head(3)

# %% [markdown]
# No column has the diagnosis. The second table has one line for each hospital and month:

# %%
prevalence.head(3)

# %% [markdown]
# ## Look at the prevalences
#
# A hospital is a *client*, a month is one of its *sets*, and the prevalences are the *class priors* of the set. Sets
# have to differ in their priors, and they do: flu has its season.

# %%
classes = ["cold", "flu", "pneumonia"]
figure, panels = plt.subplots(1, 4, figsize=(9, 2.8), sharey=True)
for panel, (hospital, months) in zip(panels, prevalence.groupby("hospital", sort=False), strict=True):
    for name, marker in zip(classes, "os^", strict=True):
        panel.plot(months.month.str[2:], months[name], marker=marker, label=name)
    panel.set(title=hospital, ylim=(0, None))
    panel.tick_params(axis="x", rotation=60)
panels[0].set_ylabel("prevalence (%)")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
plotting.describe(
    figure,
    "Prevalence of cold, flu and pneumonia by month at four hospitals. Everywhere flu rises from about 10 % in October "
    "to 45 to 52 % in winter and falls again, while colds fall and rise.",
)

# %% [markdown]
# ## Check before training
#
# `fedul.check` says whether the sets differ enough, and how every column was read.

# %%
study = fedul.load(patients, priors=prevalence, client_column="hospital", set_column="month")
check = fedul.check(study)
print(check.summary)
print(*check.advice, sep="\n")

# %% [markdown]
# Why can anything be learned without a single diagnosis? The mean of a column in a set is a mixture of its means in the
# classes, and the prevalences are the weights of this mixture. Months with more flu have a higher mean temperature:

# %%
means = patients.groupby(["hospital", "month"])[["temperature", "crp"]].mean().reset_index().merge(prevalence)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2))
for panel, (column, disease) in zip(panels, [("temperature", "flu"), ("crp", "pneumonia")], strict=True):
    for (hospital, of_hospital), marker in zip(means.groupby("hospital", sort=False), "os^D", strict=True):
        panel.plot(of_hospital[disease], of_hospital[column], marker, label=hospital)
    panel.set(xlabel=f"{disease} in the month (%)", ylabel=f"mean {column}")
panels[0].legend()
plotting.describe(
    figure,
    "Left: the mean temperature of a month rises with its share of flu, in the same way at all four hospitals. "
    "Right: the mean of crp rises with the share of pneumonia.",
)

# %% [markdown]
# ## Train
#
# The defaults choose network and regularization without labels, on months that are left out of training. The number of
# rounds follows from rows that are held out.

# %%
run = fedul.train(study, out="run", seed=0)
print(f"{run.result.choice.chosen}: {run.result.choice.reason}")
print(f"{run.result.rounds} rounds, round {run.result.selected_round} is delivered, {run.labels_used} labels used")

# %% [markdown]
# ## Evaluate without labels

# %%
evaluation = fedul.evaluate(run)
evaluation

# %% [markdown]
# The estimate rests on this comparison: for each set, the stated share of a class, and the share that models predict
# which were trained without the set.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), width_ratios=(1, 1))
for name, marker in zip(classes, "os^", strict=True):
    points = [each for each in evaluation.calibration if each.class_ == name]
    left.plot([100 * p.stated for p in points], [100 * p.predicted for p in points], marker, label=name, alpha=0.8)
left.axline((0, 0), slope=1, color=plotting.MUTED, linewidth=1)
left.set(xlabel="stated share of a class in a month (%)", ylabel="predicted share (%)", title="Sets left out")
left.legend()
right.imshow(evaluation.confusion, vmin=0, vmax=1)
for i, row in enumerate(evaluation.confusion):
    for j, share in enumerate(row):
        text = f"{share:.0%}\n{evaluation.confusion_low[i][j]:.0%} to {evaluation.confusion_high[i][j]:.0%}"
        right.text(j, i, text, ha="center", va="center", color="white" if share > 0.5 else plotting.INK)
right.set(xticks=range(3), xticklabels=classes, yticks=range(3), yticklabels=classes, title="Estimated confusion")
right.set(xlabel="predicted", ylabel="true")
right.grid(visible=False)
plotting.describe(
    figure,
    "Left: predicted against stated shares of the three classes in sets left out; the points lie along the diagonal. "
    "Right: the estimated confusion matrix with 95 % intervals; most patients of every class are recognised.",
)

# %% [markdown]
# ## Report
#
# One page with the answer, its warnings, the learning curves and the evaluation, for a screen or paper. It needs no
# other file and no network.

# %%
page = fedul.report(run, "report.html")
print(Path("report.html").stat().st_size // 1024, "kB")

# %% [markdown]
# ## Predict, and check with the truth
#
# The new patients are from another season: 70 % of them have a pneumonia. `with_prior` adapts the classifier to a known
# class mix in closed form. On the command line `--estimate-prior` estimates the mix from the new rows.

# %%
new, truth = pd.read_csv("hospitals/new_patients.csv"), pd.read_csv("hospitals/new_diagnoses.csv").diagnosis
adapted = run.classifier.with_prior([0.15, 0.15, 0.70])
right_before = (run.classifier.predict(new) == truth).mean()
right_after = (adapted.predict(new) == truth).mean()
print(f"{right_before:.1%} of the new patients are right, {right_after:.1%} after adapting to their class mix")

# %% [markdown]
# For difficult patients a prediction set says more than one class:

# %%
sets = pd.Series(adapted.predict_set(new, coverage=0.9))
covered = [true in names for true, names in zip(truth, sets, strict=True)]
print(f"the set has the true class in {sum(covered) / len(covered):.1%} of cases; its size:")
sets.map(len).value_counts(normalize=True).sort_index().round(3)

# %% [markdown]
# **Next:** [2. Compare methods](2-compare-and-extend.ipynb), or
# [3. When the assumption fails](3-when-the-assumption-fails.ipynb).
