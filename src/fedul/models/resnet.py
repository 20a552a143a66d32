"""ResNet18 as in the table "Model architecture of the benchmark experiment on CIFAR10" of the FedUL paper.

He et al., Deep Residual Learning for Image Recognition, CVPR 2016, without the max-pool. Tensors are named as in
torchvision, so that ImageNet weights exported to safetensors fit.
"""

from __future__ import annotations

from torch import Tensor, nn


def resnet18(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a ResNet18 for inputs of shape (channels, height, width); a run takes hours on a CPU."""
    return ResNet18(shape[0], classes)


class ResNet18(nn.Module):
    """ResNet18 with a stem of stride 2 and without max-pool, for images of any size.

    Each batch norm has as many channels as its convolution; some numbers in the paper's table are smaller, by mistake.

    Parameters
    ----------
    channels : int
        Channels of the images.
    classes : int
        Number of logits.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # as in He et al.; with torch's default, activations shrink with depth
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))  # (n, 64, h/2, w/2)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # (n, 512, h/16, w/16)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))  # (n, K)
        return logits


class BasicBlock(nn.Module):
    """Residual block: two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        result: Tensor = self.relu(out + self.downsample(x))
        return result
