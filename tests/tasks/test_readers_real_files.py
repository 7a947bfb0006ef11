"""Published files, where they are: `FLOATLENS_QA_DATA` names their folder.

Every file of it must be read whole, and those known here hold what they are known to.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from floatlens.tasks.readers import guess_kind, read_code_tasks, read_samples
from floatlens.tasks.readers.records import read_records

FOLDER = os.environ.get("FLOATLENS_QA_DATA")
FILES = sorted(path for path in Path(FOLDER).iterdir() if path.suffix in (".json", ".jsonl", ".gz")) if FOLDER else []

KNOWN = {  # kind, samples, passages, gold passages, conflicting passages
    "nq-open-oracle.jsonl.gz": ("lost-in-the-middle", 2655, 2655, 2655, 0),
    "kv-retrieval-75_keys.jsonl.gz": ("key-value", 500, 37500, 500, 0),
    "NQ-open.dev.jsonl": ("nq-open", 3610, 0, 0, 0),
    "rgb_en_fact.json": ("rgb", 100, 1384, 395, 395),
    "hotpot-distractor-sample-100.jsonl": ("hotpotqa", 100, 1000, 200, 0),
    "poisonedrag-nq.json": ("poisonedrag", 100, 500, 0, 500),
    "gsm8k-test.jsonl": ("gsm8k", 1319, 0, 0, 0),
    "pararel_trex_merged.jsonl": ("trex", 29411, 0, 0, 0),
    "HumanEval.jsonl.gz": ("humaneval", 164, 0, 0, 0),
}


@pytest.mark.skipif(not FOLDER, reason="FLOATLENS_QA_DATA names no folder of published files")
def test_there_are_files() -> None:
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_published_file_is_read_whole(file: Path) -> None:
    kind = guess_kind(next(read_records(file)))
    if kind == "humaneval":
        found = (kind, sum(1 for _ in read_code_tasks(file)), 0, 0, 0)
    else:
        counts = Counter[str]()
        for sample in read_samples(file):
            counts.update(samples=1, passages=len(sample.passages), gold=len(sample.gold), conflicting=len(sample.conflicts))
        found = (kind, counts["samples"], counts["passages"], counts["gold"], counts["conflicting"])
    print(file.name, *found)
    assert found == KNOWN.get(file.name, found)
    assert found[1] > 0
