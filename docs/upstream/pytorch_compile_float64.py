"""torch.compile in float64: the gradient of a convolution behind a max-pool is zero.

python pytorch_compile_float64.py
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(200, 10),
)  # fmt: skip
images, labels = torch.rand(128, 3, 32, 32), torch.randint(10, (128,))


def gradients(compiled: bool, dtype: torch.dtype, **options: bool) -> list[torch.Tensor]:
    """Of all parameters, for one batch."""
    model.to(dtype)

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model(images.to(dtype)), labels)

    step = torch.compile(loss, dynamic=False, options=options or None) if compiled else loss
    torch._dynamo.reset()
    model.zero_grad()
    step().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


print(f"torch {torch.__version__}")
for dtype in (torch.float32, torch.float64):
    exact = gradients(False, dtype)
    for options in ({}, {"layout_optimization": False}):
        found = gradients(True, dtype, **options)
        worst = max(float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))
        print(f"{dtype}, {options or 'as it is'}: worst gradient is {worst:.1e} from eager's")
