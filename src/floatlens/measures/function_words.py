"""English function words: the closed classes, which carry grammar rather than content.

Chosen by class, in lower case. Words that are more often something else ("like", "little", "past", "right", number words) are left out, as are all other languages: what is not
listed counts as content. Contractions need no entries: their parts do (see `role_of_word` in roles.py).
"""

_ARTICLES_AND_DETERMINERS = """
    a an the this that these those each every either neither some any no none both all such another other others same own
    enough several few fewer many more most much less least
"""

_PRONOUNS = """
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its itself
    they them their theirs themselves thou thee thy who whom whose which what whoever whomever whichever whatever
    someone somebody something anyone anybody anything everyone everybody everything nobody nothing
"""

_PREPOSITIONS = """
    about above across after against along alongside amid among amongst around as at atop before behind below beneath beside besides between
    beyond by despite during except for from in inside into near of off on onto out outside over per since through throughout
    till til to toward towards under underneath until unto up upon via versus with within without
"""

_CONJUNCTIONS = """
    and but or nor so yet if unless because although though while whilst whereas whether than lest once
"""

_AUXILIARIES = """
    am is are was were be been being have has had having do does did doing done can cannot could will would shall should may might must ought
"""

_ADVERBS_OF_GRAMMAR = """
    not also too very just only even still then there here where when why how wherever whenever however
    again ever never thus hence therefore else rather quite
"""

FUNCTION_WORDS: frozenset[str] = frozenset(
    word
    for words in (_ARTICLES_AND_DETERMINERS, _PRONOUNS, _PREPOSITIONS, _CONJUNCTIONS, _AUXILIARIES, _ADVERBS_OF_GRAMMAR)
    for word in words.split()
)
"""Words that carry grammar, in lower case."""

CLITICS: frozenset[str] = frozenset(("d", "ll", "m", "re", "s", "t", "ve"))
"""What may follow an apostrophe and is a function word there: I'd, we'll, I'm, you're, it's, don't, they've."""
