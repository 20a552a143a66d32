"""The question, and the answer in one sentence; then what a reader must know before relying on it."""

from __future__ import annotations

from fedul.report.facts import TOO_LITTLE, Facts
from fedul.report.markup import Html, command, element, paragraph, section
from fedul.report.wording import counted, digits_for, interval, listed, number, percent

NAMED = 6
"""So many classes are named in a sentence; of more, only the number is told."""
LEVEL = 0.05


def question(facts: Facts) -> str:
    """What the run is about."""
    if len(facts.classes) < 2:
        return "What has this run learned?"
    with_what = f"with {counted(facts.labels_used, 'label')}" if facts.labels_used else "without labels"
    return f"How well can {_classes(facts)} be told apart {with_what}?"


def answer(facts: Facts) -> str:
    """What the run came to, in one sentence."""
    if facts.result is None:
        done, wanted = len(facts.history), facts.config.get("training", {}).get("rounds", 0)
        return f"This run is not finished: {counted(done, 'round')} of {wanted:,} are done."
    tells = f"This classifier tells {_told_apart(facts)}"
    found = facts.evaluation.accuracy if facts.evaluation else None
    if found is not None and found.value is not None:
        digits = digits_for(found.low, found.high)
        range_ = "" if found.low is None else f" (95 % interval {interval(found.low, found.high, digits)})"
        tells += f" in an estimated {percent(found.value, digits)} of cases{range_}"
    elif (error := facts.result.get("test_error")) is not None:
        tells += f" in {percent(1 - error, 1)} of the labelled test cases"
    else:
        tells += ", how often correctly is not known yet"
    return f"{tells}; it was learned {_source(facts)}."


def answer_section(facts: Facts) -> Html:
    """The figures behind the answer, and what speaks against relying on it."""
    tiles = [element("div", element("dt", name), element("dd", value)) for name, value in _figures(facts)]
    return section(
        "answer",
        "In short",
        [paragraph(element("strong", "Caution: "), sentence, kind="caution") for sentence in cautions(facts)],
        element("dl", tiles, class_="figures"),
        _for_whom(facts),
        _with_labels(facts),
        _missing(facts),
    )


def cautions(facts: Facts) -> list[str]:
    """What a reader must know before relying on the answer."""
    found = []
    if facts.check is not None and not facts.check.identifiable:
        found.append("the class priors cannot tell the classes apart, so the classifier is one of many that fit.")
    evaluation = facts.evaluation
    if evaluation is None:
        return found
    if evaluation.p_value is not None and evaluation.p_value < LEVEL:
        found.append(
            "the sets do not look like mixtures of the same classes; the estimates rest on that they are "
            "(see the assumption test)."
        )
    true, low, high = evaluation.true_accuracy, evaluation.accuracy.low, evaluation.accuracy.high
    if true is not None and low is not None and high is not None and not low <= true <= high:
        found.append(f"measured with labels, the accuracy is {percent(true, 1)}: outside the interval.")
    return found


def _classes(facts: Facts) -> str:
    return listed(facts.classes) if len(facts.classes) <= NAMED else f"{len(facts.classes)} classes"


def _told_apart(facts: Facts) -> str:
    if len(facts.classes) == 2:
        return f"{facts.classes[0]} from {facts.classes[1]}"
    return f"{_classes(facts)} apart" if facts.classes else "classes apart"


def _source(facts: Facts) -> str:
    labels = "without one label" if not facts.labels_used else f"with {counted(facts.labels_used, 'label')}"
    if facts.sizes is None:
        return labels
    rows, clients = facts.sizes
    return f"from {counted(rows, 'row')} of {counted(clients, 'client')} {labels}"


def _figures(facts: Facts) -> list[tuple[str, str]]:
    figures = []
    if facts.evaluation is not None:
        found = facts.evaluation.accuracy
        digits = digits_for(found.low, found.high)
        figures.append(("estimated accuracy", percent(found.value, digits)))
        figures.append(("95 % interval", interval(found.low, found.high, digits)))
        if facts.evaluation.true_accuracy is not None:
            figures.append(("accuracy, measured with labels", percent(facts.evaluation.true_accuracy, 1)))
    if facts.result is not None and facts.result.get("test_error") is not None:
        figures.append(("error on labelled test rows", percent(facts.result["test_error"], 1)))
    if facts.labels_used is not None:
        figures.append(("labels used", number(facts.labels_used)))
    if facts.sizes is not None:
        figures += [("rows", number(facts.sizes[0])), ("clients", number(facts.sizes[1]))]
    if facts.selected_round is not None:
        figures.append(("round delivered", f"{facts.selected_round:,} of {len(facts.history):,}"))
    return figures


def _for_whom(facts: Facts) -> Html | None:
    if not facts.test_prior or len(facts.test_prior) > NAMED:
        return None
    mix = listed([f"{name} {percent(share)}" for name, share in zip(facts.classes, facts.test_prior, strict=True)])
    return paragraph(f"The classifier is for a population with this class mix: {mix}.")


def _with_labels(facts: Facts) -> Html | None:
    """What the missing labels cost, in width of the interval."""
    if facts.evaluation is None or facts.evaluation.width_with_labels is None:
        return None
    found = facts.evaluation.accuracy
    if found.low is None or found.high is None:
        return None
    widths = [f"{100 * width:.1f}" for width in (facts.evaluation.width_with_labels, found.high - found.low)]
    return paragraph(
        f"The interval is {widths[1]} points wide. Had every row had a label, it would be {widths[0]} points wide."
    )


def _missing(facts: Facts) -> Html | None:
    if facts.evaluation is not None or facts.result is None:
        return None
    if facts.across_sites:
        return paragraph(f"How accurate the classifier is, is not known: {TOO_LITTLE}.")
    return paragraph(
        "How accurate the classifier is can be estimated without labels: ", command(facts.evaluate_command), "."
    )
