"""Each kind of `torch.nn`'s modules, in training and inference: as eager computes it, and whole."""

import copy

import pytest
import torch
from mode import COUNTED
from support import assert_same
from torch import nn

import flambeau

torch.manual_seed(0)
ROWS, LINES = torch.randn(2, 16), torch.randn(2, 4, 16)
IMAGES, VOLUMES = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 4, 8, 8)
CLASSES, SCORES = torch.tensor([1, 2]), torch.randn(10, 2, 5).log_softmax(2)
POOLED, PLACES = nn.functional.max_pool2d(IMAGES, 2, return_indices=True)
MODULES = [
    (nn.Linear(16, 8), ROWS), (nn.Bilinear(16, 16, 4), ROWS, ROWS), (nn.Conv1d(4, 8, 3), LINES),
    (nn.Conv2d(4, 8, 3, padding="same"), IMAGES), (nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular"), IMAGES),
    (nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"), IMAGES), (nn.Conv3d(4, 8, 3), VOLUMES),
    (nn.ConvTranspose1d(4, 8, 3), LINES), (nn.ConvTranspose2d(4, 8, 3, 2, output_padding=1), IMAGES),
    (nn.ConvTranspose3d(4, 8, 3), VOLUMES), (nn.BatchNorm1d(4), LINES), (nn.BatchNorm2d(4), IMAGES),
    (nn.BatchNorm3d(4), VOLUMES), (nn.BatchNorm2d(4, track_running_stats=False), IMAGES),
    (nn.InstanceNorm1d(4), LINES), (nn.InstanceNorm1d(2), ROWS),
    (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGES),
    (nn.InstanceNorm3d(4, affine=True), VOLUMES), (nn.GroupNorm(2, 4), IMAGES), (nn.LayerNorm(16), ROWS),
    (nn.RMSNorm(16), ROWS), (nn.LocalResponseNorm(2), IMAGES), (nn.MaxPool1d(2), LINES),
    (nn.MaxPool2d(2, return_indices=True), IMAGES), (nn.MaxPool3d(2), VOLUMES), (nn.AvgPool1d(2), LINES),
    (nn.AvgPool2d(2), IMAGES), (nn.AvgPool3d(2), VOLUMES), (nn.AdaptiveAvgPool1d(3), LINES),
    (nn.AdaptiveMaxPool2d(3), IMAGES), (nn.AdaptiveAvgPool2d((None, 3)), IMAGES), (nn.AdaptiveAvgPool3d(2), VOLUMES),
    (nn.LPPool2d(2, 2), IMAGES), (nn.FractionalMaxPool2d(2, output_ratio=0.5), IMAGES),
    (nn.MaxUnpool2d(2), POOLED, PLACES), (nn.ReflectionPad2d(1), IMAGES), (nn.ReplicationPad3d(1), VOLUMES),
    (nn.ZeroPad2d(1), IMAGES), (nn.ConstantPad1d(1, 2.0), LINES), (nn.CircularPad2d(1), IMAGES),
    *[(kind(), ROWS) for kind in (
        nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.PReLU,
        nn.ReLU6, nn.RReLU, nn.SELU, nn.CELU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink,
        nn.Softsign, nn.Tanhshrink, nn.GLU, nn.Identity, nn.Dropout, nn.AlphaDropout,
    )],
    (nn.GELU("tanh"), ROWS), (nn.Threshold(0.1, 2), ROWS), (nn.Softmin(1), ROWS), (nn.Softmax(1), ROWS),
    (nn.LogSoftmax(1), ROWS), (nn.Softmax2d(), IMAGES), (nn.PReLU(4), IMAGES), (nn.Dropout2d(), IMAGES),
    (nn.FeatureAlphaDropout(), IMAGES), (nn.MultiheadAttention(16, 4, batch_first=True), LINES, LINES, LINES),
    (nn.MultiheadAttention(16, 4), LINES, LINES, LINES),
    (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), LINES), (nn.TransformerEncoderLayer(16, 4, 32), LINES),
    (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2), LINES),
    (nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), LINES, LINES),
    (nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), 2), LINES, LINES),
    (nn.Transformer(16, 4, 1, 1, 32, batch_first=True), LINES, LINES), (nn.RNN(16, 8, batch_first=True), LINES),
    (nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True), LINES), (nn.LSTM(16, 8, proj_size=4), LINES),
    (nn.GRU(16, 8), LINES), (nn.RNNCell(16, 8), ROWS), (nn.LSTMCell(16, 8), ROWS), (nn.GRUCell(16, 8), ROWS),
    (nn.Embedding(10, 4, padding_idx=0), CLASSES), (nn.EmbeddingBag(10, 4), CLASSES[None]),
    (nn.CosineSimilarity(), ROWS, ROWS), (nn.PairwiseDistance(), ROWS, ROWS * 2), (nn.PixelShuffle(2), IMAGES),
    (nn.PixelUnshuffle(2), IMAGES), (nn.ChannelShuffle(2), IMAGES), (nn.Flatten(), IMAGES),
    (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES), (nn.Upsample(size=12, mode="bicubic"), IMAGES),
    (nn.Upsample(scale_factor=2), VOLUMES), (nn.Fold((4, 4), 2), torch.randn(2, 8, 9)), (nn.Unfold(2), IMAGES),
    (nn.Unflatten(1, (2, 2)), IMAGES), (nn.L1Loss(), ROWS, ROWS * 2), (nn.MSELoss(reduction="none"), ROWS, ROWS * 2),
    (nn.CrossEntropyLoss(label_smoothing=0.1), ROWS, CLASSES), (nn.NLLLoss(), ROWS.log_softmax(1), CLASSES),
    (nn.CTCLoss(), SCORES, torch.tensor([[1, 2, 3], [2, 1, 4]]), torch.tensor([10, 9]), torch.tensor([3, 2])),
    (nn.PoissonNLLLoss(), ROWS, ROWS.abs()), (nn.GaussianNLLLoss(), ROWS, ROWS * 2, ROWS.abs()),
    (nn.BCELoss(), ROWS.sigmoid(), ROWS.sigmoid()),
    (nn.KLDivLoss(reduction="batchmean"), ROWS.log_softmax(1), ROWS.softmax(1)), (nn.HuberLoss(), ROWS, ROWS * 2),
    (nn.BCEWithLogitsLoss(pos_weight=torch.ones(16)), ROWS, ROWS.sigmoid()), (nn.SmoothL1Loss(), ROWS, ROWS * 2),
    (nn.MarginRankingLoss(), ROWS, ROWS * 2, ROWS.sign()), (nn.HingeEmbeddingLoss(), ROWS, ROWS.sign()),
    (nn.MultiMarginLoss(), ROWS, CLASSES), (nn.MultiLabelMarginLoss(), ROWS, torch.arange(32).view(2, 16) % 7),
    (nn.SoftMarginLoss(), ROWS, ROWS.sign()), (nn.MultiLabelSoftMarginLoss(), ROWS, ROWS.sigmoid()),
    (nn.CosineEmbeddingLoss(), ROWS, ROWS * 2, torch.tensor([1, -1])),
    (nn.TripletMarginLoss(), ROWS, ROWS * 2, ROWS * 3),
    (nn.TripletMarginWithDistanceLoss(), ROWS, ROWS * 2, ROWS * 3),
]  # fmt: skip
SWITCHES = {
    "trains": torch.enable_grad,
    "evaluates": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("case", MODULES, ids=lambda case: type(case[0]).__name__)
def test_modules(case, switch):
    module, *args = case
    found = []
    with SWITCHES[switch]():
        twin = copy.deepcopy(module).train(switch == "trains")
        for call in (copy.deepcopy(twin), flambeau.compile(twin)):
            torch.manual_seed(1)
            made = [call(*args) for _ in range(2)]
            found.append((made, list(call.buffers()), torch.rand(1)))
    assert_same(found[1], found[0], slack=4)
    counters = flambeau.counters()
    for count in ("graph_breaks", "eager_graph_reasons", "eager_fallbacks"):
        assert not COUNTED or not counters[count], counters[count]
