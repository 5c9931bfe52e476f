from __future__ import annotations

import tomllib

import pytest

from polybench.commands.setup import _check_names
from polybench.core.errors import BadInput, Unavailable
from polybench.core.job import Job
from polybench.core.layers import BatchNorm, Dropout, walk
from polybench.core.spec import Precision, Workload
from polybench.engines import ENGINES
from polybench.engines.flux import lux
from polybench.engines.flux.julia import finding
from polybench.engines.flux.julia.bounds import ADDED, CUDA, bounds, uuids
from polybench.engines.flux.julia.environment import environment
from polybench.engines.flux.julia.extra_packages import NEEDED, STEPS, WANTED, check_packages, wanted
from polybench.engines.flux.julia.finding import ENVIRONMENT, EXECUTABLE, PROJECT, Julia
from polybench.engines.flux.julia.package import package_folder
from polybench.engines.flux.refusals import refuse
from polybench.models import find_model
from tests.engines.flux.julia.conftest import COMPLETE, Make


def test_every_package_is_a_weak_dependency_with_a_bound() -> None:
    package = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    for name in NEEDED.values():
        assert name in package["weakdeps"], name
        assert name in bounds(), name
        assert name in uuids(), name
    assert set(ADDED) == {*CUDA, *NEEDED.values()}
    # MKL replaces a library when it is loaded, and there is nothing to be extended.
    alone = {name for name, needs in package["extensions"].items() if isinstance(needs, str)}
    assert alone == {f"PolyBench{name}Ext" for name in NEEDED.values() if name != "MKL"}
    assert {file.stem for file in (package_folder() / "ext").glob("*.jl")} == {*alone, "PolyBenchCUDAExt"}


def test_names_are_those_of_the_table() -> None:
    assert {*NEEDED, *STEPS} - {"lux"} <= set(ENGINES["flux"].variants)
    assert "lux" in ENGINES


def test_a_worker_is_told_what_its_variants_need(
    executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTABLE, executable())
    monkeypatch.setenv(PROJECT, project(COMPLETE))
    assert WANTED not in environment("cpu", 2, ())
    assert WANTED not in environment("cpu", 2, ("train", "blas2"))
    assert environment("cpu", 2, ("mooncake", "mkl"))[WANTED] == "Mooncake,MKL"
    assert lux.environment("cpu", 2, ())[WANTED] == "Lux"
    monkeypatch.setenv(WANTED, "Mooncake,MKL")
    assert wanted() == ("Mooncake", "MKL")


@pytest.mark.parametrize(
    ("found_by", "remedy"),
    [
        ("juliapkg", "polybench setup flux --with Mooncake"),
        ("/config", "polybench setup flux --julia {julia} --project {project} --with Mooncake"),
        (ENVIRONMENT, "{julia} --project={project} -e 'using Pkg; Pkg.add"),
    ],
)
def test_a_missing_package_is_told_with_what_adds_it(
    found_by: str, remedy: str, executable: Make, project: Make
) -> None:
    julia = Julia(executable(), project(COMPLETE), found_by)
    with pytest.raises(Unavailable, match=r"lacks Mooncake") as missing:
        check_packages(julia, ("Mooncake",))
    assert julia.project in missing.value.reason
    assert remedy.format(julia=julia.executable, project=julia.project) in missing.value.remedy


def test_a_package_that_only_another_brings_is_missing(executable: Make, project: Make) -> None:
    there = COMPLETE | {"Mooncake": "0.5.45"}
    julia = Julia(executable(), project(there, indirect=("Mooncake",)), "juliapkg")
    with pytest.raises(
        Unavailable, match=r"lacks Mooncake \(it is there for other packages only\)"
    ) as missing:
        check_packages(julia, ("Mooncake",))
    assert missing.value.remedy == "polybench setup flux --with Mooncake"


def test_versions_are_told(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(COMPLETE | {"Mooncake": "0.5.45"}), "juliapkg")
    assert check_packages(julia, ("Mooncake",)) == {"mooncake": "0.5.45"}
    assert check_packages(julia, ()) == {}


def test_a_version_that_polybench_does_not_take_is_in_no_other_cells_way(
    executable: Make, project: Make
) -> None:
    julia = Julia(executable(), project(COMPLETE | {"Mooncake": "0.4.1"}), "juliapkg")
    finding.check(julia)
    with pytest.raises(Unavailable, match=r"has Mooncake 0\.4\.1 \(polybench takes"):
        check_packages(julia, ("Mooncake",))


def test_reactant_needs_a_newer_flux(executable: Make, project: Make) -> None:
    there = COMPLETE | {"Reactant": "0.2.280"}
    with pytest.raises(Unavailable, match=r"has Flux 0\.16\.10.*0\.16\.11"):
        check_packages(Julia(executable(), project(there), "juliapkg"), ("Reactant",))
    newer = Julia(executable(), project(there | {"Flux": "0.16.11"}), "juliapkg")
    assert check_packages(newer, ("Reactant",)) == {"reactant": "0.2.280"}


def test_setup_takes_no_other_package() -> None:
    with pytest.raises(BadInput, match="--with DataFrames: nothing here needs it"):
        _check_names(("DataFrames",))


def job(model: str, *variants: str, device: str = "cpu", precision: Precision = "fp32") -> Job:
    network = find_model(model)
    workload = Workload(model, "noise", 8, network.optimizer, precision, 2)
    return Job(network, workload, device, "float32", variants)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (job("lenet", "train", "mooncake"), "exclude each other"),
        (job("resnet32", "mooncake"), "batch norm"),
        (job("lenet", "reactant", device="cuda"), "CPU only"),
        (job("catdog-3", "reactant"), "dropout"),
        (job("resnet32", "reactant"), "schedule"),
    ],
)
def test_what_a_variant_lacks_is_refused_by_name(refused: Job, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        refuse(refused)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_bf16_is_refused_with_the_reason(device: str) -> None:
    with pytest.raises(Unavailable, match=r"Flux\.bf16 makes the network's own weights bfloat16") as missing:
        refuse(job("lenet", device=device, precision="bf16"))
    assert missing.value.remedy == "use --precision fp32"


@pytest.mark.parametrize("variant", sorted(STEPS))
def test_lenet_has_nothing_to_refuse(variant: str) -> None:
    assert not any(isinstance(layer, BatchNorm | Dropout) for layer in walk(find_model("lenet").layers))
    refuse(job("lenet", variant))
