"""The world's tokenizer: one token a word, a punctuation mark or a new line, in a normal `tokenizers` file.

Texts are written as people write ("Marta Olsen lives in Oslo."); a beginning token is put before each. Words that the world does not have become
[UNK]; `text_of` and the tokenizer are each other's inverse on the world's words.
"""

from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from floatlens.tasks.world.words import BOS, EOS, MASK, NEWLINE, PAD, SPECIAL, UNKNOWN, vocabulary

CLOSING = frozenset(".,?:")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, as transformers uses it; `save_pretrained` writes its files.

    Examples
    --------
    >>> tokenizer = make_tokenizer()
    >>> tokenizer.convert_ids_to_tokens(tokenizer("Marta Olsen lives in Oslo.")["input_ids"])
    ['[BOS]', 'Marta', 'Olsen', 'lives', 'in', 'Oslo', '.']
    """
    ids = {word: number for number, word in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|\w+|[^\w\s]"), behavior="removed", invert=True)  # type: ignore[assignment]  # a property without a typed setter
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, ids[BOS])])  # type: ignore[assignment]  # as above
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        mask_token=MASK,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )


def text_of(words: Sequence[str], spans: Mapping[str, tuple[int, int]] | None = None) -> tuple[str, dict[str, tuple[int, int]]]:
    """Words as text, and spans of words as spans of its characters.

    Examples
    --------
    >>> text_of(["Here", ":", "\\n", "Oslo", "."], {"query": (3, 5)})
    ('Here:\\nOslo.', {'query': (6, 11)})
    """
    text, starts, stops = "", [], []
    for word in words:
        joined = not text or word in CLOSING or word == NEWLINE or text.endswith(NEWLINE)
        text += "" if joined else " "
        starts.append(len(text))
        text += word
        stops.append(len(text))
    return text, {name: (starts[first], stops[stop - 1]) for name, (first, stop) in (spans or {}).items()}
