# %% [markdown]
# # 5. A federation of three sites on one laptop
#
# Until here all clients were in one process. Now three hospitals are **sites**: separate processes with their own
# folder, key and settings, which a coordinator reaches over TLS ([Flower](https://flower.ai)). Rows and prevalences
# stay in the folder of a site. With **secure aggregation** the coordinator learns sums over the sites, and no single
# update.
#
# Everything runs on this machine, over the loopback interface. It takes a few minutes, because every site is a process
# of its own. The extras `flower` and `privacy` are needed. For real sites, the
# [handbook of federations](../docs/federations/README.md) has the same steps as commands.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedul
from fedul import plotting
from fedul.data.example import write_example
from fedul.engines.flower.deploy.loopback import loopback
from fedul.training import RunFolder

plt.rcParams.update(plotting.style())
SITES, ROUNDS = ["Northfield", "Lakeside", "County"], 8

# %% [markdown]
# ## What each site has
#
# A table of patients without diagnoses, and the prevalences of its months.

# %%
write_example(Path("hospitals"))
patients, prevalence = pd.read_csv("hospitals/patients.csv"), pd.read_csv("hospitals/prevalence.csv")
for site in SITES:
    place = Path("federation", site)
    place.mkdir(parents=True)
    for name, table in (("patients", patients), ("prevalence", prevalence)):
        own = table[table.hospital == site].drop(columns="hospital")
        own.assign(site=site).to_csv(place / f"{name}.csv", index=False)
pd.read_csv("federation/County/prevalence.csv").head(3)

# %% [markdown]
# ## What the coordinator decides
#
# The settings of the run. Sites disclose no words of their text columns under secure aggregation, so the words that are
# used are declared. Sites refuse a run whose secure sums cover fewer than three of them.

# %%
folder = Path.cwd()
settings = {
    "out": str(folder / "run"),
    "classes": "cold,flu,pneumonia",
    "words": "cough=none|dry|productive;aches=yes|no",
    "test-prior": "natural",
    "sites": len(SITES),
    "min-sites": len(SITES),
    "method": "fedul",
    "model": "linear",
    "learning-rate": 0.01,
    "rounds": ROUNDS,
    "secure-aggregation": True,
    "roster": str(folder / "federation" / "roster.toml"),
}
SITE = """
name = "{site}"
require-secure-aggregation = true

[data]
data = "patients.csv"
priors = "prevalence.csv"
client-column = "site"
set-column = "month"
"""

# %% [markdown]
# ## Run it
#
# A coordinator, a key for every site, the roster with the public keys, and the sites. `loopback` ends all processes,
# also after an error.

# %%
run = RunFolder(folder / "run")
with loopback(folder / "federation", settings) as federation:
    federation.start_coordinator()
    for site in SITES:
        federation.register(site)
    federation.write_roster()
    for site in SITES:
        federation.start_site(site, SITE.format(site=site))
    number = federation.run({})
    status = federation.until_ended(number, run, lambda: None)
    print(status, "" if status == "finished:completed" else federation.reason(number))

# %% [markdown]
# ## What the coordinator has seen
#
# One line a round: sums over three sites. The last two columns are bytes of all messages, keys and shares included.

# %%
history = pd.DataFrame([each.to_dict() for each in run.history()])
history[["round", "clients", "loss", "held_out_loss", "seconds", "bytes_sent", "bytes_received"]].round(3)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
left.plot(history["round"], history.held_out_loss, marker="o")
left.set(xlabel="round", ylabel="held-out loss", title="Mean over the rows of all sites")
right.bar(history["round"], history.seconds)
right.set(xlabel="round", ylabel="seconds", title="Time of a round")
plotting.describe(
    figure, "Left: the held-out loss falls over the rounds. Right: the seconds that each round took on this machine."
)

# %% [markdown]
# ## Use the classifier
#
# It is an ordinary classifier. With the true diagnoses of the new patients, which only this simulation has:

# %%
classifier = run.load_classifier()
new, truth = pd.read_csv("hospitals/new_patients.csv"), pd.read_csv("hospitals/new_diagnoses.csv").diagnosis
adapted = classifier.with_prior([0.15, 0.15, 0.70])
right = (adapted.predict(new) == truth).mean()
print(f"{right:.1%} of the new patients are right")

# %% [markdown]
# The same training in one process, with the same rows and settings, for comparison. Rows are held out and batches drawn
# by the names of the clients, so the two should give the same classifier, up to the rounding of numbers in secure sums.

# %%
of_sites = patients[patients.hospital.isin(SITES)]
study = fedul.load(of_sites, prevalence[prevalence.hospital.isin(SITES)], client_column="hospital", set_column="month")
alone = fedul.train(study, method="fedul", model="linear", learning_rate=0.01, rounds=ROUNDS, seed=0)
there, here = (each.with_prior([0.15, 0.15, 0.70]).predict_proba(new)[:, -1] for each in (classifier, alone.classifier))
print(f"largest difference of a probability: {np.abs(there - here).max():.1e}")

# %%
figure, axes = plt.subplots(figsize=(4.2, 4))
axes.plot(100 * here, 100 * there, ".", alpha=0.4)
axes.axline((0, 0), slope=1, color=plotting.MUTED, linewidth=1)
axes.set(xlabel="one process (%)", ylabel="three sites, secure sums (%)", title="Probability of pneumonia")
plotting.describe(
    figure, "Probabilities of pneumonia of the new patients: those of the three sites against those of one process."
)
