"""AntiBERTy from the Python package `antiberty` (MIT): a masked language model of antibody sequences.

Version 0.1.3 is the last one whose wheel carries the weights. They are a torch file, which is a pickle. It is read with torch's
`weights_only` unpickler, which builds tensors and runs nothing, and kept in the cache as safetensors.

The network is a stock BERT with a masked-language head. Its other heads (species, chain, graft), and the pooler that feeds them, predict
one label for a whole sequence; they are left out, because nothing here asks for that.

The tokenizer does what the package's own code does: one token for each of the 20 amino acids in capital letters, [CLS] before and [SEP]
after every sequence, blanks dropped, an underscore is a mask, and everything else is [UNK] (X, lower case, the gap "-", with which it was
trained as [UNK]). Unlike the package, it also reads `[MASK]` as a mask. Species and chain are never part of the input.

Refused: what `wheels` refuses; a torch file that holds anything but tensors; tensors that do not fit the config.
"""

import contextlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from floatlens.errors import Refusal, reason
from floatlens.models.sources.wheels import PinnedWheel, model_of_wheel

CONVERSION_VERSION = 1  # raise when the folder this writes changes: part of the cache key

_FOLDER = "antiberty/trained_models"
_WHEEL = PinnedWheel(
    model="AntiBERTy",
    requirement="antiberty==0.1.3",
    sha256="30d910992b190013871bac49cdc032e01a19339f7d2b958ab99b0eb44638352a",
    megabytes=97,
    files=(f"{_FOLDER}/AntiBERTy_md_smooth/pytorch_model.bin", f"{_FOLDER}/AntiBERTy_md_smooth/config.json", f"{_FOLDER}/vocab.txt"),
)
_LEFT_OUT = ("bert.pooler.", "bert.embeddings.position_ids", "cls.species.", "cls.chain.", "cls.graft.")
_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
_NOT_IT = "Check where pip fetches packages from."


def antiberty() -> Path:
    """The checkpoint folder of AntiBERTy, fetched and converted the first time.

    8 layers, 8 heads, 25 tokens, at most 512 positions; 97 MB to fetch, 103 MB in the cache as float32.

    Examples
    --------
    >>> from transformers import AutoModelForMaskedLM
    >>> model = AutoModelForMaskedLM.from_pretrained(antiberty())  # doctest: +SKIP
    """
    return model_of_wheel(_WHEEL, CONVERSION_VERSION, convert)


def convert(weights: Path, config: Path, vocabulary: Path, folder: Path) -> None:
    """Write the model into `folder` as a Hugging Face checkpoint of a stock BERT.

    Parameters
    ----------
    weights
        A torch file with the tensors by name.
    config
        The published config.json.
    vocabulary
        One token per line.
    folder
        An existing folder, which receives `model.safetensors`, `config.json`, `tokenizer.json` and `tokenizer_config.json`.
    """
    published = json.loads(config.read_text(encoding="utf-8"))
    known = set(BertConfig().to_dict()) - {"architectures", "transformers_version", "_name_or_path"}
    stock = BertConfig(**{field: value for field, value in published.items() if field in known})
    tensors = {name: tensor for name, tensor in read_tensors(weights).items() if not name.startswith(_LEFT_OUT)}
    with torch.device("meta"):  # nothing is drawn at random only to be replaced
        module: Any = BertForMaskedLM(stock)
    try:
        module.load_state_dict(tensors, assign=True)
    except RuntimeError as error:  # names or shapes
        raise Refusal(f"The weights in {weights.name} do not fit {config.name}: {reason(error)}. {_NOT_IT}") from None
    module.tie_weights()
    tokens = vocabulary.read_text(encoding="utf-8").split()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(tokens), model_max_length=stock.max_position_embeddings, clean_up_tokenization_spaces=False, **_SPECIAL
    )
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar of its own
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a torch file by name. No code of the file runs; a file that holds anything but tensors is refused."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError, AttributeError, TypeError, OSError) as error:
        raise Refusal(f"{file.name} is not a torch file of tensors alone, and nothing in it was run: {reason(error)}. {_NOT_IT}") from None
    if not isinstance(content, dict) or not all(isinstance(name, str) and isinstance(part, Tensor) for name, part in content.items()):
        raise Refusal(f"{file.name} holds something else than tensors by name. {_NOT_IT}")
    return content


def _tokenizer(tokens: list[str]) -> Tokenizer:
    """One token for each character that is not blank; the mask may be written as an underscore."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=_SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.Replace("_", _SPECIAL["mask_token"])
    # The mask is looked for after that replacement, the others before.
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=token == _SPECIAL["mask_token"], special=True) for token in _SPECIAL.values()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")])
    tokenizer.decoder = decoders.Fuse()
    begin, end = _SPECIAL["cls_token"], _SPECIAL["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(token, vocabulary[token]) for token in (begin, end)],
    )
    return tokenizer
