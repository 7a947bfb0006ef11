"""The Trace: a thin class around an `xarray.Dataset` of a run, and `open_trace`, which reads one from disk as it is looked at."""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from xarray.core import indexing

from floatlens.errors import Caution, Refusal
from floatlens.trace.integrity import Damage
from floatlens.trace.opening import RaggedArray, examine
from floatlens.trace.schema import STATES
from floatlens.trace.store import TraceFolder

_said_unprotected = False  # once a process is enough


class UnprotectedTrace(Caution):
    """A trace without checksums was opened."""


@dataclass(frozen=True, eq=False)
class SampleArrays:
    """One sample: its arrays (numpy or zarr) with their axes, and its texts."""

    arrays: Mapping[str, tuple[tuple[str, ...], Any]]
    attributes: Mapping[str, Any]


class Trace:
    """What a model did at each step, and where it looked.

    `trace.dataset` is an `xarray.Dataset` over sample, step, layer, head, group, key (and position, for the canvas); `trace.attributes` says what was run.
    docs/reference/trace-format.md describes every variable.
    """

    def __init__(self, samples: Sequence[SampleArrays], attributes: Mapping[str, Any]) -> None:
        self._samples = samples
        self.attributes = dict(attributes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {size}" for name, size in self.dataset.sizes.items())
        return f"<Trace of {self.attributes['model']} ({self.attributes['family']}): {sizes}>"

    def __len__(self) -> int:
        return len(self._samples)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All samples, padded with NaN where one is shorter than another. Values are read when they are used."""
        return self._as_dataset(self._samples).assign_coords(sample=np.arange(len(self)))

    def sample(self, number: int) -> xr.Dataset:
        """One sample, without padding and without a sample axis."""
        if not -len(self) <= number < len(self):
            raise Refusal(f"There is no sample {number}; the trace has {len(self)}, counted from 0.")
        return self._as_dataset([self._samples[number]]).isel(sample=0)

    def prompt(self, number: int = 0) -> str:
        """The exact text the model was given."""
        return self._samples[number].attributes["prompt"]

    def completion(self, number: int = 0) -> str:
        """The text it wrote."""
        return self._samples[number].attributes["completion"]

    def tokens(self, number: int = 0, step: int | None = None) -> list[str]:
        """The texts of the tokens on the canvas before a step; of the finished text without one."""
        own = self._samples[number]
        ids = own.arrays["final"][1][...] if step is None else own.arrays["canvas"][1][step]
        return [own.attributes["vocabulary"].get(str(token), "") for token in np.asarray(ids).tolist()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a new folder."""
        folder = TraceFolder(path)
        try:
            for number, sample in enumerate(self._samples):
                loaded = {name: (dims, np.asarray(array[...])) for name, (dims, array) in sample.arrays.items()}
                store = folder.sample(number)
                store.append({name: value for name, value in loaded.items() if value[0][0] == "step"})
                store.finish({name: value for name, value in loaded.items() if value[0][0] != "step"}, sample.attributes)
            folder.finish(self.attributes)
        finally:
            folder.abandon()

    def _as_dataset(self, samples: Sequence[SampleArrays]) -> xr.Dataset:
        variables: dict[str, xr.Variable] = {}
        for name, (dims, first) in samples[0].arrays.items():
            fill = (
                0
                if name == "state"
                else np.nan
                if np.dtype(first.dtype).kind == "f"
                else False
                if np.dtype(first.dtype).kind == "b"
                else -1
            )
            ragged = RaggedArray([sample.arrays[name][1] for sample in samples], fill)
            variables[name] = xr.Variable(("sample", *dims), indexing.LazilyIndexedArray(ragged))
        variables["state"].attrs = {"flag_values": list(range(len(STATES))), "flag_meanings": list(STATES)}
        dataset = xr.Dataset(variables, attrs={"floatlens": json.dumps(self.attributes)})
        coordinates = {
            name: value for name, value in self._coordinates().items() if (value[0] if isinstance(value, tuple) else name) in dataset.dims
        }
        return dataset.assign_coords(coordinates).assign_coords(
            token=(("sample", "position"), self._token_texts(samples, dataset.sizes["position"]))
        )

    def _coordinates(self) -> dict[str, Any]:
        said = self.attributes
        return {
            "layer": said["layer_numbers"],
            "module": ("layer", said["modules"]),
            "group": said["groups"],
            "region": said["regions"],
            "query_region": said["regions"],
            "key_region": said["regions"],
            "chosen_layer": ("chosen", [layer for layer, _ in said["chosen"]]),
            "chosen_head": ("chosen", [head for _, head in said["chosen"]]),
        }

    def _token_texts(self, samples: Sequence[SampleArrays], longest: int) -> np.ndarray:
        ids_by_sample = [np.asarray(sample.arrays["final"][1][...]).tolist() for sample in samples]
        texts = np.full((len(samples), longest), "", dtype=object)
        for at, (sample, ids) in enumerate(zip(samples, ids_by_sample, strict=True)):
            texts[at, : len(ids)] = [sample.attributes["vocabulary"].get(str(token), "") for token in ids]
        return texts.astype(str)


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace that `lm.trace(..., path=...)`, `trace.save` or `floatlens trace` has written; nothing is read until it is used.

    `path` is a folder, or any fsspec URL ("s3://bucket/run.zarr", "https://...", "memory://...").
    """
    found = examine(path)
    if found.faults:
        raise Damage(found.place.text, found.faults[0])
    if not found.protected:
        _say_once_that_old_traces_are_unprotected(found.place.text)
    return Trace([SampleArrays(arrays, attributes) for arrays, attributes in found.samples], found.attributes)


def _say_once_that_old_traces_are_unprotected(place: str) -> None:
    global _said_unprotected
    if not _said_unprotected:
        _said_unprotected = True
        warnings.warn(
            f"{place} was written before traces had checksums, so damage to it would not be noticed. Save it again to protect it: fl.open_trace(path).save(new_path).",
            UnprotectedTrace,
            stacklevel=3,
        )
