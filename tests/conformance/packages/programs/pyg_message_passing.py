"""PyTorch Geometric: GAT, SAGE and an own MessagePassing layer, batch normalisation and global pooling over a batch
of graphs."""

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import BatchNorm, GATConv, MessagePassing, SAGEConv, global_mean_pool
from torch_geometric.utils import add_self_loops, degree

from ..program import Program


class Own(MessagePassing):
    def __init__(self, n, out):
        super().__init__(aggr="add")
        self.lin = torch.nn.Linear(n, out, bias=False)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gat = GATConv(8, 4, heads=2)
        self.sage = SAGEConv(8, 8)
        self.norm = BatchNorm(8)
        self.own = Own(8, 6)

    def forward(self, x, edge_index, batch):
        x = self.gat(x, edge_index).relu()
        x = self.norm(self.sage(x, edge_index)).relu()
        return global_mean_pool(self.own(x, edge_index), batch)


def graphs(sizes):
    made = [Data(x=torch.randn(n, 8), edge_index=torch.randint(0, n, (2, 3 * n))) for n in sizes]
    batch = Batch.from_data_list(made)
    return batch.x, batch.edge_index, batch.batch


def program(compile):
    model = Net()
    return Program(compile(model), [lambda: graphs([5, 7, 4]), lambda: graphs([6, 3])], state=[model])
