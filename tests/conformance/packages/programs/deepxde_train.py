"""DeepXDE: its Poisson example in one dimension, trained for a few steps by its own loop; the network is compiled."""

import deepxde as dde
import numpy as np
import torch

from ..program import Program


def pde(x, y):
    return -dde.grad.hessian(y, x) - np.pi**2 * torch.sin(np.pi * x)


def program(compile):
    geometry = dde.geometry.Interval(-1, 1)
    edge = dde.icbc.DirichletBC(geometry, lambda x: np.sin(np.pi * x), lambda x, on: on)
    data = dde.data.PDE(geometry, pde, edge, 16, 2, solution=lambda x: np.sin(np.pi * x), num_test=20)
    net = dde.nn.FNN([1, 20, 20, 1], "tanh", "Glorot uniform")
    net.forward = compile(net.forward)
    model = dde.Model(data, net)
    model.compile("adam", lr=0.001, metrics=["l2 relative error"], verbose=0)

    def train():
        history, state = model.train(iterations=4, display_every=2, verbose=0)
        return history.loss_train[-1], state.best_y

    return Program(train, [lambda: ()], state=[net], times=2, tolerance=1e-3, backward=False)
