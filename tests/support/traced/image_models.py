"""Small models of images: residual layers, layers that are concatenated, and what reorders channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions with batch norms, and a shortcut, as ResNet has them."""

    def __init__(self, before: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        same = (before, stride) == (channels, 1)
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, `layers` alike and a strided one, and a head."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.layers = nn.Sequential(*(Residual(8, 8) for _ in range(layers)), Residual(8, 16, 2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.layers(self.stem(x)).mean((2, 3)))
        return made


class UNet(nn.Module):
    """Images halved and doubled again, next to what they were made of; it returns an image and a part of one."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(4, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.silu(self.down(x))
        y = F.group_norm(self.inner(y) + y, 2)
        return self.last(torch.cat((x, self.up(y)), 1)), y[:, 2:5]


class Shuffled(nn.Module):
    """Channels in another order between grouped convolutions, by a view that only memory with channels first has, and a
    gate of each channel, as ShuffleNet and SENet have them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 1, groups=2), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate, self.last = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        y = self.second(y)
        gate = torch.sigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        return torch.flatten(self.last(y * gate.expand_as(y)), 2).transpose(1, 2)


class Volumes(nn.Module):
    """Convolutions along three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(F.relu(self.first(x)))
        return made


def image_models() -> dict[str, tuple[nn.Module, Tensor]]:
    """The models in evaluation, with norms that do something, and images for them."""
    torch.manual_seed(0)
    shapes = {ResNet: (2, 3, 20, 20), UNet: (2, 4, 8, 8), Shuffled: (2, 4, 6, 6), Volumes: (2, 2, 4, 4, 4)}
    return {kind.__name__: (evaluated(kind()), torch.randn(shape)) for kind, shape in shapes.items()}


def evaluated(model: nn.Module) -> nn.Module:
    """The model in evaluation, with norms that do something."""
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    return model.eval().requires_grad_(False)
