"""MONAI: a 3D UNet, DiceCE loss, sliding-window inference, post-processing and the Dice metric; dictionary
transforms."""

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Activations, AsDiscrete, Compose, RandFlipd, ScaleIntensityd

from ..program import Program


def program(compile):
    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    metric = DiceMetric(include_background=False)
    post = Compose([Activations(softmax=True), AsDiscrete(argmax=True, to_onehot=2)])
    prepare = Compose([ScaleIntensityd(keys="image"), RandFlipd(keys=["image", "label"], prob=0.5, spatial_axis=0)])
    prepare.set_random_state(seed=3)

    @compile
    def train(image, label):
        return loss(model(image), label)

    @compile
    def infer(image):
        with torch.no_grad():
            return sliding_window_inference(image, (8, 8, 8), 2, model, overlap=0.25)

    @compile
    def score(scores, label):
        return metric([post(s) for s in scores], [AsDiscrete(to_onehot=2)(y) for y in label])

    def both(image, label):
        made = prepare({"image": image[0], "label": label[0]})
        predicted = infer(image)
        return train(image, label), predicted, score(predicted, label), torch.as_tensor(made["image"])

    def batch(n, size):
        return torch.rand(n, 1, size, size, size), (torch.rand(n, 1, size, size, size) > 0.7).float()

    return Program(both, [lambda: batch(1, 12), lambda: batch(2, 16)], state=[model], times=2, tolerance=3e-3)
