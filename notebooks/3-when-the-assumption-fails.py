# %% [markdown]
# # 3. When the assumption fails: see it, find the column, remedy it
#
# The method assumes that cases of a class look alike in every set. Here they do not: the thermometers of one hospital
# read too high. All data are simulated, so that the true errors are known.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedul
from fedul import plotting

plt.rcParams.update(plotting.style())
HOSPITALS, MONTHS = ["Northfield", "St. Mary", "Lakeside", "County"], ["Oct", "Nov", "Dec", "Jan", "Feb", "Mar"]
KEYS = {"client_column": "hospital", "set_column": "month"}


def simulate(seed, too_high, rows=180):
    """Return patients and prevalences; thermometers of St. Mary read `too_high` degrees too high."""
    generator, tables, prevalence = np.random.default_rng(seed), [], []
    for hospital in HOSPITALS:
        for month, season in zip(MONTHS, [0.1, 0.25, 0.45, 0.6, 0.4, 0.15], strict=True):
            flu = float(np.clip(generator.normal(season, 0.08), 0.05, 0.9))
            ill = generator.random(rows) < flu
            table = pd.DataFrame({"diagnosis": np.where(ill, "flu", "cold")})
            table["hospital"], table["month"] = hospital, month
            table["temperature"] = generator.normal(37.2 + 1.2 * ill, 0.7) + too_high * (hospital == "St. Mary")
            table["heart_rate"] = generator.normal(76 + 8 * ill, 10)
            table["days_ill"] = generator.normal(4.5 - 1.5 * ill, 1.5)
            tables.append(table)
            prevalence.append((hospital, month, round(100 * flu), 100 - round(100 * flu)))
    return pd.concat(tables, ignore_index=True), pd.DataFrame(prevalence, columns=["hospital", "month", "flu", "cold"])


patients, prevalence = simulate(0, too_high=1.2)
patients.drop(columns="diagnosis").groupby("hospital").mean(numeric_only=True).round(2)

# %% [markdown]
# The mean of a hospital says little: St. Mary could simply have more flu. The column `diagnosis` is the truth. It is
# used only to measure errors (`truth_column`), never to train.

# %%
study = fedul.load(patients, priors=prevalence, truth_column="diagnosis", **KEYS)
run = fedul.train(study, choose="off", seed=0)  # off: the first alternative, without comparing others
evaluation = fedul.evaluate(run)
test = evaluation.assumption
print(f"estimated accuracy {evaluation.estimated_accuracy}, interval {evaluation.interval}")
print(f"reason: {evaluation.reason}")
print(f"p-value of the assumption: {test.p_value:.4f}")
for column in test.columns:
    print(column)

# %% [markdown]
# `evaluate` rejects the assumption and names the column. On the command line and in the report this is a sentence.
#
# ## See it
#
# In a set, the mean of a column is a mixture of its means in the classes. Against the share of flu, the means of all
# sets must lie on **one** line.

# %%
means = patients.groupby(["hospital", "month"]).mean(numeric_only=True).reset_index().merge(prevalence)
figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.4))
for panel, column in zip(panels, ["temperature", "heart_rate", "days_ill"], strict=True):
    others = means[means.hospital != "St. Mary"]
    slope, start = np.polyfit(others.flu, others[column], 1)
    panel.axline((0, start), slope=slope, color=plotting.MUTED, linewidth=1)
    for (hospital, own), marker in zip(means.groupby("hospital"), "os^D", strict=True):
        panel.plot(own.flu, own[column], marker, label=hospital)
    panel.set(xlabel="flu in the month (%)", title=column)
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
plotting.describe(
    figure,
    "Means of three columns in every month against the share of flu. Temperatures of St. Mary lie about 1.2 degrees "
    "above the line of the other hospitals; heart rate and days of illness lie on one line everywhere.",
)

# %% [markdown]
# ## Remedies
#
# - **Drop the column**, if others tell the classes apart.
# - **Repair it**, if the cause is known: subtract what the thermometers read too high.
# - **`site_adjustment="on"`**: every site regresses the means and the spread of its columns on its class priors, and
#   standardises its rows to what they would be at the test prior. It is local; nothing leaves the site.
#
# Plain z-scores per hospital are no remedy: they also remove what the class mix of a hospital tells.

# %%
repaired = patients.assign(temperature=patients.temperature - 1.2 * (patients.hospital == "St. Mary"))
variants = {
    "as it is": (patients, {}),
    "without temperature": (patients, {"ignore_columns": "diagnosis,temperature"}),
    "site adjustment": (patients, {"site_adjustment": "on"}),
    "repaired": (repaired, {}),
}
new, _ = simulate(1, too_high=1.2)
outcome = []
for name, (table, options) in variants.items():
    study = fedul.load(table, priors=prevalence, **KEYS, **{"ignore_columns": "diagnosis", **options})
    run = fedul.train(study, choose="off", seed=0)
    evaluation = fedul.evaluate(run)
    rows = new.assign(temperature=new.temperature - 1.2 * (new.hospital == "St. Mary")) if name == "repaired" else new
    wrong = (run.classifier.predict(rows) != rows.diagnosis).groupby(rows.hospital).mean()
    outcome.append({"variant": name, "p_value": evaluation.assumption.p_value, **(100 * wrong).round(1)})
outcome = pd.DataFrame(outcome).set_index("variant")
outcome

# %%
figure, axes = plt.subplots(figsize=(6.8, 3.2))
for place, (_, line) in enumerate(outcome[::-1].iterrows()):
    axes.plot([line[h] for h in HOSPITALS if h != "St. Mary"], [place] * 3, "o", color=plotting.COLOURS[0])
    axes.plot([line["St. Mary"]], [place], "D", color=plotting.COLOURS[1])
axes.set_yticks(range(len(outcome)), outcome.index[::-1])
axes.set(xlabel="error on new patients (%)", xlim=(0, None))
axes.plot([], [], "o", color=plotting.COLOURS[0], label="other hospitals")
axes.plot([], [], "D", color=plotting.COLOURS[1], label="St. Mary")
figure.legend(loc="outside upper center", ncols=2)
plotting.describe(
    figure,
    "Error on new patients of each hospital for four variants. As it is, St. Mary has the highest error; with site "
    "adjustment or repaired thermometers it is like the others, and all errors are lower; without temperature most "
    "errors are far higher.",
)

# %% [markdown]
# ## What set means cannot show
#
# If a column moves *parallel* to the class priors for another reason, the set means still lie on one line. Here hearts
# beat faster in cold months, whatever the diagnosis, by an amount in proportion to the share of flu.

# %%
hidden, prevalence = simulate(0, too_high=0)
share = hidden.merge(prevalence, on=["hospital", "month"], how="left").flu.to_numpy() / 100
hidden["heart_rate"] += 30 * share
run = fedul.train(fedul.load(hidden, priors=prevalence, truth_column="diagnosis", **KEYS), choose="off", seed=0)
evaluation = fedul.evaluate(run)
print(f"p-value of the assumption: {evaluation.assumption.p_value:.2f}")
print(f"estimated accuracy: {evaluation.estimated_accuracy}, true accuracy: {evaluation.accuracy:.1%}")
print(f"reason: {evaluation.reason}")

# %% [markdown]
# The test of means does not reject the assumption. `evaluate` also looks at how the rows *within* sets are spread, and
# refuses an estimate here. Smaller differences of this kind stay invisible: no estimate without labels can see all of
# them, and the report says so in every case. A few labels settle it: `truth_column` measures with them, `label_column`
# trains with them.
#
# **Next:** [4. Images](4-images.ipynb).
