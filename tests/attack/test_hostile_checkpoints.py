"""Checkpoints that want to run code, read other files, or bring the machine down: a sentence each time, and never a marker file."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack_size import FULL, tries
from damaged_model_files import try_damage
from gguf_files import SENTENCEPIECE, gguf_tensors, tiny_llama, write_gguf
from hostile_folders import REMOTE_CODE, edit, known_type, only_pickles, unknown_type
from published_checkpoints import tiny_checkpoint, write_json
from safetensors.torch import load_file, save_file
from small_checkpoints import llama_folder

import floatlens as fl
from floatlens.decoding import prompts
from floatlens.models.doctor import examine
from floatlens.models.sources import gguf

DATA = Path(__file__).parents[1] / "data"
MAY_LOAD = ("known_type", "tokenizer_of_its_own", "tokenizer_named_in_the_config", "twin", "published_kind", "other_configs")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What hostile code would write. Whoever asks on standard input is told yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 50))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "marker"


def refusal(call: Callable[..., Any], *given: Any, **options: Any) -> str:
    with pytest.raises(fl.Refusal) as refused:
        call(*given, **options)
    return checked(str(refused.value))


def checked(said: str) -> str:
    """One line that ends a sentence."""
    assert "\n" not in said, said
    assert said.endswith("."), said
    return said


# -- remote code ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", REMOTE_CODE, ids=lambda build: build.__name__)
def test_no_code_of_a_checkpoint_runs_unless_it_is_trusted(build: Callable[[Path, Path], None], marker: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    build(folder, marker)
    for call in (examine, fl.load):
        for family in (None, "remote", "autoregressive", "masked-lm")[: tries(1, 4)]:
            said, found = None, None
            try:
                found = call(folder, family=family)
            except fl.Refusal as refused:
                said = checked(str(refused))
            assert said is not None or build.__name__ in MAY_LOAD
            if isinstance(found, fl.LanguageModel):
                found.generate([[5, 6]], gen_length=1, progress=False)
            assert not marker.exists(), (call.__name__, family)
    assert sys.stdin.read() == "y\n" * 50, "nobody was asked"


def test_code_runs_once_it_is_trusted(marker: Path, tmp_path: Path) -> None:
    """So that the tests above mean something."""
    (tmp_path / "model").mkdir()
    unknown_type(tmp_path / "model", marker)
    fl.load(tmp_path / "model", trust_remote_code=True, family="remote", mask_token_id=3)
    assert marker.exists()


def test_the_refusal_says_how_to_trust_it(marker: Path, tmp_path: Path) -> None:
    unknown_type(tmp_path, marker)
    assert refusal(fl.load, tmp_path) == (
        f"{tmp_path} (model_type 'florb') runs only with code that comes with the checkpoint. If you trust it, "
        "pass trust_remote_code=True, family='remote' (--trust-remote-code --family remote)."
    )


def commands(folder: Path, into: Path) -> list[list[str]]:
    return [
        ["doctor", str(folder)],
        ["trace", "-m", str(folder), "-p", "x", "-o", str(into / "run.zarr")],
        ["eval", "-m", str(folder), "-n", "1", "--into", str(into / "results")],
        ["demo", "--mdm", str(folder), "--questions", "4", "--into", str(into / "demo")],
    ]


def test_no_command_asks_whether_to_run_code(marker: Path, tmp_path: Path, floatlens: Command) -> None:
    (tmp_path / "model").mkdir()
    unknown_type(tmp_path / "model", marker)
    for words in commands(tmp_path / "model", tmp_path)[:3]:  # demo does much before it comes to this model
        code, _, errors = floatlens(*words)
        assert (code, "runs only with code that comes with the checkpoint" in " ".join(errors.split())) == (2, True), (words, errors)
        assert not marker.exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "cache", "modules"}, "nothing was left behind"


@pytest.mark.skipif(not FULL, reason="four processes; in make attack")
@pytest.mark.parametrize("number", range(4))
def test_no_command_of_a_fresh_process_runs_code_when_it_is_told_yes(number: int, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    unknown_type(tmp_path / "model", tmp_path / "marker")
    words = [sys.executable, "-c", "from floatlens.cli import run; run()", *commands(tmp_path / "model", tmp_path)[number]]
    ran = subprocess.run(words, input="y\n" * 50, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Do you wish to run" not in ran.stdout + ran.stderr
    assert not (tmp_path / "marker").exists()


def test_a_known_model_with_code_beside_it_runs_as_the_stock_class(marker: Path, tmp_path: Path) -> None:
    for name in ("plain", "evil"):
        (tmp_path / name).mkdir()
    llama_folder(tmp_path / "plain")
    known_type(tmp_path / "evil", marker)
    wrote = [fl.load(tmp_path / name).generate([[5, 6, 7]], gen_length=8, progress=False)[0].tokens for name in ("plain", "evil")]
    assert wrote[0] == wrote[1]
    assert not marker.exists()


# -- pickles -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "torch:pytorch_model.bin", "model.pt", "model.safetensors", "pytorch_model.bin.index.json"]
)
@pytest.mark.parametrize("allowed", [False, True])
def test_no_pickle_runs_code(name: str, allowed: bool, marker: Path, tmp_path: Path) -> None:
    """Not even an allowed one: torch opens weights and nothing else."""
    folder = tmp_path / "model"
    folder.mkdir()
    refusal(fl.load, only_pickles(folder, marker, name), allow_pickle=allowed)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["evil.bin", "evil.gguf", "evil.pt", "evil.pth", "evil.ckpt", "evil.pkl", "evil"])
def test_no_pickle_given_as_a_file_is_opened(name: str, marker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    only_pickles(tmp_path / "model", marker, "pytorch_model.bin")
    (tmp_path / "model" / "pytorch_model.bin").rename(tmp_path / name)
    refusal(fl.load, tmp_path / name)
    assert not marker.exists()


# -- files elsewhere -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A whole checkpoint elsewhere, and one beside it that has everything but weights."""
    for name in ("elsewhere", "model"):
        (tmp_path / name).mkdir()
        llama_folder(tmp_path / name)
    (tmp_path / "model" / "model.safetensors").unlink()
    return tmp_path / "elsewhere" / "model.safetensors"


@pytest.mark.parametrize("named", ["absolute", "../elsewhere/model.safetensors", "./../elsewhere/model.safetensors", "link.safetensors"])
def test_an_index_names_no_file_outside_the_checkpoint(named: str, outside: Path) -> None:
    folder = outside.parents[1] / "model"
    if named == "link.safetensors":
        (folder / named).symlink_to(outside)
    name = str(outside) if named == "absolute" else named
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": dict.fromkeys(load_file(outside), name)})
    said = refusal(fl.load, folder)
    assert (
        "a link to a file outside the checkpoint" in said
        if named == "link.safetensors"
        else f"names {name!r}, a file outside the checkpoint" in said
    )
    with pytest.raises(fl.Refusal, match="outside the checkpoint"):
        examine(folder)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("how", ["absolute", "relative", "two steps", "circle", "device"])
def test_no_link_leads_out_of_the_checkpoint(file: str, how: str, outside: Path) -> None:
    folder, target = outside.parents[1] / "model", outside.with_name(file)
    (folder / file).unlink(missing_ok=True)
    steps = {"absolute": target, "relative": Path("../elsewhere") / file, "circle": Path(file), "device": Path("/dev/zero")}
    if how == "two steps":
        (outside.parents[1] / "step").symlink_to(target)
        steps[how] = Path("../step")
    (folder / file).symlink_to(steps[how])
    assert f"{file} of {folder} is a link to a file outside the checkpoint (" in refusal(fl.load, folder)


def test_links_inside_a_checkpoint_are_followed(outside: Path) -> None:
    folder = outside.parents[1] / "model"
    (folder / "weights").mkdir()
    outside.rename(folder / "weights" / "model.safetensors")
    (folder / "model.safetensors").symlink_to("weights/model.safetensors")
    assert fl.load(folder).family == "autoregressive"


@pytest.mark.parametrize("shared", [False, True])
def test_a_snapshot_of_the_hubs_cache_loads_through_its_links(shared: bool, outside: Path) -> None:
    """snapshots/<revision>/x -> ../../blobs/<hash>, which since huggingface_hub 2 may itself lead to a store that repositories share."""
    cache = outside.parents[1] / "hub"
    snapshot, blobs, store = cache / "models--a--b" / "snapshots" / "abc", cache / "models--a--b" / "blobs", cache / "blobs" / "ab"
    for folder in (snapshot, blobs, store):
        folder.mkdir(parents=True)
    for number, file in enumerate(sorted(outside.parent.iterdir())):
        if shared:
            file.rename(store / f"{number}")
            (blobs / f"{number}").symlink_to(f"../../blobs/ab/{number}")
        else:
            file.rename(blobs / f"{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert fl.load(snapshot).family == "autoregressive"
    (snapshot / "tokenizer.json").unlink()
    (snapshot / "tokenizer.json").symlink_to("../../../../model/tokenizer.json")
    assert "tokenizer.json" in refusal(fl.load, snapshot)


@pytest.mark.parametrize(
    "fields",
    [
        {"tokenizer_file": "/etc/passwd"},
        {"vocab_file": "../elsewhere/tokenizer.json"},
        {"fast_tokenizer_files": ["../elsewhere/tokenizer.4.0.json"]},
    ],
)
def test_a_tokenizers_config_names_no_file_outside(fields: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    edit(folder / "tokenizer_config.json", **fields)
    assert "a file outside the checkpoint. Remove that line from it." in refusal(fl.load, folder)


def test_an_adapter_beside_the_weights_is_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    write_json(folder / "adapter_config.json", {"base_model_name_or_path": "/elsewhere", "peft_type": "LORA"})
    assert "holds an adapter (adapter_config.json), which transformers applies only where peft is installed." in refusal(fl.load, folder)


# -- chat templates ------------------------------------------------------------------------------------------------------------------------

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.__class__ }}", "{{ raise_exception.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.system('touch MARKER') }}", "{{ lipsum.__globals__['os'].popen('touch MARKER').read() }}",
    "{{ self.__init__.__globals__.__builtins__.open('MARKER', 'w') }}", "{{ (''|attr('__class__')) }}",
    "{{ '{0.__class__.__mro__}'.format(1) }}",
    "{{ ''['__cl' ~ 'ass__'] }}", "{% import 'os' as os %}{{ os.system('touch MARKER') }}", "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{{ messages.append(1) }}", "{% set x = messages.pop() %}", "{{ joiner.__init__.__globals__ }}", "{{ strftime_now.__globals__ }}",
    "{{ dict.mro() }}", "{{ [''|attr, 1]|map('attr', '__class__')|list }}", "{{ messages|map(attribute='__class__')|list }}",
]  # fmt: skip
BROKEN = {
    "{% for": "is not Jinja", "{{ messages[0]['content' }}": "is not Jinja", "{{ nothing.at.all }}": "cannot be applied",
    "{{ raise_exception('no\nway') }}": "no",
    "{{ 1 / 0 }}": "division by zero", "": "no chat template", "   ": "writes nothing", "{{ '' }}": "writes nothing",
    "{# #}": "writes nothing",
    "hello": "leaves the last message out", "{{ messages[0]['text'] }}!": "leaves the last message out",
    "{{ messages[7]['content'] }}x": "",
    LOOPS: "does not come to an end within", "{{ lipsum(n=10000000) }}": "does not come to an end within",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "recursion", "{{ 'a' * 10000000000 }}": "takes more than 512 MB of memory",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}":
        "takes more than 512 MB of memory",
    "{{ '%09999999999d' % 1 }}": "", "{{ 'a'.ljust(10000000000) }}": "takes more than 512 MB",
    "{{ range(10000000000)|list }}": "cannot be applied",
    "{{ 2 ** 10000000000 }}": "computes a power", "{{ 10**10**10 }}": "computes a power", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}": "",
}  # fmt: skip


def with_template(folder: Path, template: Any) -> fl.LanguageModel:
    llama_folder(folder)
    edit(folder / "tokenizer_config.json", chat_template=template)
    return fl.load(folder)


@pytest.mark.parametrize("template", ESCAPES)
def test_no_template_leaves_the_sandbox(template: str, marker: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    lm = with_template(tmp_path / "model", template.replace("MARKER", str(marker)) + "{{ messages[0]['content'] }}")
    try:
        came = lm.encode("the cat").text
    except fl.Refusal as refused:
        came = checked(str(refused))
    assert not any(found in came for found in ("<class '", "root:", "__builtins__")), came
    assert not marker.exists()


@pytest.mark.parametrize("template", BROKEN, ids=lambda template: template[:40])
def test_a_broken_template_is_a_sentence(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MOST_LINES", tries(300_000, prompts.MOST_LINES))
    lm = with_template(tmp_path, template)
    said = refusal(lm.encode, [{"role": "user", "content": "the cat"}])
    assert BROKEN[template] in said, said
    assert "chat template" in said
    assert lm.encode("the cat", chat=False).tokens, "and the model can be used without it"


@pytest.mark.parametrize("template", [7, ["x"], {"a": 1}, [{"name": "other", "template": "x"}], True])
def test_a_template_that_is_no_text_is_refused(template: Any, tmp_path: Path) -> None:
    llama_folder(tmp_path)
    edit(tmp_path / "tokenizer_config.json", chat_template=template)
    refusal(lambda: fl.load(tmp_path).encode([{"role": "user", "content": "the cat"}]))


def test_a_template_with_names_unpacked_computes_no_power(tmp_path: Path) -> None:
    lm = with_template(tmp_path, "{% set d = dict(**{'a': 'b'}) %}**{{ d.a }}**{{ messages[0]['content'] }}")
    assert lm.encode("the cat").text == "**b**the cat"


# -- damage --------------------------------------------------------------------------------------------------------------------------------

FILES = [
    "model.gguf",
    "stories260K.bin",
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
]


def test_weights_that_no_memory_could_hold_are_refused_before_they_are_asked_for(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    edit(folder / "config.json", hidden_size=2**19, intermediate_size=2**23, num_attention_heads=4, num_hidden_layers=40, vocab_size=2**25)
    said = refusal(fl.load, folder)
    assert re.search(r"has shape \(.*\), but the config asks for \(", said)
    save_file(
        {"unknown.weight": load_file(folder / "model.safetensors")["lm_head.weight"]},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    assert "billion parameters, and" in refusal(fl.load, folder)


@pytest.mark.parametrize("layers", [3, 2**20, 2**32 - 1])
def test_a_gguf_file_that_promises_more_layers_than_it_holds_is_refused_before_one_is_built(layers: int, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", gguf_tensors(tiny_llama(len(SENTENCEPIECE), tied=False)), layers=layers)
    (tmp_path / "converted").mkdir()
    said = refusal(gguf.convert, tmp_path / "model.gguf", tmp_path / "converted")
    assert said.endswith(f"model.gguf promises {layers} layers and holds 2, so it is cut off or damaged; download it again.")


def test_a_header_of_any_length_is_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    for length in (0, 1, 2**20, 2**32, 2**62, 2**63, 2**64 - 1):
        (folder / "model.safetensors").write_bytes(length.to_bytes(8, "little") + whole[8:])
        assert "model.safetensors of" in refusal(fl.load, folder)
    (folder / "model.safetensors").write_bytes(b"")
    assert "is not a complete safetensors file" in refusal(fl.load, folder)


def sound_file(name: str, folder: Path) -> Path:
    """A file of that name in a model that loads."""
    if name == "model.gguf":
        write_gguf(folder / name, gguf_tensors(tiny_llama(len(SENTENCEPIECE), tied=False)))
    elif name == "stories260K.bin":
        for file in (name, "tok512.bin"):
            (folder / file).write_bytes((DATA / file).read_bytes())
    else:
        llama_folder(folder)
    return folder / name


@pytest.mark.parametrize("name", FILES)
def test_damage_at_random_is_refused_or_does_no_harm(name: str, tmp_path: Path) -> None:
    """No traceback, and no memory because a header says so.

    A flipped bit among the weights of a format without checksums cannot be seen.
    """
    told, grown = try_damage(sound_file(name, tmp_path), tries(5, 100), seed=1)
    assert set(told) <= {"loaded", "refused"}, told
    assert told["refused"] > 0
    assert grown < 200, "megabytes"


@pytest.mark.skipif(not FULL, reason="a process for each kind of file; in make attack")
@pytest.mark.parametrize("name", FILES)
def test_damage_crashes_no_process(name: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("damaged_model_files.py")
    words = [sys.executable, str(script), str(sound_file(name, tmp_path)), "200", "2"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told, grown = json.loads(ran.stdout.splitlines()[-1])
    assert set(told) <= {"loaded", "refused"}, told
    assert grown < 200, "megabytes"


def test_every_published_kind_loads_as_before(tmp_path: Path) -> None:
    """None of the walls above stands in the way of an honest checkpoint."""
    for kind in ("llada-8b-instruct", "dream-7b-instruct", "sdar-1.7b-chat", "a2d-qwen3-0.6b"):
        assert fl.load(tiny_checkpoint(kind, tmp_path / kind)).encode("the cat").tokens
