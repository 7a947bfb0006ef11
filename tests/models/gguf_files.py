"""Tiny GGUF files, written as llama.cpp writes them."""

from pathlib import Path
from typing import Any

import gguf as gguf_package
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LEARNED = ["▁", "a", "b", "h", "i", "▁a", "hi", "▁hi"]  # later ones score less
SENTENCEPIECE = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LEARNED]
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def byte_alphabet() -> list[str]:
    """GPT-2's spelling of each byte: itself if it can be printed, else the next free character from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


SPACE, NEWLINE = byte_alphabet()[32], byte_alphabet()[10]
BYTE_LEVEL = [*byte_alphabet(), SPACE * 2, NEWLINE * 2, "<|end|>"]


def tiny_llama(vocabulary: int, tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The weights as llama.cpp stores them: under its names, rotated pairs beside each other."""

    def neighbours(weight: np.ndarray, heads: int) -> np.ndarray:
        return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)

    state = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    tensors = {"token_embd.weight": state["model.embed_tokens.weight"], "output_norm.weight": state["model.norm.weight"]}
    if not model.config.tie_word_embeddings:
        tensors["output.weight"] = state["lm_head.weight"]
    for layer in range(2):
        for name, gguf_name in GGUF_NAMES.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            heads = {"attn_q": 4, "attn_k": 2}.get(gguf_name)
            tensors[f"blk.{layer}.{gguf_name}.weight"] = neighbours(weight, heads) if heads else weight
    return tensors


def write_gguf(
    file: Path,
    tensors: dict[str, np.ndarray],
    *,
    tokens: list[str] = SENTENCEPIECE,
    tokenizer: dict[str, Any] | None = None,
    architecture: str = "llama",
    scaling: str | None = None,
    layers: int = 2,
) -> None:
    """A whole GGUF file. `tokenizer` holds further keys below `tokenizer.ggml`; a tensor of bytes is one of Q8_0 blocks."""
    writer = gguf_package.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(5000.0)
    writer.add_vocab_size(len(tokens))
    if scaling:
        writer.add_string(f"{architecture}.rope.scaling.type", scaling)
    sentencepiece = tokens is SENTENCEPIECE
    writer.add_tokenizer_model("llama" if sentencepiece else "gpt2")
    writer.add_token_list(tokens)
    if sentencepiece:
        writer.add_token_scores([0.0] * 259 + [-float(rank) for rank in range(len(LEARNED))])
        writer.add_token_types([UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(LEARNED)])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
    else:
        writer.add_token_types([*[NORMAL] * (len(tokens) - 1), CONTROL])
        writer.add_token_merges([f"{SPACE} {SPACE}", f"{NEWLINE} {NEWLINE}"])
        writer.add_bos_token_id(len(tokens) - 1)
        writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template("{% for message in messages %}[{{ message['content'] }}]{% endfor %}")
    for key, value in (tokenizer or {}).items():
        if isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        else:
            writer.add_string(f"tokenizer.ggml.{key}", value)
    for name, weight in tensors.items():
        packed = weight.dtype == np.uint8
        writer.add_tensor(name, np.ascontiguousarray(weight), raw_dtype=gguf_package.GGMLQuantizationType.Q8_0 if packed else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
