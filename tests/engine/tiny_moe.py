"""A tiny Qwen3-MoE checkpoint from a seed: small enough for a test, so random that tokens depend on it."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN = 128
MOE_INTERMEDIATE = 96
EXPERTS = 8
LAYERS = 2
VOCABULARY = 512
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "moe_intermediate_size": MOE_INTERMEDIATE,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


def _sizes() -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor of the checkpoint."""
    sizes = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        sizes |= {
            f"{at}.input_layernorm.weight": (HIDDEN,),
            f"{at}.post_attention_layernorm.weight": (HIDDEN,),
            f"{at}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{at}.self_attn.q_norm.weight": (HEAD_DIM,),
            f"{at}.self_attn.k_norm.weight": (HEAD_DIM,),
            f"{at}.mlp.gate.weight": (EXPERTS, HIDDEN),
        }
        for expert in range(EXPERTS):
            sizes |= {
                f"{at}.mlp.experts.{expert}.gate_proj.weight": (MOE_INTERMEDIATE, HIDDEN),
                f"{at}.mlp.experts.{expert}.up_proj.weight": (MOE_INTERMEDIATE, HIDDEN),
                f"{at}.mlp.experts.{expert}.down_proj.weight": (HIDDEN, MOE_INTERMEDIATE),
            }
    return sizes


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    """`folder`, now holding config.json and model.safetensors of the model above."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in _sizes().items():
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones(shape, dtype=torch.bfloat16)
            continue
        # Variance-preserving and then some: with smaller weights the residual stream alone picks the tokens.
        scale = 2.0 / shape[-1] ** 0.5
        tensors[name] = (torch.randn(shape, generator=generator) * scale).to(torch.bfloat16)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder
