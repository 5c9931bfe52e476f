"""The flux engine in the identity check: on images with near-ties, with bugs, without its declaration."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from polybench.core.document.identity import Parity
from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.identity.check import Checker, Task
from polybench.identity.tensors import ALGORITHM
from polybench.models.lenet import LENET
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Load, Loaded
from polybench.wire.process import WorkerProcess
from tests import small
from tests.engines.conftest import SOON_COMPILED
from tests.sessions import InProcess

REPOSITORY = Path(__file__).parents[3]
REAL_IMAGES = REPOSITORY.parent / "shared" / "data" / "cifar10-jpeg.zip"

STEPS = 3

pytestmark = pytest.mark.slow


Check = Callable[..., Parity]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    environment = worker_environment(ENGINES["flux"], "cpu", 2) | SOON_COMPILED
    environment["PYTHONPATH"] = str(REPOSITORY)
    with WorkerProcess(environment, tmp_path_factory.mktemp("worker") / "log") as worker:
        try:
            worker.ask(Load(ENGINES["flux"].factory), Loaded, 240)
        except Unavailable as missing:
            pytest.skip(missing.reason)
        yield worker


@pytest.fixture
def check(worker: WorkerProcess, tmp_path: Path) -> Check:
    """`check(factory, files)`, in one process for all: what one engine plants in it is taken out again."""

    def check(factory: str, files: small.Files | None = None) -> Parity:
        files = files or small.files(tmp_path)
        job = small.job(batch_size=files.epoch.batch_size)
        task = Task(job, files.weights, files.epoch, STEPS, 240.0)
        (scratch := tmp_path / "scratch").mkdir()
        checker = Checker(InProcess(ENGINES["reference"].factory), scratch, tmp_path / "cache")
        worker.ask(Load(factory), Loaded, 240)
        try:
            return checker.check(worker, task)
        finally:
            worker.ask(Load("tests.engines.flux.planted:Mended"), Loaded, 240)

    return check


@pytest.fixture
def near_ties(tmp_path: Path) -> small.Files:
    """Images whose neighbouring values differ by 1e-9: two even channels, and next to nothing in the third.

    No image of bytes is that smooth, so these are not written from a data set.
    """
    files = small.files(tmp_path)
    images = np.memmap(files.epoch.images_path, np.float32, "r+").reshape(-1, 3, 32, 32)
    images[:, :2] = 0.5
    images[:, 2] = 2e-8 * np.random.default_rng(0).random(images[:, 2].shape, np.float32)
    return files


@pytest.fixture
def real_images(tmp_path: Path) -> small.Files:
    """Photographs of CIFAR-10, as many as `polybench parity` looks at."""
    image = pytest.importorskip("PIL.Image")
    if not REAL_IMAGES.exists():
        pytest.skip(f"no {REAL_IMAGES}")
    each = (STEPS + 1) * LENET.parity_batch_size // LENET.classes + 1
    pixels, labels = [], []
    with zipfile.ZipFile(REAL_IMAGES) as archive:
        for label, name in enumerate(sorted(n for n in archive.namelist() if n.startswith("train/"))):
            blob, at = archive.read(name), 0
            for _ in range(each):
                end = at + 4 + int.from_bytes(blob[at : at + 4], "little")
                pixels.append(np.asarray(image.open(io.BytesIO(blob[at + 4 : end])).convert("RGB")))
                labels.append(label)
                at = end
    images = np.stack(pixels).transpose(0, 3, 1, 2)
    data = small.dataset()._replace(images=images, labels=np.array(labels, np.uint8))
    return small.files(tmp_path, data, LENET.parity_batch_size)


def test_under_its_declaration_it_is_identical(check: Check, near_ties: small.Files) -> None:
    parity = check(ENGINES["flux"].factory, near_ties)
    assert parity.status == "pass", parity.reason
    assert parity.algorithm is not None
    assert (parity.algorithm.max_gradient_error or 0) < 1e-12
    deviations = {deviation.tensor: deviation.error for deviation in parity.deviations}
    assert deviations["conv1.weight"] > ALGORITHM["gradient"]
    assert deviations["dense3.weight"] == 0  # behind the pooling


def test_without_its_declaration_it_is_not(check: Check, near_ties: small.Files) -> None:
    assert check("tests.engines.flux.planted:Undeclared", near_ties).status == "fail"


def test_on_real_images_it_is_identical(check: Check, real_images: small.Files) -> None:
    # Without the declaration it may pass too: in float64 few of their windows have values within 1.5e-8.
    parity = check(ENGINES["flux"].factory, real_images)
    assert parity.status == "pass", parity.reason
    deviations = {deviation.tensor: deviation.error for deviation in parity.deviations}
    assert deviations["conv1.weight"] > 1e-3


@pytest.mark.parametrize("bug", ["KernelNotReversed", "WrongAxisOrder", "SoftmaxTwice", "WrongMomentum"])
def test_a_planted_bug_fails(bug: str, check: Check) -> None:
    parity = check(f"tests.engines.flux.planted:{bug}")
    assert parity.status == "fail"
    assert any(not tensor.passed for tensor in parity.tensors if tensor.part == "algorithm")
