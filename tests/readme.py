"""Writes the tables of the README and the docs, and `julia/models`, from the code: `make readme`.

A table is between two markers in one of these files; a test fails if it is outdated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import msgspec
import tomli_w

from polybench.engines import ENGINES, EngineSpec, Variant
from polybench.engines.flux.emitter import emit_layers
from polybench.networks import MODEL_NAMES, MODELS, find_model
from polybench.networks.layers import Layer, Shape
from polybench.networks.model import Model
from polybench.networks.network_file import without_none
from polybench.networks.optimizers import FORMULAS, Optimizer
from polybench.render import FORMATS
from polybench.schema.metrics import GROUPS, METRICS, Metric
from polybench.schema.options import Precision, Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests import cuda_levels
from tests import engine_matrix as cases
from tests.example_networks import BIASED, EVERYTHING, PATCHED, RESNET8, SEQUENCES, TEXT
from tests.frameworks import PYPROJECT

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a line per row."""
    header_line, *lines = (
        "|" + "|".join(f" {configuration} " if configuration else " " for configuration in row) + "|"
        for row in (header, *rows)
    )
    return "\n".join([header_line, "|---" * len(header) + "|", *lines])


def formats() -> str:
    rows = ((f"`{name}`", "human" if row.for_humans else "machine", row.summary) for name, row in FORMATS.items())
    return markdown(("`--format`", "for", "is"), rows)


def columns() -> str:
    """Return columns by group; those without a group come last."""
    groups = {f"`{name}`": members for name, members in GROUPS.items() if name != "all"}
    grouped = {name for members in groups.values() for name in members}
    groups["no group"] = tuple(name for name in METRICS if name not in grouped)
    rows = ((title, ", ".join(_column(METRICS[name]) for name in names)) for title, names in groups.items())
    return markdown(("group", "columns"), rows)


def _column(metric: Metric) -> str:
    details = ", ".join(filter(None, (metric.unit, metric.description)))
    return f"`{metric.name}`" + (f" ({details})" if details else "")


def networks() -> str:
    rows = []
    for name, model in zip(MODEL_NAMES, MODELS.values(), strict=True):
        number = f"{model.parameters():,}" + ("" if name == model.name else f" (`{model.name}`)")
        rows.append((f"`{name}`", f"{_input(model)}, {model.classes} classes", number, model.summary))
    return markdown(("`--model`", "input", "trained parameters", "what it is"), rows)


def _input(model: Model) -> str:
    """Describe one image or sequence."""
    if model.vocabulary_size is not None:
        return f"{model.input_shape[0]} tokens of {model.vocabulary_size:,}"
    if len(model.input_shape) == 2:
        time, features = model.input_shape
        return f"{time} characters of {features}"
    channels, height, width = model.input_shape
    return f"{height} x {width}" + (", grey" if channels == 1 else "")


def optimizers() -> str:
    return markdown(("name", "formula"), ((f"`{name}`", formula) for name, formula in FORMULAS.items()))


def engines() -> str:
    rows = (
        (f"`{name}`", row.summary, _variants(row), f"`{row.extra}`" if row.extra else "")
        for name, row in ENGINES.items()
    )
    return markdown(("engine", "what is timed", "variants", "extra"), rows)


def _variants(row: EngineSpec) -> str:
    return ", ".join(f"`{name}`{_remarks(one)}" for name, one in row.variants.items())


def _remarks(variant: Variant) -> str:
    found = ["CUDA only"] * variant.cuda_only + ["experimental"] * variant.experimental
    return f" ({', '.join(found)})" if found else ""


_TITLES = {
    BIASED.name: "biases before batch norm",
    EVERYTHING.name: "every layer and option for images",
    SEQUENCES.name: "every layer for sequences",
    TEXT.name: "every layer for text",
    PATCHED.name: "every layer of vision transformers and mobile networks",
    RESNET8.name: "`resnet32`, with one block a stage",
}


def matrix() -> str:
    """Return Markdown with a row per network and optimizer, and a column per engine.

    Networks without a check have an empty row.
    """
    configurations: dict[tuple[str, str], set[str]] = {}
    for network, optimizer, configuration in cases.checks():
        configurations.setdefault((network, _words(optimizer)), set()).add(configuration)
    for network in {name for name in MODEL_NAMES if name in MODELS} - {network for network, _ in configurations}:
        configurations[network, _words(MODELS[network].optimizer)] = set()

    rows = []
    order = [*MODEL_NAMES, *cases.NETWORKS, EVERYTHING.name, SEQUENCES.name, TEXT.name, PATCHED.name]
    order.insert(order.index("resnet32") + 1, RESNET8.name)
    for network, optimizer in sorted(configurations, key=lambda key: order.index(key[0])):
        found = configurations[network, optimizer]
        rows.append((_name(network), optimizer, *(_checks(engine, found) for engine in cases.TESTED)))
    return markdown(("network", "optimizer", *(f"`{engine}`" for engine in cases.TESTED)), rows)


def _name(network: str) -> str:
    """Return the network's name, with the size of its images if the check uses another size."""
    if network in _TITLES:
        return _TITLES[network]
    checked = cases.NETWORKS[network].model if network in cases.NETWORKS else find_model(network)
    own = find_model(network)
    if checked.vocabulary_size != own.vocabulary_size:
        return f"`{network}`, with {checked.vocabulary_size:,} tokens"
    if checked.input_shape != own.input_shape:
        return f"`{network}`, for {' x '.join(map(str, checked.input_shape[1:]))}"
    return f"`{network}`"


def _words(optimizer: Optimizer) -> str:
    return f"`{optimizer.name}`" + (", weight decay" if optimizer.weight_decay else "")


def _checks(engine: str, configurations: set[str]) -> str:
    """List the checks of an engine: plain, and its variants."""
    variants = sorted(
        configuration.removeprefix(engine) for configuration in configurations if configuration.startswith(f"{engine}+")
    )
    return ", ".join(["✓"] * (engine in configurations) + [f"`{name}`" for name in variants]) or "-"


GPU_TESTS = {
    "NVIDIA H200, 2026-11-27": (
        "torch", "torch+channels_last", "torch+compile", "torch+cudagraph", "torch+foreach",
        "torch+channels_last+compile", "torch+channels_last+cudagraph", "torch+compile+cudagraph", "jax",
    ),
    "NVIDIA H100, 2026-11-28": ("torch", "jax"),
}  # fmt: skip
"""Configurations that `make gpu` measured or proved identical, by hardware and date."""


def ran() -> str:
    """Return a row per engine, per variant, and per combination of variants that the tests or a saved study ran."""
    tested = {check.configuration for check in cases.checks()}
    by_hand: dict[tuple[str, str], dict[str, str]] = {}
    for study in Store(_ROOT / "docs" / "gallery" / "measured").studies():
        for configuration, device, hardware in _measured(study):
            days = by_hand.setdefault((configuration, device), {})
            days[hardware] = max(days.get(hardware, ""), study.created[:10])
    rows = []
    on_gpus = {configuration for passed in GPU_TESTS.values() for configuration in passed}
    for configuration in _configurations(tested | on_gpus | {configuration for configuration, _ in by_hand}):
        found = (_places(configuration, d, tested, by_hand.get((configuration, d), {})) for d in ("cpu", "cuda"))
        rows.append((f"`{configuration}`", *found))
    return markdown(("engine", "on the CPU", "on CUDA"), rows)


def _measured(study: StudyDocument) -> Iterator[tuple[str, str, str]]:
    """Yield (configuration, type of device, hardware) of what passed the parity check and was measured."""
    for result in study.results:
        if result.environment is not None:  # another environment has other versions
            continue
        if result.status == "ok" and result.is_measured and result.parity.status == "pass":
            kind, _, index = result.device.partition(":")
            gpu = next(iter(study.host.gpus[int(index or 0) :]), "a GPU")
            hardware = study.host.cpu if kind == "cpu" else gpu
            configuration = "+".join(filter(None, (result.engine, result.variant)))
            yield configuration, kind, hardware


def _configurations(ran: set[str]) -> Iterator[str]:
    for engine in cases.TESTED:
        yield engine
        yield from (f"{engine}+{name}" for name in ENGINES[engine].variants)
        yield from sorted(one for one in ran if one.startswith(f"{engine}+") and one.count("+") > 1)


def _places(configuration: str, device: str, tested: set[str], by_hand: dict[str, str]) -> str:
    engine, *names = configuration.split("+")
    row = ENGINES[engine]
    variants = [row.variants[name] for name in names]
    parts = ["by the tests"] if device == "cpu" and configuration in tested else []
    if device == "cpu" and not parts and any(one.changes_thread_pools for one in variants):
        parts = ["by the tests, with pools of another size"]  # one variant stands for all, as in tests.engine_matrix
    if device == "cuda":
        parts += [f"by the GPU tests on {where}" for where, passed in GPU_TESTS.items() if configuration in passed]
    parts += [f"by hand on {' '.join(hardware.split())}, {date}" for hardware, date in sorted(by_hand.items())]
    if parts:
        return "; ".join(parts)
    if (device == "cpu" and any(one.cuda_only for one in variants)) or device not in row.devices:
        return "-"
    return "never run"


def limits() -> str:
    """Return a row per subject: what polybench has, from the code, and well-known things that the code lacks."""
    layers = [layer.__struct_config__.tag for layer in get_args(Layer)]
    devices = dict.fromkeys(device for row in ENGINES.values() for device in row.devices)
    classifiers = PYPROJECT["project"]["classifiers"]
    systems = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("Operating System")]
    versions = [one.rpartition(" ")[2] for one in classifiers if re.search(r"Python :: 3\.\d+$", one)]
    has = {
        "layers": _codes(layers),
        "losses": "mean cross-entropy of logits",
        "optimizers": _codes(FORMULAS),
        "data types": _codes(get_args(Precision)),
        "data sets": _codes(("cifar10", "mnist", "imdb", "synthetic")) + ", folders of images",
        "devices": _codes(devices),
        "distributed training": "data-parallel replicas on one machine (`--replicas`)",
        "platforms": f"{', '.join(systems)} with Python {', '.join(versions)}",
    }
    records = (Model, Optimizer, Study, *get_args(Layer))
    known = {*layers, *FORMULAS, *get_args(Precision), *devices, *systems}
    known |= {field for record in records for field in record.__struct_fields__}
    rows = (
        (subject, has[subject], ", ".join(text for name, text in lacking.items() if name not in known))
        for subject, lacking in _LACKING.items()
    )
    return markdown(("", "polybench has", "polybench lacks"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


_LACKING = {
    "layers": {
        "sigmoid": "sigmoid and tanh between layers",
        "dilation": "dilated convolution",
        "conv_transpose": "transposed convolution",
        "conv1d": "convolution in one or three dimensions",
        "gru": "GRU",
        "rnn": "plain recurrent layers",
        "custom": "layers of your own",
    },
    "losses": {
        "mean_squared_error": "mean squared error (regression)",
        "class_weights": "class weights",
        "ctc": "CTC",
        "contrastive": "contrastive losses",
    },
    "optimizers": {
        "adagrad": "Adagrad",
        "adadelta": "Adadelta",
        "lamb": "LAMB",
        "lion": "Lion",
        "lbfgs": "L-BFGS",
        "accumulation": "gradient accumulation",
    },
    "data types": {
        "fp16": "float16 with loss scaling",
        "fp8": "float8",
        "int8": "quantization",
        "fp64": "times in float64",
    },
    "data sets": {"imagenet": "ImageNet", "audio": "audio", "video": "video", "detection": "detection, segmentation"},
    "devices": {"rocm": "AMD GPUs (ROCm)", "mps": "Apple GPUs (Metal)", "xpu": "Intel GPUs", "tpu": "TPUs"},
    "distributed training": {
        "nodes": "one training on several machines",
        "fsdp": "sharded weights (FSDP, ZeRO)",
        "tensor_parallel": "tensor and pipeline parallelism",
        "parameter_server": "parameter servers",
    },
    "platforms": {"Windows": "Windows", "MacOS": "macOS", "PyPy": "PyPy"},
}
"""Well-known things, by the name that they would have in the code; what the code has is left out."""


def lacks() -> str:
    """Return a row per engine: the layers, devices and measurements that it lacks."""
    devices = dict.fromkeys(device for row in ENGINES.values() for device in row.devices)
    rows = []
    for name in cases.TESTED:
        row = ENGINES[name]
        layers = _codes(layer.__struct_config__.tag for layer in cases.MISSING_LAYERS.get(name, ()))
        missing = [
            *([f"layers: {layers}"] if layers else []),
            *(
                [f"devices: {_codes(one for one in devices if one not in row.devices)}"]
                if row.devices != (*devices,)
                else []
            ),
            *(["times of single layers"] if row.compiled_as_whole else []),
            *([] if row.replicas else [f"data-parallel training: {row.no_data_parallel_reason}"]),
        ]
        rows.append((f"`{name}`", "; ".join(missing) or "-"))
    return markdown(("engine", "lacks"), rows)


def cuda() -> str:
    """Return a row per engine and level of CUDA tests, with the tests; levels without a test are left out."""
    found: dict[tuple[str, str], list[str]] = {}
    for test in cuda_levels.find():
        where = f", on {test.where}" if test.where else ""
        found.setdefault((test.engine, test.level), []).append(f"`{test.test.removeprefix('tests/')}`{where}")
    rows = ((f"`{engine}`", level, "<br>".join(tests)) for (engine, level), tests in found.items())
    return markdown(("", "level", "tests"), rows)


def levels() -> str:
    """Return a row per level of CUDA tests."""
    return markdown(("level", "the CUDA code"), cuda_levels.LEVELS.items())


TABLES: dict[str, Callable[[], str]] = {
    "columns": columns,
    "formats": formats,
    "networks": networks,
    "optimizers": optimizers,
    "engines": engines,
    "matrix": matrix,
    "ran": ran,
    "levels": levels,
    "cuda": cuda,
    "limits": limits,
    "lacks": lacks,
}
"""Functions by the name in the markers."""


def with_tables(text: str) -> str:
    """Replace each table between its markers.

    Raises:
        ValueError: an end marker is missing.
    """
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: written by make readme -->\n", f"<!-- end of {name} -->\n"
        before, begun, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not begun:
            continue
        if not ended:
            raise ValueError(f"{end!r} is missing")
        text = f"{before}{begin}{table()}\n{end}{after}"
    return text


IN_JULIA = {
    name: model
    for name, model in MODELS.items()
    # Julia's `bench` has neither a cosine nor label smoothing.
    if model.input_shape[0] == 3 and not model.optimizer.cosine_steps and not model.label_smoothing
}
"""Networks of color images; PolyBench.jl has data for these only."""

JULIA_MODELS = _ROOT / "julia" / "models"


def as_toml(model: Model) -> str:
    """Return the content that `julia/src/models.jl` reads."""
    fields = {
        "name": model.name,
        "input_shape": model.input_shape,
        "classes": model.classes,
        "batch_size": model.batch_size,
        "initialization": model.initialization,
    }
    trained = model.weight_shapes()
    statistics = {name: shape for name, shape in model.tensor_shapes().items() if name not in trained}
    optimizer = tomli_w.dumps({"optimizer": without_none(msgspec.to_builtins(model.optimizer))})
    return f"{tomli_w.dumps(fields)}{_tensors('trained', trained)}{_tensors('statistics', statistics)}\n{optimizer}"


def _tensors(name: str, shapes: Mapping[str, Shape]) -> str:
    """Return an array of tensors, each in a line, which tomli_w would split."""
    lines = [f'    {{name = "{tensor}", shape = {list(shape)}}},\n' for tensor, shape in shapes.items()]
    return f"{name} = [\n{''.join(lines)}]\n"


def as_julia(model: Model) -> str:
    """Return the program with the functions of a network, which `julia/src/models.jl` includes."""
    return emit_layers(model.layers, model.input_shape, f"{model.name} in Flux.", summary=model.summary)


def julia_models() -> dict[str, str]:
    """Return the contents of the files in `julia/models` by name."""
    files = {f"{name}.toml": as_toml(model) for name, model in IN_JULIA.items()}
    return files | {f"{name}.jl": as_julia(model) for name, model in IN_JULIA.items()}


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
    JULIA_MODELS.mkdir(exist_ok=True)
    for file, content in julia_models().items():
        (JULIA_MODELS / file).write_text(content, "utf-8")
