"""Published data sets by name: under which file names they lie in a folder.

floatlens brings none of them. A file is named (`--data FILE`), or looked for in a folder (`--data FOLDER`, or the one that `FLOATLENS_QA_DATA` names) by the names below, in their order.
What a file holds is told from its first record, so a file in another format under one of these names is read as well. Refused: no such file, with the names that were looked for.
"""

import os
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.tasks.readers.sources import HUB

FOLDER_VARIABLE = "FLOATLENS_QA_DATA"

PUBLISHED = {
    "nq": ("nq-open-oracle.jsonl.gz", "nq-open-oracle.jsonl", "nq_dev_psg.jsonl", "NQ-open.dev.jsonl"),
    "triviaqa": ("tqa_dev_psg.jsonl",),
    "ms-marco": ("marco_qa_psg.jsonl",),
    "hotpotqa": ("hotpot_dev_distractor_v1.json", "hotpot-distractor-sample-100.jsonl", "hotpotqa_dev_psg.jsonl"),
    "trex": ("trex_dev_psg.jsonl", "pararel_trex_merged.jsonl"),
    "squad": ("dev-v1.1.json", "train-v1.1.json"),
    "rgb": ("en_fact.json", "rgb_en_fact.json"),
    "key-value": ("kv-retrieval-75_keys.jsonl.gz", "kv-retrieval-140_keys.jsonl.gz", "kv-retrieval-300_keys.jsonl.gz"),
    "poisonedrag": ("poisonedrag-nq.json", "nq.json"),
    "gsm8k": ("gsm8k-test.jsonl", "test.jsonl"),
    "humaneval": ("HumanEval.jsonl.gz", "HumanEval.jsonl"),
}
"""Data sets, and the names their files are published under."""


def find_data(name: str, data: str | os.PathLike[str] | None = None) -> str:
    """The file of a task: the one that is given, or the published one in a folder.

    Parameters
    ----------
    name
        A task.
    data
        A file, a folder, or a name on the hub ("hf:..."); by default the folder that `FLOATLENS_QA_DATA` names.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "HumanEval.jsonl").touch()
    >>> Path(find_data("humaneval", folder)).name
    'HumanEval.jsonl'
    """
    given = data if data is not None else os.environ.get(FOLDER_VARIABLE)
    if given is None:
        names = f" ({' or '.join(PUBLISHED[name])})" if name in PUBLISHED else ""
        raise Refusal(
            f"The task {name} is read from a file{names}, and none is given. Give the file or its folder, or name the folder in {FOLDER_VARIABLE}."
        )
    if os.fspath(given).startswith(HUB):
        return os.fspath(given)
    place = Path(given).expanduser()
    if not place.is_dir():
        return str(place)
    if name not in PUBLISHED:
        raise Refusal(f"{place} is a folder, and files of the task {name} have no published name to look for in it. Give the file.")
    found = next((place / one for one in PUBLISHED[name] if (place / one).is_file()), None)
    if found is None:
        raise Refusal(f"There is no file of the task {name} in {place}; looked for {', '.join(PUBLISHED[name])}.")
    return str(found)
