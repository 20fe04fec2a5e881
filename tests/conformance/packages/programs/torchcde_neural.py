"""torchcde: a neural controlled differential equation over Hermite cubic coefficients, as its example; its field is
compiled too."""

import torch
import torchcde

from ..program import Program


class CDEFunc(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(4, 16)
        self.linear2 = torch.nn.Linear(16, 3 * 4)

    def forward(self, t, z):
        z = self.linear2(self.linear1(z).relu()).tanh()
        return z.view(z.size(0), 4, 3)


class NeuralCDE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.func = CDEFunc()
        self.initial = torch.nn.Linear(3, 4)
        self.readout = torch.nn.Linear(4, 1)

    def forward(self, coeffs):
        path = torchcde.CubicSpline(coeffs)
        z0 = self.initial(path.evaluate(path.interval[0]))
        z = torchcde.cdeint(X=path, func=self.func, z0=z0, t=path.interval, adjoint=False, method="rk4")
        return self.readout(z[:, 1])


def program(compile):
    model = NeuralCDE()

    @compile
    def step(x):
        coeffs = torchcde.hermite_cubic_coefficients_with_backward_differences(x)
        return model(coeffs).squeeze(-1).sigmoid()

    return Program(
        step, [lambda: (torch.randn(3, 6, 3),), lambda: (torch.randn(2, 8, 3),)], state=[model], times=2, tolerance=1e-3
    )
