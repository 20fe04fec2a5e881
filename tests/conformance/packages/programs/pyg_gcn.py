"""PyTorch Geometric's introduction: a two-layer GCN, dropout, training step on a made graph."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from ..program import Program


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(16, 16)
        self.conv2 = GCNConv(16, 7)

    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        x = self.conv1(x, edge_index)
        x = F.relu(x)
        x = F.dropout(x, training=self.training)
        x = self.conv2(x, edge_index)
        return F.log_softmax(x, dim=1)


def graph(nodes, edges):
    index = torch.randint(0, nodes, (2, edges))
    return (Data(x=torch.randn(nodes, 16), edge_index=index, y=torch.randint(0, 7, (nodes,))),)


def program(compile):
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    @compile
    def train(data):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), data.y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(train, [lambda: graph(20, 60), lambda: graph(30, 80)], state=[model], tolerance=1e-3)
