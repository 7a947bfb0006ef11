"""The Trace: a thin class around an `xarray.Dataset` of a run, and `open_trace`, which reads one from disk as it is looked at.

Each sample has arrays of its own size, in memory or on disk. Together they are as large as the largest; what does not exist is NaN (-1 in
integers). `examine` collects what is wrong with the files and metadata of a trace on disk: `open_trace` refuses the first fault,
`floatlens verify` prints all of them. Data are compared with their checksums when they are read. A trace from before there were checksums
has no manifest, and is examined as far as its metadata go.

Refused: what is no trace, a damaged trace, a trace of a later version of the format, and reading more than fits into memory.
"""

import json
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing

from floatlens.errors import Caution, Refusal
from floatlens.folders import MANIFEST
from floatlens.folders.manifest import parse_manifest
from floatlens.trace.integrity import CheckedStore, Damage, Place, StoredArray, in_short, parse_pieces, refuse_more_than_memory
from floatlens.trace.schema import (
    CHECKSUMS,
    MARK,
    SCHEMA_VERSION,
    STATES,
    attribute_faults,
    axes_of,
    differing_faults,
    sample_faults,
    version_fault,
)
from floatlens.trace.store import TraceFolder
from floatlens.trace.viewing import viewer

_warned_unprotected = False  # once per process is enough


class UnprotectedTrace(Caution):
    """A trace without checksums was opened."""


@dataclass(frozen=True, eq=False)
class SampleArrays:
    """One sample: its arrays (numpy or zarr) with their axes, and its texts."""

    arrays: Mapping[str, tuple[tuple[str, ...], Any]]
    attributes: Mapping[str, Any]


class Trace:
    """What a model did at each step, and where it looked.

    `trace.dataset` is an `xarray.Dataset` over sample, step, layer, head, group, key (and position, for the canvas); `trace.attributes`
    says what was run. docs/reference/trace-format.md describes every variable.
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

    def vocabulary(self, number: int = 0) -> dict[str, str]:
        """The text of every token that stands on the canvas at any step, by its id."""
        return dict(self._samples[number].attributes["vocabulary"])

    def view(self, *, samples: Sequence[int] = (), rule: str = "lift", eps: float | None = None) -> Any:
        """Show this trace in a notebook: `fl.view(trace)`, which says more. Needs anywidget (`pip install 'floatlens[widget]'`).

        Parameters
        ----------
        samples
            Which samples; all by default.
        rule, eps
            How anchors are found: see `floatlens.measures.find_anchors`.
        """
        return viewer()(self, samples=samples, rule=rule, eps=eps)

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
        attributes = self.attributes
        return {
            "layer": attributes["layer_numbers"],
            "module": ("layer", attributes["modules"]),
            "group": attributes["groups"],
            "region": attributes["regions"],
            "query_region": attributes["regions"],
            "key_region": attributes["regions"],
            "chosen_layer": ("chosen", [layer for layer, _ in attributes["chosen"]]),
            "chosen_head": ("chosen", [head for _, head in attributes["chosen"]]),
        }

    def _token_texts(self, samples: Sequence[SampleArrays], longest: int) -> np.ndarray:
        ids_by_sample = [np.asarray(sample.arrays["final"][1][...]).tolist() for sample in samples]
        texts = np.full((len(samples), longest), "", dtype=object)
        for number, (sample, ids) in enumerate(zip(samples, ids_by_sample, strict=True)):
            texts[number, : len(ids)] = [sample.attributes["vocabulary"].get(str(token), "") for token in ids]
        return texts.astype(str)


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace that `lm.trace(..., path=...)`, `trace.save` or `floatlens trace` has written; nothing is read until it is used.

    `path` is a folder, or any fsspec URL ("s3://bucket/run.zarr", "https://...", "memory://...").
    """
    examined = examine(path)
    if examined.faults:
        raise Damage(examined.place.text, examined.faults[0])
    if not examined.protected:
        _warn_once_of_an_unprotected_trace(examined.place.text)
    return Trace([SampleArrays(arrays, attributes) for arrays, attributes in examined.samples], examined.attributes)


def _warn_once_of_an_unprotected_trace(place: str) -> None:
    global _warned_unprotected
    if not _warned_unprotected:
        _warned_unprotected = True
        warnings.warn(
            f"{place} was written before traces had checksums, so damage to it would not be noticed. Save it again to protect it: "
            "fl.open_trace(path).save(new_path).",
            UnprotectedTrace,
            stacklevel=3,
        )


LabelledArrays = dict[str, tuple[tuple[str, ...], Any]]


@dataclass(eq=False)
class Examined:
    """A trace on disk, and what is wrong with it."""

    place: Place
    attributes: dict[str, Any]
    samples: list[tuple[LabelledArrays, dict[str, Any]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    protected: bool = True


def examine(path: str | os.PathLike[str], *, look_at_files: bool = True) -> Examined:
    """Look at files and metadata of a trace. Refuses what is no trace, or one so damaged that there is nothing more to say of it."""
    place = Place(path)
    if place.folder is not None and not place.folder.is_dir():
        raise Refusal(f"There is no trace at {place.text}: it is not a folder.")
    manifest = _manifest(place)
    store = CheckedStore(place.store(), place.text, None if manifest is None else manifest.files)
    root = _root(place, store)
    attributes: Any = root.attrs.get("floatlens")
    if not isinstance(attributes, dict) or attributes.get("format") != "trace":
        raise Refusal(f"{place.text} is a Zarr group, but not a trace of floatlens: its attributes do not say so.")
    examined = Examined(place, attributes, protected=manifest is not None)
    if manifest is not None and look_at_files:
        examined.faults += place.file_faults(manifest.files)
    if fault := version_fault(attributes):
        raise Damage(place.text, examined.faults[0] if examined.faults else fault)
    if attributes["schema_version"] > SCHEMA_VERSION:
        raise Refusal(
            f"{place.text} was written in version {attributes['schema_version']} of the trace format, and this floatlens reads up to "
            f"{SCHEMA_VERSION}. Update floatlens to open it."
        )
    wrong = list(attribute_faults(attributes))
    examined.faults += wrong
    groups = _sample_groups(examined, root)
    if not examined.protected and (MARK in root.attrs or any(CHECKSUMS in group.attrs for group in groups)):
        examined.faults.append(f"its {MANIFEST} is missing, which lists the checksums of its files")
    if not wrong:
        for number, group in enumerate(groups):
            _add_sample(examined, store, number, group)
        if not examined.faults:
            examined.faults += differing_faults([arrays for arrays, _ in examined.samples])
    return examined


def _manifest(place: Place) -> Any:
    content = place.bytes_of(MANIFEST)
    if content is None:
        return None
    try:
        return parse_manifest(content.decode())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Damage(place.text, f"its {MANIFEST} cannot be read") from None


def _root(place: Place, store: CheckedStore) -> zarr.Group:
    try:
        return zarr.open_group(store, mode="r", zarr_format=3)
    except Refusal:
        raise
    except Exception as error:  # whatever the parsers of Zarr make of damaged metadata
        if isinstance(error, FileNotFoundError) and store.files is None:
            raise Refusal(f"{place.text} is not a trace: it holds no Zarr group.") from None
        raise Refusal(f"{place.text} is not a trace, or its zarr.json is damaged: {in_short(error)}.") from None


def _sample_groups(examined: Examined, root: zarr.Group) -> list[zarr.Group]:
    """The groups of the samples, in order. There must be as many as the attributes say, numbered from 0."""
    try:
        samples = root.get("samples")
        groups = dict(samples.groups()) if isinstance(samples, zarr.Group) else {}
    except Refusal:
        raise
    except Exception as error:  # as above
        examined.faults.append(f"its samples cannot be listed ({in_short(error)})")
        return []
    numbered = {name: group for name, group in groups.items() if re.fullmatch("[0-9]{5,}", name)}
    promised = examined.attributes.get("samples")
    expected = [f"{number:05d}" for number in range(len(numbered))]
    if sorted(numbered, key=int) != expected or len(numbered) != promised:
        examined.faults.append(f"it has {len(numbered)} samples where its attributes say {promised!r:.60}")
        return []
    return [numbered[name] for name in expected]


def _add_sample(examined: Examined, store: CheckedStore, number: int, group: zarr.Group) -> None:
    try:
        arrays = dict(sorted(group.arrays()))
        attributes = dict(group.attrs)
        faults = list(sample_faults(examined.attributes, attributes, arrays))
    except Refusal:
        raise
    except Exception as error:  # as above
        examined.faults.append(f"sample {number} cannot be read ({in_short(error)})")
        return
    checksums = attributes.pop(CHECKSUMS, None)
    if store.files is not None:
        faults += _take_checksums(store, number, checksums)
    examined.faults += [f"sample {number}: {fault}" for fault in faults]
    if not faults:
        place = examined.place.text
        labelled = {name: (axes_of(array) or (), StoredArray(array, place, number, name)) for name, array in arrays.items()}
        examined.samples.append((labelled, attributes))


def _take_checksums(store: CheckedStore, number: int, checksums: Any) -> list[str]:
    """Tell the store what the shards of a sample end with; what is wrong with that."""
    assert store.files is not None
    if not isinstance(checksums, Mapping):
        return [f"the attribute {CHECKSUMS} is missing"]
    faults: list[str] = []
    for name, text in checksums.items():
        key, pieces = f"samples/{number:05d}/{name}", parse_pieces(text)
        if pieces is None:
            faults.append(f"the attribute {CHECKSUMS} holds nothing readable for {name}")
        elif key not in store.files or store.files[key].bytes != pieces[-1][0]:
            faults.append(f"{CHECKSUMS} and {MANIFEST} disagree about {name}")
        else:
            store.pieces[key] = pieces
    return faults


class RaggedArray(BackendArray):
    """Arrays of several samples, padded on demand. An array is anything with `shape`, `dtype` and numpy or zarr indexing."""

    def __init__(self, arrays: Sequence[Any], fill: Any) -> None:
        self.arrays, self.fill = arrays, fill
        self.shape = (len(arrays), *np.max([array.shape for array in arrays], axis=0).astype(int).tolist())
        self.dtype = np.dtype(arrays[0].dtype)

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        refuse_more_than_memory(self._count(key) * self.dtype.itemsize, "this part of the trace")
        wanted = [np.atleast_1d(np.arange(size)[part]) for part, size in zip(key, self.shape, strict=True)]
        exists = [[part < size for part, size in zip(wanted[1:], self.arrays[sample].shape, strict=True)] for sample in wanted[0]]
        if len(exists) == 1 and all(part.all() for part in exists[0]):  # nothing to pad
            result = self._part(wanted[0][0], wanted[1:])[None]
        else:
            result = np.full([len(part) for part in wanted], self.fill, dtype=self.dtype)
            for place, (sample, there) in enumerate(zip(wanted[0], exists, strict=True)):
                if all(part.any() for part in there):
                    inside = [part[is_there] for part, is_there in zip(wanted[1:], there, strict=True)]
                    result[(place, *np.ix_(*map(np.flatnonzero, there)))] = self._part(sample, inside)
        squeezed = tuple(axis for axis, part in enumerate(key) if isinstance(part, int | np.integer))
        return result.squeeze(axis=squeezed)

    def _count(self, key: tuple[Any, ...]) -> int:
        """How many numbers are asked for; at least as many as the longest axis has, which is counted through."""
        counts = [len(range(size)[part]) if isinstance(part, slice) else np.size(part) for part, size in zip(key, self.shape, strict=True)]
        return max(math.prod(counts), *self.shape)

    def _part(self, sample: int, wanted: Sequence[np.ndarray]) -> np.ndarray:
        """These indices of one sample's array."""
        array = self.arrays[sample]
        source = tuple(map(_simplest, wanted))
        return array.oindex[source] if hasattr(array, "oindex") else array[np.ix_(*map(_as_indices(array), source, range(len(source))))]


def _simplest(indices: np.ndarray) -> slice | np.ndarray:
    """A slice where the indices are one: stores read those best."""
    if len(indices) == 1 or bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def _as_indices(array: Any) -> Any:
    return lambda part, axis: np.arange(array.shape[axis])[part]
