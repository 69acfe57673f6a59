"""Converts runs, GGUF files and adapters to Hugging Face folders.

python -m tools.convert --workdir DIR [--step N] --out HFDIR    from a training run
python -m tools.convert --gguf FILE --out HFDIR                 from a GGUF file
python -m tools.convert --peft DIR --out HFDIR      merges adapters into their base
"""

import argparse
import dataclasses
import pathlib
import sys
from typing import Any, get_args

from jax.sharding import Mesh

from configs.reading import user_path
from models import gguf_file, hf, lora, peft_folder
from models.config import DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from models.hub import resolve_folder
from rl import checkpoint, checksums
from rl.base_model import parameter_count
from rl.files import read_json
from rl.workdir.export import model_card
from rollout.layout import placed
from sharding.mesh import make_mesh
from tools import command


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workdir", type=user_path, help="folder of a run")
    source.add_argument("--gguf", type=user_path, help="GGUF file")
    source.add_argument("--peft", type=user_path, help="PEFT adapters to merge")
    parser.add_argument(
        "--base",
        help="base model of LoRA adapters, a Hugging Face folder or hub id (default:"
        " the one that the adapters were trained on)",
    )
    parser.add_argument("--step", type=int, help="step of the run (default: newest)")
    parser.add_argument("--out", type=user_path, required=True, help="new folder")
    parser.add_argument(
        "--dtype",
        choices=get_args(hf.DType),
        help="dtype of HFDIR (default: bfloat16; float32 for a GGUF file)",
    )
    return command.run(_convert, parser.parse_args(argv))


def _convert(arguments: argparse.Namespace) -> dict[str, Any]:
    out = arguments.out
    if out.exists():
        raise ValueError(f"--out {out}: already exists; give a new folder")
    if arguments.step is not None and not arguments.workdir:
        raise ValueError(f"--step {arguments.step}: requires --workdir")
    if arguments.base and not (arguments.peft or arguments.workdir):
        raise ValueError(f"--base {arguments.base}: requires --peft or --workdir")
    step = None
    if arguments.gguf:
        dtype = arguments.dtype or "float32"
        count = gguf_file.convert(arguments.gguf, out, dtype=dtype)
    else:
        step, count = _save(arguments, arguments.dtype or "bfloat16")
    print(f"{out}: {count:,} parameters")
    return {"out": str(out), "parameters": count, "step": step}


def _save(arguments: argparse.Namespace, dtype: str) -> tuple[int | None, int]:
    """Writes the model of a run or of adapters; returns its step and its size."""
    mesh, step = make_mesh(), None
    if arguments.peft:
        named = peft_folder.read_config(arguments.peft)["base_model_name_or_path"]
        assets, card = resolve_folder(arguments.base or named), ""
        model = Decoder(DecoderConfig.from_folder(assets), mesh)
        config, adapters = peft_folder.load_adapters(arguments.peft, model)
        params = lora.join(adapters, hf.load_params(assets, model, mesh))
    else:
        assets = arguments.workdir / checkpoint.ASSETS
        step, config, params = _load_run(arguments, assets, mesh)
        card = _card(arguments.workdir, step)
    hf.save_folder(arguments.out, params, config, assets=assets, dtype=dtype, card=card)
    return step, parameter_count(dataclasses.replace(config, lora=None))


def _load_run(
    arguments: argparse.Namespace, assets: pathlib.Path, mesh: Mesh
) -> tuple[int, DecoderConfig, Params]:
    """Returns a run's step, model and parameters, with the base of LoRA adapters."""
    model = Decoder(DecoderConfig.from_folder(assets))
    m = read_json(arguments.workdir / "config.json")["model"]
    sizes = m.get("lora") or {"rank": 0}
    if sizes["rank"]:
        fields = {key: sizes[key] for key in ("rank", "alpha", "targets")}
        config = dataclasses.replace(model.config, lora=lora.Lora(**fields))
        model = model.clone(config=config)
    checkpoints = arguments.workdir / "checkpoints"
    shapes = placed(abstract_params(model)[0], param_shardings(model, mesh))
    trained, _ = lora.split(shapes)
    step, params = checkpoint.load_run_params(checkpoints, arguments.step, trained)
    if model.config.lora:
        record = checksums.read_record(checkpoints / str(step))
        folder = resolve_folder(arguments.base or record.base["path"])
        frozen = hf.load_params(folder, model.clone(param_dtype=m["dtype"]), mesh)
        base = checksums.describe_base(frozen, str(folder))
        checksums.check_base(checkpoints / str(step), record, base)
        params = lora.join(params, frozen)
    return step, model.config, params


def _card(workdir: pathlib.Path, step: int) -> str:
    path = workdir / "summary.json"
    summary = read_json(path) if path.is_file() else {}
    # Only the last step has a final score.
    scored = ("base", "final") if summary.get("steps") == step else ("base",)
    evaluations = {name: summary.get(name, {}) for name in scored}
    config = read_json(workdir / "config.json")
    return model_card(config, step=step, evaluations=evaluations)


if __name__ == "__main__":
    sys.exit(main())
