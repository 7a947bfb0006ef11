"""Roles of words and of the pieces that tokenizers cut them into, against texts read by eye."""

import pytest

import floatlens as fl
from floatlens.measures.roles import role_of_word, roles_of_tokens


@pytest.mark.parametrize(
    ("role", "texts"),
    {
        "layout": ["\n", "\n\n", " ", "\t", "\u00a0", "\u200b", "\r\n  "],
        "punctuation": [".", " ...", ".\n\n", "—", "«", "。", "$", "+", "😀", "❤️", "_", "##"],
        "number": ["7", " 1990", "3.14", "-5", "50%", "٣٤", "३", "½", "1,000"],
        "function": [
            " the",
            "The",
            "THE",
            "(the",
            "of,",
            " of the",
            "don't",
            "DON\u2019T",
            "it's",
            "we'll",
            "'s",
            "\u2019re",
            "cannot",
            "under",
        ],
        "content": ["Anna", " Straße", "の", "die", "3rd", "Anna's", "O'Neill", "s", "t", "the dog", "e.g.", "नमस्ते", "\u093e"],
    }.items(),
)
def test_words_have_the_role_that_a_reader_would_give_them(role: str, texts: list[str]) -> None:
    assert {text: role_of_word(text) for text in texts} == dict.fromkeys(texts, role)


def roles_without_marks(texts: list[str], **characters: list[int]) -> list[str]:
    return roles_of_tokens(texts, [False] * len(texts), [False] * len(texts), **characters)


def test_pieces_of_a_word_have_the_role_of_the_word() -> None:
    found = roles_without_marks([" un", "der", " un", "derst", "and", " the", "ory", "-", "the", " the"])
    assert found == ["function"] * 2 + ["content"] * 5 + ["punctuation", "function", "function"]


def test_a_blank_token_and_a_number_end_a_word() -> None:
    assert roles_without_marks([" un", " ", "der", " mp", "3", "the"]) == ["content", "layout", "content", "content", "number", "function"]


def test_contractions_count_by_their_parts_however_they_are_cut() -> None:
    assert roles_without_marks([" don", "'t", " Anna", "'s", " Anna", "\u2019", "s"]) == [
        *("function", "function"),
        *("content", "function"),
        *("content", "punctuation", "function"),
    ]
    assert roles_without_marks([" d", "on", "'", "t", " O", "'", "Neill"])[:4] == ["function", "function", "punctuation", "function"]
    assert roles_without_marks([" An", "na's"]) == ["content", "content"]
    assert roles_without_marks([" O", "'", "Neill"]) == ["content", "punctuation", "content"]
    assert roles_without_marks([" '", "the", "'", " dogs", "'", " the"]) == [
        *("punctuation", "function", "punctuation"),
        *("content", "punctuation", "function"),
    ]


def test_tokens_without_blanks_are_told_apart_by_their_characters() -> None:
    texts = ["the", "or", "y", "un", "der"]
    words, pieces = roles_without_marks(texts), ["function", "content", "content", "function", "function"]
    assert words == ["function", "function", "content", "content", "content"], "without characters or blanks, every token is a word"
    assert roles_without_marks(texts, starts=[0, 4, 6, 8, 10], stops=[3, 6, 7, 10, 13]) == pieces
    # written tokens cover the blank before them: " or" is three characters for a text of two
    assert roles_without_marks(texts, starts=[0, 3, 6, 7, 10], stops=[3, 6, 7, 10, 13]) == pieces


def test_the_marks_of_bert_continue_a_word_with_and_without_characters() -> None:
    texts = ["the", "##ory", "of", "un", "##der", "##5"]
    expected = ["content", "content", "function", "function", "function", "number"]
    assert roles_without_marks(texts) == expected
    assert roles_without_marks(texts, starts=[0, 3, 7, 10, 12, 15], stops=[3, 6, 9, 12, 15, 16]) == expected


def test_where_characters_are_not_known_blanks_decide() -> None:
    nowhere = [-1] * 3
    assert roles_without_marks([" the", "ory", " of"], starts=nowhere, stops=nowhere) == ["content", "content", "function"]


def test_a_word_ends_where_the_template_and_special_tokens_do() -> None:
    assert roles_of_tokens([" Q", "the"], [False, False], [True, False]) == ["template", "function"]
    assert roles_of_tokens([" BOS", "the"], [True, False], [False, False]) == ["special", "function"]
    assert roles_of_tokens([" the", "EOS"], [False, True], [False, False]) == ["function", "special"]


def test_the_first_role_that_fits_is_the_role() -> None:
    texts = ["\n", ".", " the", " 3", " Anna"]
    assert roles_of_tokens(texts, [True] * 5, [True] * 5) == ["special"] * 5
    assert roles_of_tokens(texts, [False] * 5, [True] * 5) == ["layout", "punctuation", "template", "template", "template"]
    assert roles_of_tokens(texts, [False] * 5, [False] * 5) == ["layout", "punctuation", "function", "number", "content"]


def test_a_token_without_text_has_no_role_and_ends_a_word() -> None:
    assert roles_without_marks([" un", "⟨77⟩", "der", "", "a"]) == ["content", "none", "content", "none", "function"]


def test_one_mark_for_every_token_is_needed() -> None:
    with pytest.raises(fl.Refusal, match="There are 2 texts and 1 values of template"):
        roles_of_tokens(["a", "b"], [False, False], [False])
