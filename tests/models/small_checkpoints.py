"""Tiny autoregressive and masked language models in folders of their own, with tokenizers, as transformers saves or people publish them."""

import contextlib
import io
from pathlib import Path
from typing import Any

import torch
from published_checkpoints import byte_level, write_json
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "dog", "a", "##s", "ran", ".", "##t", "and", "big"]
PAD, UNK, CLS, SEP, MASK = range(5)


def widened(module: Any) -> Any:
    """Weights drawn wide, so that a wrong one cannot hide."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.3)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    module.tie_weights()
    return module.eval()


def save(module: Any, folder: Path) -> Path:
    with contextlib.redirect_stderr(io.StringIO()):
        module.save_pretrained(folder)
    return folder


def llama_folder(folder: Path) -> tuple[Path, Any]:
    size: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    module = widened(LlamaForCausalLM(LlamaConfig(**size, vocab_size=128, max_position_embeddings=64, eos_token_id=113, bos_token_id=112)))
    byte_level({"<s>": 112, "</s>": 113}).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"})
    return save(module, folder), module


def gpt2_folder(folder: Path) -> tuple[Path, Any]:
    module = widened(
        GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=60, eos_token_id=59, bos_token_id=59))
    )
    return save(module, folder), module


def bert_folder(folder: Path) -> tuple[Path, Any]:
    """As the first BERTs were published: gamma and beta, pooler, next-sentence head, vocab.txt."""
    module = widened(
        BertForMaskedLM(BertConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=len(WORDS)))
    )
    save(module, folder)
    tensors: dict[str, Tensor] = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor.clone()
        for name, tensor in module.state_dict().items()
    }
    tensors |= {"bert.pooler.dense.weight": torch.ones(32, 32), "bert.pooler.dense.bias": torch.ones(32)}
    tensors |= {"cls.seq_relationship.weight": torch.ones(2, 32), "cls.seq_relationship.bias": torch.ones(2)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 512, "tokenizer_class": "BertTokenizer"})
    return folder, module


def modernbert_folder(folder: Path) -> tuple[Path, Any]:
    """As it is published: tokenizer.json."""
    size: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": len(WORDS),
    }
    special: dict[str, Any] = {"pad_token_id": PAD, "cls_token_id": CLS, "sep_token_id": SEP, "bos_token_id": CLS, "eos_token_id": SEP}
    module = widened(ModernBertForMaskedLM(ModernBertConfig(**size, **special)))
    tokenizer: Any = Tokenizer(WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)])
    tokenizer.add_special_tokens(WORDS[:5])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **named})
    return save(module, folder), module
