"""Converts models between Hugging Face folders, checkpoints and other formats.

python -m tools.convert --hf HFDIR --out CKPT               to an Orbax checkpoint
python -m tools.convert --checkpoint CKPT --out HFDIR       from such a checkpoint
python -m tools.convert --workdir DIR [--step N] --out HFDIR    from a training run
python -m tools.convert --gguf FILE --out HFDIR             from a GGUF file
python -m tools.convert --peft DIR --out HFDIR              merges adapters into a base
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, get_args

import orbax.checkpoint as ocp
from jax.sharding import Mesh

from configs.base import DType
from configs.reading import user_path
from models import gguf_file, hf, lora, peft_folder
from models.config import DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from models.hub import resolve_folder
from rl import checkpoint, checksums
from rl.base_model import parameter_count
from rl.files import read_json
from rl.update.examine import check_finite
from rl.workdir.export import model_card
from rollout.layout import with_shardings
from sharding.mesh import make_mesh
from tools import command


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--hf", help="Hugging Face folder or hub id")
    source.add_argument("--checkpoint", type=user_path, help="checkpoint folder")
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
        choices=get_args(DType),
        help="dtype of HFDIR (default: that of the run's export; float32 for a GGUF"
        " file; otherwise bfloat16)",
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
    if arguments.hf and arguments.dtype:
        raise ValueError(f"--dtype {arguments.dtype}: has no effect with --hf")
    if arguments.hf:
        checkpoint.check_path("--out", out)
    if arguments.gguf:
        dtype = arguments.dtype or "float32"
        step, count = None, gguf_file.convert(arguments.gguf, out, dtype=dtype)
    else:
        step, config = _write(arguments, make_mesh())
        count = parameter_count(dataclasses.replace(config, lora=None))
    print(f"{out}: {count:,} parameters")
    return {"out": str(out), "parameters": count, "step": step}


def _write(
    arguments: argparse.Namespace, mesh: Mesh
) -> tuple[int | None, DecoderConfig]:
    """Writes a folder with the model; returns the step of its run, and its config."""
    out, dtype = arguments.out, arguments.dtype or "bfloat16"
    if arguments.hf:
        folder = resolve_folder(arguments.hf)
        model = Decoder(DecoderConfig.from_folder(folder))
        params = hf.load_params(folder, model, mesh)
        check_finite(params, str(folder))
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(out.absolute() / "params", params)
        hf.copy_assets(folder, out / checkpoint.ASSETS)
        checksums.write_sums(out)
        return None, model.config
    if arguments.peft:
        content = peft_folder.read_config(arguments.peft)
        folder = _base_folder(arguments.base or peft_folder.base_of(content))
        model = Decoder(DecoderConfig.from_folder(folder), mesh)
        config, adapters = peft_folder.load_adapters(arguments.peft, model)
        params = lora.join(adapters, hf.load_params(folder, model, mesh))
        hf.save_folder(out, params, config, assets=folder, dtype=dtype)
        return None, config
    root, step, card = arguments.checkpoint or arguments.workdir, None, ""
    assets = root / checkpoint.ASSETS
    model = Decoder(DecoderConfig.from_folder(assets))
    if arguments.checkpoint:
        checksums.verify(root)
        with ocp.StandardCheckpointer() as checkpointer:
            path = root.absolute() / "params"
            params = checkpointer.restore(path, _abstract(model, mesh))
    else:
        run = read_json(root / "config.json")
        step, model, params = _load_run(run, model, arguments, mesh)
        card = _card(run, root, step)
        dtype = arguments.dtype or run["export"]["dtype"]
    hf.save_folder(out, params, model.config, assets=assets, dtype=dtype, card=card)
    return step, model.config


def _load_run(
    run: Mapping[str, Any], model: Decoder, arguments: argparse.Namespace, mesh: Mesh
) -> tuple[int, Decoder, Params]:
    """Returns the step, model and parameters of the run with config.json `run`.

    The parameters include the base of LoRA adapters.
    """
    m = run["model"]
    sizes = m.get("lora") or {"rank": 0}
    if sizes["rank"]:
        fields = {key: sizes[key] for key in ("rank", "alpha", "targets")}
        config = dataclasses.replace(model.config, lora=lora.Lora(**fields))
        model = model.clone(config=config)
    checkpoints = arguments.workdir / "checkpoints"
    trained, _ = lora.split(_abstract(model, mesh))
    step, params = checkpoint.load_run_params(checkpoints, arguments.step, trained)
    if not sizes["rank"]:
        return step, model, params
    record = checksums.read_record(checkpoints / str(step))
    folder = _base_folder(arguments.base or record.base["path"])
    frozen = hf.load_params(folder, model.clone(param_dtype=m["dtype"]), mesh)
    base = checksums.describe_base(frozen, str(folder))
    checksums.check_base(checkpoints / str(step), record, base)
    return step, model, lora.join(params, frozen)


def _base_folder(name: str) -> pathlib.Path:
    try:
        return resolve_folder(name)
    except ValueError as error:  # `name` may be a path on the adapters' first machine
        raise ValueError(f"{error}; --base names another base of adapters") from None


def _card(run: Mapping[str, Any], workdir: pathlib.Path, step: int) -> str:
    path = workdir / "summary.json"
    summary = read_json(path) if path.is_file() else {}
    # Only the last step has a final score.
    scored = ("base", "final") if summary.get("steps") == step else ("base",)
    evaluations = {name: summary.get(name, {}) for name in scored}
    return model_card(run, step=step, evaluations=evaluations)


def _abstract(model: Decoder, mesh: Mesh) -> Params:
    return with_shardings(abstract_params(model)[0], param_shardings(model, mesh))


if __name__ == "__main__":
    sys.exit(main())
