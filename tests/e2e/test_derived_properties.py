"""Properties whose class is derived from `property`, as `torch.distributions` has them."""

import pytest
import torch
from torch.distributions import Beta, Normal, Uniform

import flambeau


class Noted(property):
    """Keeps a note beside the property."""

    def __init__(self, *parts, note=None):
        super().__init__(*parts)
        self.note = note


class Doubled(property):
    """Reads in its own way."""

    def __get__(self, owner, kind=None):
        return self if owner is None else 2 * super().__get__(owner, kind)


class Base:
    def __init__(self, x):
        self._x = x

    def _get(self):
        return self._x

    def _set(self, value):
        self._x = value * 10

    def _delete(self):
        self._x = None

    whole = Noted(_get, _set, _delete, note="whole")
    read_only = Noted(_get)
    write_only = Noted(None, _set)
    doubled = Doubled(_get)


class Hooked(Base):
    def __getattr__(self, name):
        return f"no {name}"

    @Noted
    def missing(self):
        raise AttributeError("not here")


def attempt(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def reads(x, obj):
    names = ["whole", "read_only", "write_only", "doubled", "missing"]
    found = [attempt(getattr, obj, name) for name in names]
    return [value + x if isinstance(value, torch.Tensor) else value for value in found]


def writes(x, obj):
    for name in ("whole", "read_only", "write_only", "doubled"):
        attempt(setattr, obj, name, obj._x + 1)
    done = attempt(setattr, obj, "read_only", 3)
    return obj.whole, done, x + 1


def deletes(x, obj):
    return attempt(delattr, obj, "whole"), attempt(delattr, obj, "read_only"), obj._x, x + 1


def through_the_class(x, obj):
    cls = type(obj)
    return cls.whole.note, cls.whole is Base.whole, isinstance(cls.whole, property), cls.doubled is cls.doubled, x + 1


def hides_the_dict(x, obj):
    obj.__dict__["read_only"] = "hidden"
    return obj.read_only, x + 1


@pytest.mark.parametrize(
    "program", [reads, writes, deletes, through_the_class, hides_the_dict], ids=lambda p: p.__name__
)
@pytest.mark.parametrize("cls", [Base, Hooked])
def test_as_eager(program, cls):
    compiled, x = flambeau.compile(program), torch.ones(2)
    for value in (x * 2, 3, 4):
        ours, theirs = cls(value), cls(value)
        assert str(compiled(x, ours)) == str(program(x, theirs))
        assert str(vars(ours)) == str(vars(theirs))


@pytest.mark.plain_only("counts frames")
def test_reads_and_writes_need_no_break():
    def run(x, obj):
        obj.whole = obj.read_only + 1
        return x * obj.whole

    compiled, x = flambeau.compile(run), torch.ones(2)
    assert compiled(x, Base(2)).tolist() == [30.0, 30.0]
    assert flambeau.counters()["graph_breaks"] == {}


def test_another_function_behind_the_same_name():
    def run(x, obj):
        return x + obj.value

    compiled, x = flambeau.compile(run), torch.zeros(1)
    for number in (1, 2, 1):
        made = type("Made", (), {"value": Noted(lambda self, number=number: number)})
        assert compiled(x, made()).item() == number


@pytest.mark.plain_only("counts frames")
def test_a_distribution_needs_no_break():
    def run(loc, x):
        normal = Normal(loc, x.exp(), validate_args=False)
        return normal.log_prob(x), normal.support is Normal.support, normal.entropy()

    args = torch.randn(3), torch.rand(3)
    assert str(flambeau.compile(run)(*args)) == str(run(*args))
    assert flambeau.counters()["graph_breaks"] == {}


@pytest.mark.parametrize("check", [True, False])
def test_distributions(check):
    """Their `support` is such a property; arguments and samples are checked against it."""

    def run(loc, low):
        normal, uniform, beta = Normal(loc, low.exp()), Uniform(low - 1, low + 2), Beta(low.exp(), low.exp() + 1)
        supports = [type(d.support) for d in (normal, uniform, beta)]
        return normal.log_prob(low), uniform.log_prob(low), beta.mean, supports

    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(check)
    try:
        compiled = flambeau.compile(run)
        for seed in range(2):
            torch.manual_seed(seed)
            args = torch.randn(3), torch.rand(3)
            assert str(compiled(*args)) == str(run(*args))
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)
