"""Between Hugging Face folders and checkpoints.

python -m tools.convert --hf HFDIR --out CKPT               to an Orbax checkpoint
python -m tools.convert --checkpoint CKPT --out HFDIR       and back
python -m tools.convert --workdir DIR [--step N] --out HFDIR    from a training run
"""

import argparse
import json
import pathlib
import sys

import jax
import jax.numpy as jnp

from models import hf
from models.config import Qwen2Config
from models.qwen2 import Qwen2, abstract_params, param_shardings
from rl import checkpoint
from sharding.mesh import make_mesh


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--hf", help="Hugging Face folder or hub id")
    source.add_argument("--checkpoint", type=pathlib.Path, help="checkpoint folder")
    source.add_argument("--workdir", type=pathlib.Path, help="folder of a run")
    parser.add_argument("--step", type=int, help="of the run; default: the newest")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument(
        "--dtype", default="bfloat16", choices=sorted(hf.DTYPES), help="of HFDIR"
    )
    parser.add_argument("--json", type=pathlib.Path, help="write the result here")
    arguments = parser.parse_args(argv)
    try:
        result = _convert(arguments)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"{result['out']}: {result['parameters']:,} parameters")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


def _convert(arguments: argparse.Namespace) -> dict:
    out = arguments.out
    if out.exists():
        raise ValueError(f"{out}: exists already")
    if arguments.step is not None and not arguments.workdir:
        raise ValueError(f"--step {arguments.step}: goes with --workdir")
    mesh = make_mesh()
    if arguments.hf:
        folder = hf.resolve_folder(arguments.hf)
        model = Qwen2(Qwen2Config.from_folder(folder))
        params = hf.load_params(folder, model, mesh)
        checkpoint.save_params(out, params, folder)
        step = None
    else:
        root = arguments.checkpoint or arguments.workdir
        assets = root / checkpoint.ASSETS
        model = Qwen2(Qwen2Config.from_folder(assets))
        if arguments.checkpoint:
            params, step = checkpoint.load_params(root, _abstract(model, mesh)), None
        else:
            step, params = checkpoint.load_run_params(
                root / "checkpoints", arguments.step, _abstract(model, mesh)
            )
        hf.save_folder(out, params, model.config, assets=assets, dtype=arguments.dtype)
    count = sum(x.size for x in jax.tree.leaves(params))
    return {"out": str(out), "parameters": count, "step": step}


def _abstract(model: Qwen2, mesh):
    shapes, _ = abstract_params(model)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, jnp.float32, sharding=s),
        shapes,
        param_shardings(model, mesh),
    )


if __name__ == "__main__":
    main()
