"""Stable-Baselines3: a PPO policy's actions and values, and its loss, compiled; A2C's and PPO's networks are the
same."""

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3.common.policies import ActorCriticPolicy

from ..program import Program


def program(compile):
    observations = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
    policy = ActorCriticPolicy(observations, gym.spaces.Discrete(3), lambda _: 3e-4, net_arch=[32, 32])

    @compile
    def act(obs):
        return policy(obs)

    @compile
    def loss(obs, actions, old, advantages, returns):
        values, log_prob, entropy = policy.evaluate_actions(obs, actions)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_prob - old)
        clipped = torch.min(advantages * ratio, advantages * torch.clamp(ratio, 0.8, 1.2)).mean()
        return -clipped + 0.5 * F.mse_loss(returns, values.flatten()) - 0.01 * entropy.mean()

    def both(obs):
        with torch.no_grad():
            actions, values, log_prob = act(obs)
        n = len(obs)
        return actions, values, loss(obs, actions, log_prob, torch.randn(n), torch.randn(n))

    inputs = [lambda: (torch.rand(16, 6) * 2 - 1,), lambda: (torch.rand(5, 6) * 2 - 1,)]
    return Program(both, inputs, state=[policy])
