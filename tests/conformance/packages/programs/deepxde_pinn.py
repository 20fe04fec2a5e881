"""DeepXDE: the residual of Burgers' equation of a network (its gradient helpers), boundary conditions, and the
losses."""

import deepxde as dde
import torch

from ..program import Program


def residual(x, y):
    dy_x = dde.grad.jacobian(y, x, i=0, j=0)
    dy_t = dde.grad.jacobian(y, x, i=0, j=1)
    dy_xx = dde.grad.hessian(y, x, i=0, j=0)
    return dy_t + y * dy_x - 0.01 / torch.pi * dy_xx


def program(compile):
    net = dde.nn.FNN([2] + [20] * 2 + [1], "tanh", "Glorot normal")
    net.requires_grad_()
    geometry = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 0.99))
    assert geometry.dim == 2

    @compile
    def loss(x, edge):
        dde.grad.clear()
        y = net(x)
        return residual(x, y).square().mean() + net(edge).square().mean()

    def points(n):
        return torch.rand(n, 2, requires_grad=True), torch.rand(4, 2)

    return Program(loss, [lambda: points(16), lambda: points(9)], state=[net], tolerance=1e-3)
