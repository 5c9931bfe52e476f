"""`resnet32` in Keras; its layers have the names of initial_state.npz."""

import keras
from keras import layers


def conv3x3(x: keras.KerasTensor, filters: int, stride: int, name: str) -> keras.KerasTensor:
    """A 3x3 convolution without bias, followed by batch norm."""
    if stride == 1:
        return layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    # "same" with a stride would add zeros below and to the right only.
    x = layers.ZeroPadding2D(1)(x)
    return layers.Conv2D(filters, 3, stride, use_bias=False, name=name)(x)


def norm(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Batch norm with explicit constants; Keras's momentum is the share of what was."""
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)


def block(x: keras.KerasTensor, filters: int, name: str) -> keras.KerasTensor:
    """The basic residual block; where channels change, a 1x1 convolution brings the shortcut to the shape."""
    stride = 1 if x.shape[-1] == filters else 2
    y = conv3x3(x, filters, stride, f"{name}.conv1")
    y = layers.ReLU()(norm(y, f"{name}.norm1"))
    y = conv3x3(y, filters, 1, f"{name}.conv2")
    y = norm(y, f"{name}.norm2")
    if stride == 2:
        x = layers.Conv2D(filters, 1, stride, use_bias=False, name=f"{name}.projection")(x)
    return layers.ReLU()(layers.add([y, x]))


def network() -> keras.Model:
    """The CIFAR-10 ResNet of 32 layers, post-activation."""
    image = keras.Input((32, 32, 3))
    x = conv3x3(image, 16, 1, "conv1")
    x = layers.ReLU()(norm(x, "norm1"))
    for stage, filters in enumerate((16, 32, 64), 1):
        for number in range(1, 6):
            x = block(x, filters, f"stage{stage}.block{number}")
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(10, name="dense")(x))
