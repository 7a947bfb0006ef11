"""The world's tokenizer (one token per word, punctuation mark or new line), and the hash of a world, by which weights name it.

Texts are written as people write ("Marta Olsen lives in Oslo."), with a beginning token before each. Words that the world does not have
become [UNK]; `text_of` and the tokenizer are each other's inverse on the world's words.

Decided here: the hash covers everything that a world can say: the vocabulary in its order (token ids), who is known, trained and tested in
their order (draws depend on it), the facts of the known, and how each kind of sentence is worded. It does not cover how sequences are drawn
from these, which belongs to a training recipe. It is computed from text, so it is the same in every process and on every platform.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from floatlens.tasks.world.people import Person, World, asked, asked_to_describe, asked_who, description, fact, relation_fact
from floatlens.tasks.world.words import ATTRIBUTES, BOS, EOS, MASK, NEWLINE, PAD, RELATIONS, SCENES, SEASONS, SPECIAL, UNKNOWN, vocabulary

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


def world_hash(world: World) -> str:
    """The sha256 of what a world can say, in hexadecimal.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> world_hash(make_world())[:12]
    '7c7279da7820'
    >>> world_hash(make_world(seed=1)) == world_hash(make_world())
    False
    """
    content = {
        "vocabulary": vocabulary(),
        "known": [[*person, *values] for person, values in world.known.items()],
        "training": world.training,
        "test": world.test,
        "attributes": [[attribute.name, attribute.values] for attribute in ATTRIBUTES],
        "relations": RELATIONS,
        "fillers": [SEASONS, SCENES],
        "sentences": _sentences(),
    }
    return sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def _sentences() -> list[list[str]]:
    """Each kind of sentence once, with marks where names and values go."""
    person, other = Person("<first>", "<last>"), Person("<other first>", "<other last>")
    facts = [fact(person, attribute, "<value>") for attribute in ATTRIBUTES]
    questions = [asked(person, attribute, relation) for attribute in ATTRIBUTES for relation in (None, *RELATIONS)]
    relations = [sentence for relation in RELATIONS for sentence in (relation_fact(person, relation, other), asked_who(person, relation))]
    return [
        *facts,
        *questions,
        *relations,
        asked_to_describe(person),
        description(person, tuple(f"<{attribute.name}>" for attribute in ATTRIBUTES)),
    ]
