"""What tools do with compiled modules: copies, pickles, state dicts, many instances, memory, training, wrappers."""

import contextlib
import copy
import io
import pickle
import weakref

import pytest
import torch
from changing import Block, Net, World
from mode import COUNTED, SHARED_KEY
from support import assert_same
from torch import nn

import flambeau

pytestmark = SHARED_KEY


def traced(run):
    """Frames traced while `run()` ran."""
    before = flambeau.counters()["frames_traced"]
    run()
    return flambeau.counters()["frames_traced"] - before


def test_state_dicts_of_vision_models():
    from torchvision import models

    # RegNet and MaxViT compute with tensors when they are made.
    names = [n for n in models.list_models(models) if not n.startswith(("regnet", "maxvit", "vit_h"))]
    assert len(names) >= 40, len(names)
    log = []
    for name in names:
        with torch.device("meta"), contextlib.redirect_stdout(io.StringIO()):
            options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
            model = models.get_model(name, **options)
        log.clear()
        compiled = flambeau.compile(model)
        hooks = [
            model.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("before", prefix))),
            model.register_state_dict_post_hook(lambda m, state, prefix, meta: log.append(("after", len(state)))),
        ]
        plain, ours = model.state_dict(prefix="p."), compiled.state_dict(prefix="p.")
        assert log[:2] == log[2:] and len(log) == 4
        assert list(plain) == list(ours) and plain._metadata == ours._metadata, name
        assert all(plain[k] is not None and plain[k].shape == ours[k].shape for k in plain)
        for hook in hooks:
            hook.remove()
        assert [n for n, _ in compiled.named_modules()] == [n for n, _ in model.named_modules()]
        assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
        assert repr(compiled) == repr(model)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save"])
def test_copies_are_compiled_and_apart(how):
    x = torch.randn(3, 4)
    compiled = flambeau.compile(Net().eval(), backend="eager")
    compiled.block.register_forward_pre_hook(doubled)
    expected = compiled(x)
    match how:
        case "deepcopy":
            twin = copy.deepcopy(compiled)
        case "pickle":
            twin = pickle.loads(pickle.dumps(compiled))
        case _:
            file = io.BytesIO()
            torch.save(compiled, file)
            file.seek(0)
            twin = torch.load(file, weights_only=False)
    before = flambeau.counters()["graphs"]
    assert isinstance(twin, Net) and type(twin).__name__ == "Net"
    assert_same(twin(x), expected)
    assert not COUNTED or flambeau.counters()["graphs"] > before  # it is compiled, too
    with torch.no_grad():
        twin.first.weight.zero_()
        twin.block.scale = 5.0
    assert_same(compiled(x), expected)
    assert not torch.equal(twin(x), expected)


def doubled(module, args):
    """A hook that can be pickled."""
    return (args[0] * 2,)


def test_instances_share_a_compile():
    x = torch.randn(3, 4)
    blocks = [Block() for _ in range(50)]
    compiled = [flambeau.compile(block) for block in blocks]

    def calls():
        for block, mine in zip(blocks, compiled, strict=True):
            assert_same(mine(x), block(x))

    def through_one():
        for block in blocks:
            assert_same(called(block, x), block(x) + 1)

    called = flambeau.compile(lambda block, x: block(x) + 1)
    before = flambeau.counters()["recompiles"]
    assert [traced(calls), traced(calls)] == [1, 0] or not COUNTED
    assert [traced(through_one), traced(through_one)] == [1, 0] or not COUNTED
    assert flambeau.counters()["recompiles"] == before
    with torch.no_grad():
        blocks[7].linear.weight.mul_(2)
    blocks[8].scale = 4.0
    calls()
    through_one()


def test_models_and_functions_made_again_share_a_compile():
    x = torch.randn(3, 4)
    source = "def again(x):\n  return x.cos() * 7\n"
    source += "class Again(nn.Module):\n  def forward(self, x):\n    return x.sin() * 7\n"

    def models():
        for _ in range(5):
            model = nn.Sequential(Block(), nn.Tanh())
            assert_same(flambeau.compile(model)(x), model(x))

    def definitions():
        scope = {"nn": nn, "__name__": "again"}
        exec(compile(source, "<again>", "exec"), scope)
        assert_same(flambeau.compile(scope["again"])(x), x.cos() * 7)
        assert_same(flambeau.compile(scope["Again"]())(x), x.sin() * 7)
        assert_same(taking(scope["Again"](), x), x.sin() * 7)

    taking = flambeau.compile(lambda module, x: module(x))
    assert [traced(models), traced(models)] == [1, 0] or not COUNTED
    assert [traced(definitions)] + [traced(definitions) for _ in range(4)] == [3, 0, 0, 0, 0] or not COUNTED


def test_models_that_are_deleted_are_freed():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def one(grad):
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8))
        model[1].register_forward_pre_hook(doubled)
        compiled = flambeau.compile(model)
        with torch.set_grad_enabled(grad):
            result = compiled(x)
            if grad:
                result.sum().backward()
            compiled(x)
        return [weakref.ref(o) for o in (model, compiled, model[0], model[0].weight)]

    x, sizes = torch.randn(2, 512), []
    for number in range(100):
        assert [r() for r in one(number % 2 == 0)] == [None] * 4
        sizes.append(resident())
    # A model has 2 MiB of weights, and as much again in gradients.
    assert max(sizes[50:]) - sizes[20] < 16 << 20, sizes


class Small(nn.Module):
    """With convolutions, normalisation, dropout that drops nothing."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(36, 3)
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return self.head(self.drop(self.features(x).flatten(1)))


def test_training_loop():
    """Twenty steps: optimizer, scheduler, clipping, an average of the weights, evaluation between, a layer unfrozen."""

    def train(compiling):
        torch.manual_seed(0)
        model = Small()
        called = compiling(model)
        called.features[0].requires_grad_(False)
        optimizer = torch.optim.AdamW(called.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
        average = torch.optim.swa_utils.AveragedModel(model)
        losses = []
        for step in range(20):
            if step == 10:
                called.features[0].requires_grad_(True)
            x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))
            loss = nn.functional.cross_entropy(called(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(called.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            average.update_parameters(model)
            losses.append(loss.detach())
            if step % 5 == 4:
                called.eval()
                with torch.no_grad():
                    losses.append(called(x).sum())
                called.train()
        assert model.steps == 24
        return losses, called.state_dict(), average.state_dict()

    before = flambeau.counters()
    expected, seen = train(lambda model: model), train(flambeau.compile)
    assert_same(seen, expected, slack=100)
    after = flambeau.counters()
    assert after["graph_breaks"] == before["graph_breaks"] or not COUNTED
    assert after["eager_fallbacks"] == before["eager_fallbacks"]


def test_a_compiled_module_inside_of_others():
    x = torch.randn(3, 4)
    net = Net().eval()
    expected = net(x)
    net.block = flambeau.compile(net.block)
    assert list(net.state_dict()) == list(Net().state_dict())
    for called in (net, flambeau.compile(net)):
        assert_same(called(x), expected)
        handle = net.block.register_forward_hook(lambda m, args, out: out * 0)
        assert_same(called(x), net.last(torch.zeros(3, 4)))
        handle.remove()
        assert_same(called(x), expected)


def test_feature_extraction():
    from torchvision.models import feature_extraction as extraction

    torch.manual_seed(0)
    x, net = torch.randn(2, 1, 8, 8), Small().eval()
    net.__class__ = Plain
    compiled = flambeau.compile(net)
    assert extraction.get_graph_node_names(compiled) == extraction.get_graph_node_names(net)
    nodes = ["features.2", "head"]
    expected = extraction.create_feature_extractor(net, nodes)(x)
    assert_same(extraction.create_feature_extractor(compiled, nodes)(x), expected)
    assert_same(flambeau.compile(extraction.create_feature_extractor(net, nodes))(x), expected)


class Plain(Small):
    """Without the counter, which a symbolic trace would write to once."""

    def forward(self, x):
        return self.head(self.drop(self.features(x).flatten(1)))


def test_functional_calls():
    world = World(grad=False)
    net = Net().eval()
    compiled = flambeau.compile(net)
    params = {k: v.detach() * 2 for k, v in net.named_parameters()}
    for _ in range(2):
        x = world.x()
        assert_same(torch.func.functional_call(compiled, params, (x,)), torch.func.functional_call(net, params, (x,)))
        assert_same(compiled(x), net(x))
        sums = lambda called: lambda p: torch.func.functional_call(called, p, (x,)).sum()  # noqa: B023
        assert_same(torch.func.grad(sums(compiled))(params), torch.func.grad(sums(net))(params))


def test_distributed_wrapper(tmp_path):
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        net = Net()
        twin = copy.deepcopy(net)
        inside = nn.parallel.DistributedDataParallel(flambeau.compile(net))
        for _ in range(2):
            x = torch.randn(3, 4)
            inside(x).sum().backward()
            twin(x).sum().backward()
        for a, b in zip(net.parameters(), twin.parameters(), strict=True):
            assert_same(a.grad, b.grad)
    finally:
        distributed.destroy_process_group()


class Sliced(nn.Module):
    """Makes a list of modules at each call."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        return x


def test_modules_made_where_the_program_used_torch_compile(monkeypatch):
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))
    monkeypatch.setattr(nn.Module, "___has_generation_tag_patch", True, raising=False)
    monkeypatch.delattr(nn.Module, "___has_generation_tag_patch")
    install_generation_tagging_init()
    net, x = Sliced(), torch.ones(2, 4)
    before = flambeau.counters()["graph_breaks"]
    assert_same(flambeau.compile(net)(x), net(x))
    assert not COUNTED or flambeau.counters()["graph_breaks"] == before
