"""TorchRL: a probabilistic actor, a value operator and the clipped PPO loss on a TensorDict."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss

from ..program import Program


def program(compile):
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -1.0, "high": 1.0},
        return_log_prob=True,
    )
    value = ValueOperator(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)), in_keys=["observation"])
    loss = ClipPPOLoss(actor, value, clip_epsilon=0.2, entropy_bonus=True, entropy_coeff=1e-3)

    @compile
    def run(td):
        losses = loss(td)
        return losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]

    def batch(n):
        td = TensorDict({"observation": torch.randn(n, 4)}, batch_size=[n])
        with torch.no_grad():
            actor(td)
        td["advantage"] = torch.randn(n, 1)
        td["value_target"] = torch.randn(n, 1)
        return (td,)

    return Program(run, [lambda: batch(12), lambda: batch(7)], state=[actor, value])
