# %% [markdown]
# # 4. Images
#
# Three laboratories photograph blood cells. Nobody has marked single cells, but each laboratory counts a few slides a
# week by hand and knows the shares of *disc*, *ring* and *crescent* cells. The images are drawn by the program below.
# Your own images (PNG, JPEG, DICOM) are files in folders `client/set/`, as here.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image

import fedul
from fedul import plotting

plt.rcParams.update(plotting.style())
SIZE, CLASSES = 20, ["disc", "ring", "crescent"]
rng = np.random.default_rng(0)


def cell(kind):
    """Return the image of one cell: its place, size, angle, brightness and noise vary."""
    y, x = np.mgrid[:SIZE, :SIZE] - SIZE / 2 + rng.normal(0, 1.2, (2, 1, 1))
    radius, angle = rng.uniform(5, 8), rng.uniform(0, 2 * np.pi)
    distance = np.hypot(x, y) / radius
    shape = 1 / (1 + np.exp(8 * (distance - 1)))
    if kind == "ring":
        shape *= 1 / (1 + np.exp(8 * (0.55 - distance)))
    if kind == "crescent":
        cut = np.hypot(x - 0.6 * radius * np.cos(angle), y - 0.6 * radius * np.sin(angle)) / radius
        shape *= 1 / (1 + np.exp(8 * (0.85 - cut)))
    picture = 0.15 + rng.uniform(0.45, 0.7) * shape + rng.normal(0, 0.13, (SIZE, SIZE))
    return Image.fromarray((255 * picture.clip(0, 1)).astype(np.uint8))


def slides(folder, lab, week, shares, count=120):
    """Write the cells of one week, and return their true classes."""
    place = Path(folder) / lab / week
    place.mkdir(parents=True)
    kinds = rng.choice(CLASSES, count, p=shares)
    for number, kind in enumerate(kinds):
        cell(kind).save(place / f"{number:04}.png")
    return kinds


lines, truth = [], {}
for lab in ("Adams", "Baker", "Clark"):
    for week in range(1, 6):
        shares = rng.dirichlet([1.2, 1.2, 1.2])
        truth[lab, f"week-{week}"] = slides("cells", lab, f"week-{week}", shares)
        lines.append((lab, f"week-{week}", *(100 * shares).round().astype(int)))
prevalence = pd.DataFrame(lines, columns=["client", "set", *CLASSES])
prevalence.to_csv("shares.csv", index=False)
prevalence.head(5)

# %% [markdown]
# ## Look at two sets
#
# This is all that a laboratory knows: images, and the shares of the classes among them.

# %%
chosen = prevalence.loc[[prevalence.disc.idxmax(), prevalence.crescent.idxmax()]]
figure, panels = plt.subplots(2, 11, figsize=(9.5, 2.2), width_ratios=[2.5, *[1] * 10])
for row, (_, line) in zip(panels, chosen.iterrows(), strict=True):
    row[0].barh(CLASSES, line[CLASSES].astype(float), color=plotting.COLOURS[:3])
    row[0].set(xlim=(0, 100), title=f"{line.client}, {line.set} (%)")
    for panel, file in zip(row[1:], sorted(Path("cells", line.client, line.set).iterdir()), strict=False):
        panel.imshow(Image.open(file), cmap="gray", vmin=0, vmax=255)
        panel.axis("off")
plotting.describe(
    figure,
    "Two sets with bars of their class shares and ten of their images: in the first most cells are discs, in the "
    "second most are crescents.",
)

# %% [markdown]
# ## Check and train
#
# Folders name the client and the set. `auto` takes a small convolutional network for images of this size.

# %%
study = fedul.load("cells", priors="shares.csv")
print(fedul.check(study).summary)
run = fedul.train(study, method="fedul", model="small-cnn", rounds=15, learning_rate=0.002, seed=0)

# %%
figure, axes = plt.subplots(figsize=(5.6, 3))
rounds = [each.round for each in run.history]
axes.plot(rounds, [each.loss for each in run.history], label="training")
axes.plot(rounds, [each.held_out_loss for each in run.history], "--", label="held out")
axes.axvline(run.result.selected_round, color=plotting.MUTED, linewidth=1)
axes.set(xlabel="round", ylabel="loss (−log Q)")
axes.legend()
plotting.describe(
    figure, "Training loss and held-out loss by round; both fall and level off. A line marks the delivered round."
)

# %% [markdown]
# ## New images
#
# A folder of images, a single file or an array can be classified. Here are 300 new cells of a laboratory that took no
# part, with equal shares of the classes.

# %%
kinds = slides("new", "Davis", "week-1", [1 / 3, 1 / 3, 1 / 3], count=300)
classifier = run.classifier.with_prior([1 / 3, 1 / 3, 1 / 3])
probabilities = classifier.predict_proba("new/Davis/week-1")
order = np.array(classifier.classes)
predicted = order[probabilities.argmax(1)]
print(f"{(predicted == kinds).mean():.1%} of the new cells are right; no cell had a label")
pd.crosstab(pd.Series(kinds, name="true"), pd.Series(predicted, name="predicted"))

# %% [markdown]
# The cells that the classifier is least sure of:

# %%
files = sorted(Path("new/Davis/week-1").iterdir())
figure, panels = plt.subplots(2, 8, figsize=(9.5, 3.1))
for panel, number in zip(panels.flat, probabilities.max(1).argsort(), strict=False):
    panel.imshow(Image.open(files[number]), cmap="gray", vmin=0, vmax=255)
    right = predicted[number] == kinds[number]
    panel.set_title(
        f"{predicted[number]} {probabilities[number].max():.0%}\n" + ("right" if right else f"is {kinds[number]}"),
        fontsize=8,
        color=plotting.INK if right else plotting.COLOURS[1],
    )
    panel.axis("off")
plotting.describe(
    figure,
    "Sixteen cells with the lowest predicted probability and their predicted class; most are rings and crescents that "
    "are taken for each other.",
)

# %% [markdown]
# `fedul report` and `fedul evaluate` work as for tables. For DICOM files, `pip install 'fedul[dicom]'`. Larger
# networks: `resnet9`, `resnet18`, or your own `nn.Module`.
#
# **Next:** [5. A federation of three sites](5-federation.ipynb).
