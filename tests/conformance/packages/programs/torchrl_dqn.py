"""TorchRL: Q-value actor, epsilon-greedy exploration and the DQN loss with a target network."""

import torch
from tensordict import TensorDict
from torch import nn
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from ..program import Program


def program(compile):
    actor = QValueActor(
        nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)), in_keys=["observation"], action_space="one-hot"
    )
    loss = DQNLoss(actor, action_space="one-hot", delay_value=True)
    loss.make_value_estimator(gamma=0.95)
    update = SoftUpdate(loss, eps=0.9)

    @compile
    def act(td):
        return actor(td)

    @compile
    def values(td):
        return loss(td)["loss"]

    def run(td):
        acted = act(td)
        result = values(acted)
        update.step()
        return result, acted["action"], acted["chosen_action_value"]

    def batch(n):
        td = TensorDict({"observation": torch.randn(n, 4)}, batch_size=[n])
        after = {"observation": torch.randn(n, 4), "reward": torch.randn(n, 1)}
        ends = torch.zeros(n, 1, dtype=torch.bool)
        td["next"] = TensorDict({**after, "done": ends, "terminated": ends.clone()}, batch_size=[n])
        return (td,)

    return Program(run, [lambda: batch(8), lambda: batch(5)], state=[loss])
