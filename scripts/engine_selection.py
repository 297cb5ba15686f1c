"""Ask vLLM's own selectors which backend they choose, and rewrite `tests/data/engine/vllm_selection.json`.

What members the selectors of the newest release know goes into `tests/data/engine/vllm_backends.json`.

    python scripts/engine_selection.py --wheels DIR [RELEASE …]

`--wheels` is where unpacked releases lie, as for `scripts/engine_answers.py`. Layers, machines and switches
are drawn with a fixed seed: the same releases give the same file.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path

from moe_align.verify import Machine
from moe_align.verify.questions import Engine, members
from moe_align.verify.selection import SCHEMES, Layer, machine_link

DATA = Path(__file__).parents[1] / "tests" / "data" / "engine" / "vllm_selection.json"
BACKENDS = DATA.with_name("vllm_backends.json")
ORACLE = "vllm.model_executor.layers.fused_moe.oracle"
ENUMERATIONS = {
    "unquantized": f"{ORACLE}.unquantized.UnquantizedMoeBackend",
    "fp8": f"{ORACLE}.fp8.Fp8MoeBackend",
    "nvfp4": f"{ORACLE}.nvfp4.NvFp4MoeBackend",
    "mxfp4": f"{ORACLE}.mxfp4.Mxfp4MoeBackend",
    "int_wna16": f"{ORACLE}.int_wna16.WNA16MoEBackend",
    "int8": f"{ORACLE}.int8.Int8MoeBackend",
    "w4a8": f"{ORACLE}.w4a8.W4A8MoeBackend",
    "w4a8_int8": f"{ORACLE}.w4a8_int8.W4A8Int8MoeBackend",
}
CUDA = ["sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121"]
ROCM = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201", "gfx1250"]
MACHINES = [*(Machine("cuda", arch) for arch in CUDA), *(Machine("rocm", arch) for arch in ROCM)]
REQUESTS = [
    "triton",
    "batched_triton",
    "deep_gemm",
    "cutlass",
    "flashinfer_trtllm",
    "flashinfer_cutlass",
    "flashinfer_cutedsl",
    "flashinfer_moe_ep_cutedsl",
    "flashinfer_b12x",
    "b12x",
    "flashinfer_moe_ep_mega_deep_gemm",
    "marlin",
    "humming",
    "triton_unfused",
    "aiter",
    "aiter_triton_mxfp4_bf16",
    "aiter_triton_mxfp4_mxfp4",
    "flydsl",
    "hpc",
    "emulation",
    "rdna3",
]
ACTIVATIONS = [
    "SILU",
    "GELU",
    "GELU_TANH",
    "SWIGLUOAI",
    "SWIGLUOAI_UNINTERLEAVE",
    "SWIGLUSTEP",
    "SITU",
    "SILU_NO_MUL",
    "GELU_NO_MUL",
    "GELU_TANH_NO_MUL",
    "RELU2_NO_MUL",
]
ROUTINGS = [
    "Default",
    "Renormalize",
    "DeepSeekV3",
    "Llama4",
    "RenormalizeNaive",
    "TopK",
    "SigmoidRenorm",
    "MiniMax2",
    "Sigmoid",
    "Unspecified",
    "DeepseekV4",
    "Custom",
    "Simulated",
]
TRANSPORTS = [
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "nixl_ep",
    "deepep_v2",
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
    "mori_high_throughput",
    "moonep",
]
SIZES = (
    (4096, 512),
    (2048, 192),
    (2880, 384),
    (2944, 512),
    (4096, 160),
    (7168, 720),
    (4096, 1000),
    (2912, 192),
)
SWITCHES: tuple[dict[str, str], ...] = (
    {},
    {"VLLM_ROCM_USE_AITER": "1"},
    {"VLLM_ROCM_USE_AITER": "0"},
    {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE": "0"},
    {"VLLM_USE_DEEP_GEMM": "1"},
    {"VLLM_USE_DEEP_GEMM": "0"},
    {"VLLM_MOE_USE_DEEP_GEMM": "1"},
    {"VLLM_MOE_USE_DEEP_GEMM": "0"},
)
FIRST = ("fp8_block", "nvfp4", "unquantized", "mxfp4", "mxfp4_deepseek")
#: Layers to ask about in the newest release: of these schemes, and of every other one.
QUESTIONS, OTHER_QUESTIONS = 400, 200
#: Layers to ask about in each of the older releases, alike, and the schemes that no pack speaks of there.
MORE_QUESTIONS, OTHER_MORE_QUESTIONS = 120, 60
MXFP4 = ("mxfp4", "mxfp4_deepseek", "mxfp4_activations", "mxfp4_fp8_activations", "mxfp4_plain")
UNSAID = {"0.32.0": (), "0.31.0": ("nvfp4", *MXFP4)}
_PLAIN = Layer()


def layer(draw: random.Random) -> Layer:
    """A layer of which about half is as usual."""
    hidden, intermediate = draw.choice(SIZES)
    spread = draw.random() < 0.35
    activation = draw.choice(ACTIVATIONS) if draw.random() < 0.5 else "SILU"
    return Layer(
        requested=draw.choice(REQUESTS) if draw.random() < 0.4 else "auto",
        activation=activation,
        gated=not activation.endswith("NO_MUL"),
        hidden=hidden,
        intermediate=intermediate,
        tp=draw.choice((1, 4, 8)),
        dp=draw.choice((1, 2)) if spread or draw.random() < 0.2 else 1,
        ep=spread,
        all2all=draw.choice(TRANSPORTS) if spread else "allgather_reducescatter",
        lora=draw.random() < 0.15,
        bias=draw.random() < 0.1,
        experts=draw.choice((128, 128, 128, 993, 3000)),
        routing=draw.choice(ROUTINGS) if draw.random() < 0.5 else "Renormalize",
    )


def questions(root: Path, scheme: str, number: int) -> list[dict[str, object]]:
    draw = random.Random(f"{scheme} {root.name}")
    rows = []
    linked: dict[object, Engine] = {}
    for _ in range(number):
        machine, asked = draw.choice(MACHINES), layer(draw)
        said = draw.choice(SWITCHES) if draw.random() < 0.5 else {}
        place = machine, tuple(said.items())
        engine = linked.get(place) or linked.setdefault(place, machine_link(root, machine, said))
        answer = SCHEMES[scheme](engine, asked)
        told = {key: value for key, value in asdict(asked).items() if value != getattr(_PLAIN, key)}
        row: dict[str, object] = {"arch": machine.arch, "layer": told, "answer": list(answer)}
        rows.append({**row, "env": said} if said else row)
    return rows


def backends(root: Path) -> dict[str, list[str]]:
    """Every member of the selectors' enumerations, by its canonical name."""
    tree = machine_link(root, MACHINES[0], {}).tree
    return {
        name: list(dict.fromkeys(member.name for _, member in members(tree, dotted)))
        for name, dotted in ENUMERATIONS.items()
    }


def number(release: str, scheme: str) -> int:
    if release in UNSAID:
        return MORE_QUESTIONS if scheme in FIRST else OTHER_MORE_QUESTIONS
    return QUESTIONS if scheme in FIRST else OTHER_QUESTIONS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("releases", nargs="*", default=["0.33.0", "0.32.0", "0.31.0"])
    options = parser.parse_args()
    found = {
        release: {
            scheme: questions(options.wheels / release, scheme, number(release, scheme))
            for scheme in SCHEMES
            if scheme not in UNSAID.get(release, ())
        }
        for release in options.releases
    }
    lines = []
    for release, schemes in found.items():
        inner = ",\n".join(
            f"  {json.dumps(scheme)}: [\n   " + ",\n   ".join(json.dumps(row) for row in rows) + "\n  ]"
            for scheme, rows in schemes.items()
        )
        lines.append(f" {json.dumps(release)}: {{\n{inner}\n }}")
    newest = options.releases[0]
    BACKENDS.write_text(json.dumps({newest: backends(options.wheels / newest)}, indent=1) + "\n", "utf-8")
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
