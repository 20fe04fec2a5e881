"""Stable-Baselines3: PPO.learn on a small environment of our own, its policy's methods compiled."""

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO

from ..program import Program


class Walk(gym.Env):
    """A walker on a line that is paid for being near zero."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 1.0, 0
        return self._seen(), {}

    def step(self, action):
        self.place += float(action[0]) * 0.3
        self.steps += 1
        return self._seen(), -abs(self.place), False, self.steps >= 20, {}

    def _seen(self):
        return np.array([self.place, self.steps / 20], dtype=np.float32)


def program(compile):
    model = PPO("MlpPolicy", Walk(), n_steps=32, batch_size=16, n_epochs=2, seed=0, device="cpu")
    model.policy.forward = compile(model.policy.forward)
    model.policy.evaluate_actions = compile(model.policy.evaluate_actions)
    model.policy.predict_values = compile(model.policy.predict_values)

    def learn():
        model.learn(total_timesteps=64, reset_num_timesteps=False)
        return model.num_timesteps, model.predict(np.zeros(2, dtype=np.float32), deterministic=True)[0]

    return Program(learn, [lambda: ()], state=[model.policy], times=2, tolerance=2e-3, backward=False)
