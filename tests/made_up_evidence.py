"""Evidence made up by hand: numbers as the papers report them, a little noise between samples, and ways to change one of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from floatlens.claims.attention import FAIR_ROLLOUT, THRESHOLD
from floatlens.claims.design import ROLES, WORLD
from floatlens.claims.evidence import Evidence

SAMPLES = 12
Measured = tuple[str, str, str, str, str, str]  # role, rows, measure, group, part, depth
Asked = tuple[str, str, str, str, str]  # role, experiment, context, intervention, control


@dataclass
class MadeUp:
    """Means of everything the claims read. `noise` is how far samples lie from the mean, alternately above and below.

    Of 36 `samples`, each slot of the gold passage has the twelve that a verdict needs.
    """

    measured: dict[Measured, tuple[float, float]] = field(default_factory=dict)
    asked: dict[Asked, dict[str, float]] = field(default_factory=dict)
    scores: dict[tuple[str, str], float] = field(default_factory=dict)  # role, third
    noise: float = 0.01
    samples: int = SAMPLES
    counts: bool = True
    to_gold: dict[tuple[str, str, int], float] = field(default_factory=dict)  # role, measure, slot: beyond what others get; 2 by default

    def _varied(self, name: str, value: float, away: float) -> float:
        """A sample's own outcome; accuracies end at 0 and 1, whatever the noise."""
        return float(np.clip(value + away, 0.0, 1.0)) if name == "accuracy" else value + away * (name == "log_likelihood")

    def _to_gold(self, key: Measured, at: int) -> float:
        """What a passage gets beyond the others where it is gold: in sample 0 the first, in sample 1 the second, and so on in turn."""
        slot = 1 + at % 3
        return self.to_gold.get((key[0], key[2], slot), 2.0) if key[4] == f"doc_{slot}" else 0.0

    def evidence(self) -> Evidence:
        random = np.random.default_rng(0)

        def wobble(count: int) -> list[np.ndarray]:
            """Deviations that add up to 0, in another order for each number, so that differences between numbers vary as well."""
            return [self.noise * random.permutation(np.resize([1.0, -1.0, 0.5, -0.5], self.samples)) for _ in range(count)]

        samples = [f"sample-{number:02d}" for number in range(self.samples)]
        names = ("role", "rows", "measure", "group", "part", "depth")
        measured = [
            {
                **dict(zip(names, key, strict=True)),
                "unit": "",
                "sample": sample,
                "value": value + away[at] + self._to_gold(key, at),
                "null": null,
                "reason": "",
            }
            for away, (key, (value, null)) in zip(wobble(len(self.measured)), self.measured.items(), strict=True)
            for at, sample in enumerate(samples)
        ]
        keys = ("role", "experiment", "context", "intervention", "control")
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
                "role": role,
                "sample": sample,
                "layer": layer,
                "head": head,
                "third": third,
                "score": score + 0.001 * (-1) ** at,
                "null": 0.0,
                "counts": self.counts,
            }
            for layer, ((role, third), score) in enumerate(self.scores.items())
            for head in range(4)
            for at, sample in enumerate(samples)
        ]
        about: dict[str, Any] = {
            "models": {role: f"twin-{role}" for role in ROLES},
            "questions": self.samples,
            "traced": self.samples,
            "seed": 0,
        }
        about["slots"] = {sample: 1 + at % 3 for at, sample in enumerate(samples)}
        return Evidence(pl.DataFrame(measured), pl.DataFrame(heads), pl.DataFrame(asked), about)


def as_published() -> MadeUp:
    """Numbers for which every claim holds, roughly as the papers have them; the causal MDM looks like the ARM and answers like the MDM."""
    made_up = MadeUp()
    for role in ROLES:
        like_arm = role != "mdm"
        group = "predicting" if role == "arm" else "masked"
        for rows in ("recorded", "rectangle"):
            for own in {group, "predicting"} if rows == "recorded" else {"predicting"}:
                here = (role, rows)
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
                    (*here, "changes of the path, layers pooled", own, "", "all"): (0.0 if like_arm else 0.4, 0.05),
                }
                for token_role, share in (("mask", 0.37), ("layout", 0.37), ("punctuation", 0.05)):
                    made_up.measured[*here, "anchor mass by role", own, token_role, "all"] = (share, 0.05)
                for depth, part, value in (
                    ("shallow", "direction", 1.0),
                    ("shallow", "norm", 0.7),
                    ("deep", "direction", 2.0),
                    ("deep", "norm", -0.5),
                ):
                    made_up.measured[*here, "score advantage of anchors", own, part, depth] = (value, np.nan)
        made_up.measured |= _paths(role) | _flow(role)
        for third, score in (("shallow", 0.01), ("middle", 0.02), ("deep", 0.05)):
            made_up.scores[role, third] = score
        made_up.asked |= _answers(role)
    return made_up


def _paths(role: str) -> dict[Measured, tuple[float, float]]:
    """The path of the strongest key, layers pooled: on the prompt's rows, and of texts written left to right."""
    moves = 0.0 if role == "arm" else 0.3
    found: dict[Measured, tuple[float, float]] = {}
    for group, keys in (("prompt", "all keys"), ("predicting", "prompt keys")):
        found[role, "left to right", "movement of the path, layers pooled", group, keys, "all"] = (moves, np.nan)
        found[role, "left to right", "changes of the path, layers pooled", group, keys, "all"] = (moves + 0.1, 0.1)
        found[role, "left to right", "steps on the favourite key, layers pooled", group, keys, "all"] = (1 - moves, 0.9)
    return found


def _flow(role: str) -> dict[Measured, tuple[float, float]]:
    """The threshold of the paper on sinks, and flow to passages: doc_1 is gold in sample 0, doc_2 in sample 1, and so on."""
    found: dict[Measured, tuple[float, float]] = {}
    for group in ("masked", "unmasked", "predicting"):
        found[role, "recorded", THRESHOLD, group, "keys", "all"] = (1.5, np.nan)
        found[role, "recorded", THRESHOLD, group, "attention", "all"] = (20.0, np.nan)
    for number in (1, 2, 3):
        found[role, "recorded", "fair flow", "", f"doc_{number}", "all"] = (0.5, np.nan)
        found[role, "recorded", FAIR_ROLLOUT, "", f"doc_{number}", "all"] = (0.5, np.nan)
    return found


def _answers(role: str) -> dict[Asked, dict[str, float]]:
    arm = role == "arm"
    found: dict[Asked, dict[str, float]] = {
        (role, "noise", "closed-book", "", ""): {"accuracy": 0.25 if arm else 0.05, "log_likelihood": -6.0},
        (role, "position", "gold", "", ""): {"accuracy": 0.95, "log_likelihood": -0.1},
        (role, "retrieval heads", WORLD.masked_context, "", ""): {"accuracy": 0.9, "log_likelihood": -0.1},
        (role, "retrieval heads", WORLD.masked_context, "mask-heads", ""): {"accuracy": 0.2, "log_likelihood": -4.0},
        (role, "retrieval heads", WORLD.masked_context, "mask-heads", "heads"): {"accuracy": 0.9, "log_likelihood": -0.3},
    }
    for level, context in zip(WORLD.levels, WORLD.noise, strict=True):
        lost = level / 2 if arm else 0.0
        found[role, "noise", context, "", ""] = {"accuracy": 0.9 - lost, "log_likelihood": -0.1 - lost}
    for context in WORLD.positions:
        found[role, "position", context, "", ""] = {
            "accuracy": 0.6 if arm and context == WORLD.positions[1] else 0.9,
            "log_likelihood": -0.1,
        }
    for context in WORLD.layouts:
        found[role, "layout", context, "", ""] = {"accuracy": 0.5 if arm and context == WORLD.layouts[2] else 0.9, "log_likelihood": -0.1}
    for experiment, counts in (("masked descriptions", (1, 10)), ("masked answers", (1, 5, 10))):
        found[role, experiment, WORLD.masked_context, "", ""] = {"accuracy": 0.9, "log_likelihood": -0.1}
        for keys in counts:
            for control in ("", "count", "mass"):
                hurt = arm and not control
                outcome = {
                    "accuracy": 0.05 if hurt else 0.9,
                    "log_likelihood": -9.0 if hurt else -0.1,
                    "removed": 0.2,
                    "likelihood_removed": 0.2,
                }
                found[role, experiment, WORLD.masked_context, f"mask-anchors:{keys}", control] = outcome
    return found
