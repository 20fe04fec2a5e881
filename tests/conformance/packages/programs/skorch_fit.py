"""skorch: NeuralNetClassifier.fit and predict_proba; the module is compiled, as its documentation says."""

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn

from ..program import Program


class MyModule(nn.Module):
    def __init__(self, units=10):
        super().__init__()
        self.dense0 = nn.Linear(8, units)
        self.dropout = nn.Dropout(0.5)
        self.dense1 = nn.Linear(units, 2)

    def forward(self, x):
        x = self.dropout(torch.relu(self.dense0(x)))
        return self.dense1(x).softmax(dim=-1)


def program(compile):
    module = MyModule()
    module.forward = compile(module.forward)
    net = NeuralNetClassifier(module, max_epochs=2, lr=0.1, batch_size=16, train_split=None, verbose=0)

    def fit(x, y):
        net.fit(x, y)
        losses = [epoch["train_loss"] for epoch in net.history]
        return losses, net.predict_proba(x), list(net.module_.state_dict().values())

    def made(n):
        return np.random.randn(n, 8).astype(np.float32), np.random.randint(0, 2, n)

    return Program(fit, [lambda: made(40)], times=2, tolerance=1e-3, backward=False)
