"""The model class that lm-eval calls (`--model floatlens`): generation for every family, likelihoods exact or by the bound.

**Generation** is `lm.generate`, with the task's length, stop sequences and temperature. **Likelihoods** are those of
`floatlens.tasks.likelihood`: exact for autoregressive models, the bound for masked diffusion models, from 128 sets of masks whose sizes are
evenly spaced from a random start. Sets depend on the context and the number of tokens, so that choices of one length meet the same masks.
Texts are cut into tokens as lm-eval's own models do it: context and continuation together, blanks at the end of the context moved over.

lm-eval also asks whether a continuation is what greedy decoding would write. For an autoregressive model that is read off the same pass.
For a masked diffusion model it takes a pass per token and is left out (False) unless `greedy` asks for it. Tasks with choices hardly ever
use it; a task with a single continuation per document may score nothing else, so there `greedy` has to be given.

Refused: arguments and generation options that nobody takes; likelihoods of block-diffusion models and models with their own loop; texts
that are longer than the model was made for, unless `truncate` says that they may be cut on the left; images and audio.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]  # an extra: floatlens[lm-eval]
from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
from lm_eval.utils import (  # pyright: ignore[reportMissingImports]
    get_rolling_token_windows,
    make_disjoint_window,
    simple_parse_args_string,
)

from floatlens._version import __version__
from floatlens.decoding.prompts import render_chat
from floatlens.decoding.tokens import warn_of_unknown_tokens
from floatlens.errors import Refusal, shown
from floatlens.harnesses.lm_eval_requests import Writing, batch_size_of, generation_of, refuse_more_than_text
from floatlens.harnesses.model import HarnessModel, by_kind, count, set_up, truth
from floatlens.interventions.wording import to_text
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.likelihood import Continuation, Likelihood, log_likelihoods
from floatlens.tasks.mask_sets import spaced_mask_sets
from floatlens.terminal import progress_bar

OWN = ("pretrained", "mc_samples", "greedy", "max_gen_toks", "max_length", "truncate")
MC_SAMPLES = 128
MAX_GEN_TOKS = 256  # where a task does not say; lm-eval's own models have the same
LONGEST_WITHOUT_CONFIG = 2048  # tokens
DEVICE_UNLESS_GIVEN = "cuda:0"  # what lm-eval's command says without --device, on any machine

Tokenised = tuple[tuple[str, str], list[int], list[int]]
"""A request as lm-eval hands it on: context and continuation as texts and in tokens."""


@register_model("floatlens")
class FloatlensLM(TemplateLM):
    """A floatlens model for lm-eval.

    Parameters
    ----------
    pretrained
        What `fl.load` takes, or a loaded model.
    mc_samples
        How many sets of masks the bound of a masked diffusion model is taken from; answers with no more sets get all of them.
    greedy
        Whether to find out, for masked diffusion models, if a continuation is what greedy decoding would write.
    max_gen_toks
        How many tokens to write where the task does not say.
    max_length
        The longest text in tokens, if shorter than what the model was made for.
    truncate
        Cut what is longer on the left, as lm-eval's own models do, instead of refusing it.
    given
        `device` and `batch_size`; what `fl.load` takes, with `trained_block_length` for its `block_length`; `intervention`; `seed`; and
        options of the sampler.
    """

    def __init__(self, pretrained: "str | LanguageModel | None" = None, **given: Any) -> None:
        super().__init__()
        if pretrained is None:
            raise Refusal(
                "--model_args names no model: write --model_args pretrained=..., a bundled model, a folder, a file or a hub name."
            )
        if given.pop("max_batch_size", None) is not None:
            raise Refusal("--max_batch_size belongs to --batch_size auto, which floatlens does not have. Leave it out.")
        given["batch_size"] = batch_size_of(given.get("batch_size") or 1)
        own = {name: given.pop(name) for name in OWN if name in given}
        self._greedy = None if own.get("greedy") is None else truth("greedy", own["greedy"])
        self._truncate = truth("truncate", own.get("truncate", False))
        self.mc_samples = count("mc_samples", own.get("mc_samples", MC_SAMPLES))
        self.max_gen_toks = count("max_gen_toks", own.get("max_gen_toks", MAX_GEN_TOKS))
        shorter = None if own.get("max_length") is None else count("max_length", own["max_length"], 2)
        self.model: HarnessModel = set_up(
            pretrained if isinstance(pretrained, LanguageModel) else str(pretrained), given, OWN, "--model_args"
        )
        self.tokenizer: Any = self.model.lm.tokenizer
        self.max_length = min(self.model.room or LONGEST_WITHOUT_CONFIG, shorter or self.model.room or LONGEST_WITHOUT_CONFIG)
        self._device = self.model.lm.device
        self._template: str | None = None
        self._removed: list[float] = []

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None) -> "FloatlensLM":
        """The model of `--model_args`, with what lm-eval's own options say besides."""
        further = {name: value for name, value in (additional_config or {}).items() if value is not None}
        if "device" in arg_dict or (further.get("device") == DEVICE_UNLESS_GIVEN and not torch.cuda.is_available()):
            further.pop("device", None)
        if twice := [name for name in further if name in arg_dict]:
            raise Refusal(f"--model_args gives {twice[0]}, which is an option of lm-eval: write --{twice[0]} {arg_dict[twice[0]]}.")
        return cls(**arg_dict, **further)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Mapping[str, Any] | None = None) -> "FloatlensLM":
        """The same for arguments in one text."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @property
    def batch_size(self) -> int:
        """How many texts run together."""
        return self.model.batch_size

    @property
    def eot_token_id(self) -> int | None:
        """The token that ends a text."""
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int | None:
        """The token that stands for an empty context; None if the tokenizer has none."""
        tokens = (getattr(self.tokenizer, f"{kind}_token_id", None) for kind in ("bos", "cls", "eos"))
        return next((token for token in tokens if token is not None), None)

    @property
    def tokenizer_name(self) -> str:
        """What lm-eval tells caches of requests apart by."""
        return self.model.lm.name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template that `apply_chat_template` writes with from now on, by name if the tokenizer has several."""
        own = getattr(self.tokenizer, "chat_template", None)
        if not own:
            raise Refusal(f"{self.model.lm.name} has no chat template. Leave --apply_chat_template out.")
        names = own if isinstance(own, dict) else {}
        name = chat_template if isinstance(chat_template, str) else "default"
        if isinstance(chat_template, str) or names:
            if name not in names:
                there_are = f"It has: {', '.join(sorted(names))}." if names else "It has a single one; leave the name out."
                raise Refusal(f"{self.model.lm.name} has no chat template {shown(repr(name))}. {there_are}")
            own = names[name]
        self._template = str(own)
        return self._template

    def apply_chat_template(self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as one text; without a generation prompt, its last turn is left open."""
        template = self._template or self.chat_template(True)
        then = "Leave --apply_chat_template out, or correct the template."
        return render_chat(self.tokenizer, chat_history, template=template, go_on=not add_generation_prompt, then=then)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """A text in tokens; a text that begins with the beginning-of-text token, as chat templates write it, gets no second one."""
        begins = getattr(self.tokenizer, "bos_token", None)
        if add_special_tokens is None and not (begins and string.startswith(begins)):
            return self.model.lm.encode(string, chat=False).tokens
        return list(self.tokenizer(string, add_special_tokens=bool(add_special_tokens), verbose=False)["input_ids"])

    # writing

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each context, up to its first stop sequence."""
        self._warn_of_unknown_tokens([request.args[0] for request in requests])
        seen: Counter[str] = Counter()
        asked = []
        for request in requests:  # everything is checked before anything runs
            refuse_more_than_text(request)
            asked.append(self._writing(request, seen[request.args[0]]))
            seen[request.args[0]] += 1
        texts = [""] * len(asked)
        batches = by_kind(
            asked, lambda writing: (writing.asked.gen_length, writing.asked.options), lambda writing: len(writing.prompt), self.batch_size
        )
        with progress_bar(len(asked), f"Writing with {self.model.lm.name}", show=not disable_tqdm) as advance:
            for batch in batches:
                together = [asked[number] for number in batch]
                written = self.model.write(
                    [writing.prompt for writing in together],
                    together[0].asked.gen_length,
                    [writing.seed for writing in together],
                    **dict(together[0].asked.options),
                )
                for number, generation in zip(batch, written, strict=True):
                    texts[number] = self.model.cut(generation, asked[number].asked.stops).text
                    self.cache_hook.add_partial("generate_until", requests[number].args, texts[number])
                    self._removed += [] if generation.removed is None else [generation.removed]
                advance(len(batch))
        return texts

    def _writing(self, request: Any, occurrence: int) -> Writing:
        """A request with everything that is asked for, checked."""
        text, asked = request.args[0], generation_of(request, self.max_gen_toks)
        self.model.refuse_options(dict(asked.options))
        tokens = self.tok_encode(text) or [token for token in [self.prefix_token_id] if token is not None]
        room = self.max_length - asked.gen_length
        if len(tokens) > room:
            what, besides = f"The prompt of document {request.doc_id} of task {request.task_name}", "to write (max_gen_toks)"
            tokens = self._shortened(tokens, room, what, f"with {asked.gen_length} {besides}")
        return Writing(tuple(tokens), asked, self.model.seed_for(text, occurrence))

    def _shortened(self, tokens: list[int], room: int, what: str, besides: str) -> list[int]:
        """The last tokens that there is room for, if texts may be cut."""
        if self._truncate and room > 0:
            return tokens[-room:]
        raise Refusal(
            f"{what} has {len(tokens)} tokens; {besides} that is more than the {self.max_length} of {self.model.lm.name}. "
            "Ask for less, or pass --model_args truncate=true to cut texts on the left, as lm-eval's own models do."
        )

    # likelihoods

    @property
    def _is_exact(self) -> bool:
        return self.model.lm.sampler == "autoregressive"

    @property
    def _longest_window(self) -> int:
        """How many tokens of an answer one token of context leaves room for; an autoregressive model need not read the last one."""
        return self.max_length if self._is_exact else self.max_length - 1

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihood of each continuation after its context, and whether greedy decoding would write it."""
        self._refuse_without_likelihood()
        for request in requests:
            refuse_more_than_text(request)
        if self._greedy is None and not self._is_exact:
            self._refuse_to_guess_greedy(requests)
        self._warn_of_unknown_tokens([context + continuation for context, continuation in (request.args[:2] for request in requests)])
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _refuse_without_likelihood(self) -> None:
        lm = self.model.lm
        if lm.sampler not in ("autoregressive", "llada", "dream"):
            raise Refusal(
                f"{lm.name} writes by blocks or by a loop of its own ({lm.family}), and no likelihood is defined for it. "
                "Choose tasks that generate (output_type: generate_until)."
            )

    def _refuse_to_guess_greedy(self, requests: Sequence[Any]) -> None:
        """Refuse tasks that have a single continuation per document, and may score whether greedy decoding writes it."""
        choices: dict[str, int] = {}
        for request in requests:
            choices[str(request.task_name)] = max(choices.get(str(request.task_name), 0), request.idx)
        if single := [task for task, last in choices.items() if last == 0]:
            raise Refusal(
                f"Task {single[0]} has one continuation per document; its accuracy, if it has one, is whether greedy decoding writes it. "
                "Pass --model_args greedy=true to find out (one pass per token), or greedy=false if only likelihoods count; "
                "such an accuracy is then 0 and says nothing."
            )

    def _loglikelihood_tokens(self, requests: Sequence[Tokenised], disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        """The same for texts that lm-eval has made into tokens."""
        continued = [self._continuation(context, *tokens) for (context, _continuation), *tokens in requests]
        results: list[tuple[float, bool]] = [(float("nan"), False)] * len(continued)
        for number, likelihood, greedy in self._likelihoods(continued, show=not disable_tqdm):
            results[number] = (likelihood.value, greedy)
            self.cache_hook.add_partial("loglikelihood", requests[number][0], results[number])
        return results

    def _continuation(self, context: str, prompt: Sequence[int | None], answer: Sequence[int]) -> Continuation:
        """Prompt and answer, with the context as the name that masks are drawn by."""
        tokens = [token for token in prompt if token is not None]
        if not answer:
            raise Refusal(f"A continuation of {shown(repr(context[-60:]))} has no token of its own, so it has no likelihood.")
        room = self._longest_window - len(answer) + 1
        if len(tokens) > room:
            tokens = self._shortened(tokens, room, f"The context {shown(repr(context[:60]))}", f"with a continuation of {len(answer)}")
        return Continuation(tuple(tokens), tuple(answer), context, self.model.seed_for(context))

    def _likelihoods(self, continued: Sequence[Continuation], *, show: bool) -> Any:
        """Number, likelihood and greediness of each continuation, as they come."""
        size = self.batch_size * (16 if self._is_exact else 1)  # exact ones are read together by the length of their answers
        with progress_bar(len(continued), f"Likelihoods with {self.model.lm.name}", show=show) as advance:
            for batch in by_kind(continued, lambda _: None, lambda each: len(each.prompt) + len(each.answer), size):
                together = [continued[number] for number in batch]
                likelihoods = log_likelihoods(
                    self.model.lm,
                    together,
                    intervention=self.model.intervention,
                    draws=self.mc_samples,
                    seed=self.model.seed,
                    batch_size=self.batch_size,
                    draw_sets=spaced_mask_sets,
                )
                self._removed += [likelihood.removed for likelihood in likelihoods if likelihood.removed is not None]
                yield from zip(batch, likelihoods, self._are_greedy(together, likelihoods), strict=True)
                advance(len(batch))

    def _are_greedy(self, continued: Sequence[Continuation], likelihoods: Sequence[Likelihood]) -> list[bool]:
        """Whether greedy decoding writes each answer: one token per step, where that has to be found out by writing."""
        if self._is_exact or not self._greedy:
            return [bool(likelihood.greedy) for likelihood in likelihoods]
        greedy = [False] * len(continued)
        for batch in by_kind(continued, lambda each: len(each.answer), lambda each: len(each.prompt), self.batch_size):
            together = [continued[number] for number in batch]
            written = self.model.lm.generate(
                [list(each.prompt) for each in together],
                gen_length=len(together[0].answer),
                seed=[each.seed for each in together],
                batch_size=self.batch_size,
                intervention=self.model.intervention,
                progress=False,
            )
            for number, generation in zip(batch, written, strict=True):
                greedy[number] = generation.tokens == list(continued[number].answer)
        return greedy

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts: windows as long as the model was made for, each behind the token before it."""
        self._refuse_without_likelihood()
        self._warn_of_unknown_tokens([request.args[0] for request in requests])
        windows, owners = [], []
        for number, request in enumerate(requests):
            (text,) = request.args
            cut = get_rolling_token_windows(
                self.tok_encode(text, add_special_tokens=False), self.prefix_token_id, self._longest_window, context_len=1
            )
            for place, (prompt, answer) in enumerate(map(make_disjoint_window, cut)):
                tokens = tuple(token for token in prompt if token is not None)
                windows.append(Continuation(tokens, tuple(answer), f"{text}\n{place}", self.model.seed_for(text, place)))
                owners.append(number)
        sums = np.zeros(len(requests))
        for number, likelihood, _greedy in self._likelihoods(windows, show=not disable_tqdm):
            sums[owners[number]] += likelihood.value
        for request, value in zip(requests, sums.tolist(), strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, value)
        return sums.tolist()

    def _warn_of_unknown_tokens(self, texts: Sequence[str]) -> None:
        if self.tokenizer.unk_token_id is not None:
            encode = self.model.lm.encode
            warn_of_unknown_tokens(self.model.lm.name, self.tokenizer, [encode(text, chat=False) for text in dict.fromkeys(texts)])

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval keeps with the results: the model, how it was run, and how much attention interventions removed on average."""
        model = self.model
        return {
            "floatlens_version": __version__,
            "model_num_parameters": sum(parameter.numel() for parameter in model.lm.module.parameters()),
            "model_dtype": str(model.lm.dtype).removeprefix("torch."),
            "model_revision": model.lm.revision,
            "model_family": model.lm.family,
            "sampler": model.sampler or model.lm.sampler,
            "sampler_options": dict(model.options or {}),
            "mc_samples": self.mc_samples,
            "floatlens_seed": model.seed,
            "interventions": [to_text(intervention) for intervention in model.interventions],
            "attention_removed": float(np.mean(self._removed)) if self._removed else None,
        }
