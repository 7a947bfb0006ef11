"""Evidence made up by hand: numbers as the papers report them, a little noise between samples, and ways to change one of them."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from floatlens.claims.evidence import LAYOUTS, MASKED_CONTEXT, NOISE, POSITIONS, TWINS, Evidence

SAMPLES = 12
Measured = tuple[str, str, str, str, str, str]  # twin, rows, measure, group, part, depth
Asked = tuple[str, str, str, str, str]  # twin, experiment, context, intervention, control


@dataclass
class MadeUp:
    """Means of everything the claims read. `noise` is how far samples lie from the mean, alternately above and below."""

    measured: dict[Measured, tuple[float, float]] = field(default_factory=dict)
    asked: dict[Asked, dict[str, float]] = field(default_factory=dict)
    scores: dict[tuple[str, str], float] = field(default_factory=dict)  # twin, third
    noise: float = 0.01
    counts: bool = True

    def _varied(self, name: str, value: float, away: float) -> float:
        """A sample's own outcome; accuracies end at 0 and 1, whatever the noise."""
        return float(np.clip(value + away, 0.0, 1.0)) if name == "accuracy" else value + away * (name == "log_likelihood")

    def evidence(self) -> Evidence:
        random = np.random.default_rng(0)

        def wobble(count: int) -> list[np.ndarray]:
            """Deviations that add up to 0, in another order for each number, so that differences between numbers vary as well."""
            return [self.noise * random.permutation(np.resize([1.0, -1.0, 0.5, -0.5], SAMPLES)) for _ in range(count)]

        samples = [f"sample-{number:02d}" for number in range(SAMPLES)]
        names = ("twin", "rows", "measure", "group", "part", "depth")
        measured = [
            {**dict(zip(names, key, strict=True)), "unit": "", "sample": sample, "value": value + away[at], "null": null, "reason": ""}
            for away, (key, (value, null)) in zip(wobble(len(self.measured)), self.measured.items(), strict=True)
            for at, sample in enumerate(samples)
        ]
        keys = ("twin", "experiment", "context", "intervention", "control")
        blank = {"accuracy": 0.0, "log_likelihood": 0.0, "shortcut": 0.1, "removed": 0.0, "likelihood_removed": 0.0}
        asked = [
            {
                **dict(zip(keys, key, strict=True)),
                **blank,
                **{name: self._varied(name, value, away[at]) for name, value in values.items()},
                "kind": key[2].partition(":")[0],
                "level": 0.0,
                "model": key[0],
                "sample": sample,
            }
            for away, (key, values) in zip(wobble(len(self.asked)), self.asked.items(), strict=True)
            for at, sample in enumerate(samples)
        ]
        heads = [
            {
                "twin": twin,
                "sample": sample,
                "layer": layer,
                "head": head,
                "third": third,
                "score": score + 0.001 * (-1) ** at,
                "null": 0.0,
                "counts": self.counts,
            }
            for layer, ((twin, third), score) in enumerate(self.scores.items())
            for head in range(4)
            for at, sample in enumerate(samples)
        ]
        about = {"models": {twin: f"twin-{twin}" for twin in TWINS}, "questions": SAMPLES, "traced": SAMPLES, "seed": 0}
        return Evidence(pl.DataFrame(measured), pl.DataFrame(heads), pl.DataFrame(asked), about)


def as_published() -> MadeUp:
    """Numbers for which every claim holds, roughly as the papers have them; the causal MDM looks like the ARM and answers like the MDM."""
    made_up = MadeUp()
    for twin in TWINS:
        like_arm = twin != "mdm"
        group = "predicting" if twin == "arm" else "masked"
        for rows in ("recorded", "rectangle"):
            for own in {group, "predicting"} if rows == "recorded" else {"predicting"}:
                here = (twin, rows)
                made_up.measured |= {
                    (*here, "on the first token", own, "", "all"): (40.0 if like_arm else 1.0, 0.5),
                    (*here, "on the run's strongest key", own, "", "all"): (45.0 if like_arm else 12.0, 0.5),
                    (*here, "float index (no memory)", own, "", "all"): (0.1 if like_arm else 0.7, 0.98),
                    (*here, "drift along layers", own, "", "all"): (0.2 if like_arm else 0.7, 0.98),
                    (*here, "temporal variance", own, "", "all"): (0.1 if like_arm else 0.5, 0.05),
                    (*here, "spatial variance", own, "", "all"): (90.0 if like_arm else 10.0, 0.0),
                    (*here, "movement", own, "", "all"): (0.3, np.nan),
                    (*here, "float index (no movement)", own, "", "all"): (0.7, 0.4),
                    (*here, "value norm of anchors", own, "", "all"): (0.3, np.nan),
                    (*here, "structure over depth", own, "", "all"): (-1.0 if not like_arm else -0.5, np.nan),
                    (*here, "follows the frontier", own, "", "all"): (0.6, 0.1),
                }
                for role, share in (("mask", 0.37), ("layout", 0.37), ("punctuation", 0.05)):
                    made_up.measured[*here, "anchor mass by role", own, role, "all"] = (share, 0.05)
                for depth, part, value in (
                    ("shallow", "direction", 1.0),
                    ("shallow", "norm", 0.7),
                    ("deep", "direction", 2.0),
                    ("deep", "norm", -0.5),
                ):
                    made_up.measured[*here, "score advantage of anchors", own, part, depth] = (value, np.nan)
        for third, score in (("shallow", 0.01), ("middle", 0.02), ("deep", 0.05)):
            made_up.scores[twin, third] = score
        made_up.asked |= _answers(twin)
    return made_up


def _answers(twin: str) -> dict[Asked, dict[str, float]]:
    arm = twin == "arm"
    found: dict[Asked, dict[str, float]] = {
        (twin, "noise", "closed-book", "", ""): {"accuracy": 0.05, "log_likelihood": -6.0},
        (twin, "position", "gold", "", ""): {"accuracy": 0.95, "log_likelihood": -0.1},
        (twin, "retrieval heads", MASKED_CONTEXT, "", ""): {"accuracy": 0.9, "log_likelihood": -0.1},
        (twin, "retrieval heads", MASKED_CONTEXT, "mask-heads", ""): {"accuracy": 0.2, "log_likelihood": -4.0},
        (twin, "retrieval heads", MASKED_CONTEXT, "mask-heads", "heads"): {"accuracy": 0.9, "log_likelihood": -0.3},
    }
    for place, context in enumerate(NOISE):
        lost = 0.1 * place if arm else 0.0
        found[twin, "noise", context, "", ""] = {"accuracy": 0.9 - lost, "log_likelihood": -0.1 - lost}
    for context in POSITIONS:
        found[twin, "position", context, "", ""] = {"accuracy": 0.6 if arm and context == POSITIONS[1] else 0.9, "log_likelihood": -0.1}
    for context in LAYOUTS:
        found[twin, "layout", context, "", ""] = {"accuracy": 0.5 if arm and context == LAYOUTS[2] else 0.9, "log_likelihood": -0.1}
    for experiment, counts in (("masked descriptions", (1, 10)), ("masked answers", (1, 5, 10))):
        found[twin, experiment, MASKED_CONTEXT, "", ""] = {"accuracy": 0.9, "log_likelihood": -0.1}
        for keys in counts:
            for control in ("", "count", "mass"):
                hurt = arm and not control
                outcome = {
                    "accuracy": 0.05 if hurt else 0.9,
                    "log_likelihood": -9.0 if hurt else -0.1,
                    "removed": 0.2,
                    "likelihood_removed": 0.2,
                }
                found[twin, experiment, MASKED_CONTEXT, f"mask-anchors:{keys}", control] = outcome
    return found
