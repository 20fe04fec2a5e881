"""What a function changes of one argument and reads of another, compiled with two objects and then called with one, and
the other way round. Nothing but their being one object tells the calls apart."""

import collections
import threading
import types

import pytest
import torch

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore:flambeau")


class Plain:
    pass


class ListOfOwn(list):
    pass


class DictOfOwn(dict):
    pass


class TupleOfOwn(tuple):
    pass


class Slots:
    __slots__ = ("x", "y")

    def __init__(self):
        self.x = 0


def plain_with_attributes():
    made = Plain()
    made.x, made.y = 0, 1
    return made


def function():
    def own():
        return 1

    return own


def function_with_attributes():
    made = function()
    made.y = 1
    return made


def new_class():
    class Named:
        x = 0

    return Named


def closures():
    n = 0

    def write():
        nonlocal n
        n += 1

    def read():
        return n

    return write, read


def tensor():
    return torch.ones(2)


def leaf():
    made = torch.ones(2, requires_grad=True)
    made.grad = torch.ones(2)
    return made


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(2, 2)


def exception():
    return ValueError(1)


def namespace():
    return types.SimpleNamespace(x=1)


def counts():
    return collections.defaultdict(int)


def letters():
    return collections.Counter("ab")


def numbers():
    return iter([1, 2, 3])


def sets_attribute(p, q, a):
    p.x = 4
    return a * getattr(q, "x", 1)


def looks_for_attribute(p, q, a):
    p.x = 4
    return a * 3 if hasattr(q, "x") else a


def reads_attributes_as_dict(p, q, a):
    p.x = 4
    return a * vars(q).get("x", 1)


def counts_attributes(p, q, a):
    p.z = 4
    return a * len(vars(q))


def deletes_attribute(p, q, a):
    del p.x
    return a * getattr(q, "x", 7)


def calls_closures(p, q, a):
    p[0]()
    return a * q[1]()


def writes_both_closures(p, q, a):
    p[0]()
    q[0]()
    return a * q[1]()


def writes_slot(p, q, a):
    p.x = p.x + 1
    return a * q.x


def deletes_slot(p, q, a):
    del p.x
    return a * 2 if hasattr(q, "x") else a


def stores_item(p, q, a):
    p["k"] = 3
    return a * q.get("k", 1)


def counts_item(p, q, a):
    p["a"] += 1
    return a * q["a"]


def sets_factory(p, q, a):
    p.default_factory = lambda: 5
    return a * q["k"]


def grow(p):
    if isinstance(p, list):
        p.append(1)
    elif isinstance(p, set):
        p.add(1)
    else:
        p["k"] = 3


def takes_length(p, q, a):
    grow(p)
    return a * len(q)


def asks_for_truth(p, q, a):
    grow(p)
    return a * 2 if q else a


def sets_what_a_function_is(p, q, a):
    p.__name__, p.__doc__, p.__defaults__ = "xyz", "x", (1,)
    return a * len(q.__name__), q.__doc__, q.__defaults__


def requires_grad(p, q, a):
    p.requires_grad = True
    return a * 2 if q.requires_grad else a


def drops_grad(p, q, a):
    p.grad = None
    return a * 2 if q.grad is None else a


def sets_arguments(p, q, a):
    p.args = (1, 2, 3)
    return a * len(q.args)


def switches_mode(p, q, a):
    p.train(False)
    return a * 2 if q.training else a


def adds_module(p, q, a):
    p.extra = torch.nn.Linear(2, 2)
    return a * len(list(q.children()))


def replaces_parameter(p, q, a):
    p.weight = torch.nn.Parameter(torch.zeros(2, 2))
    return q(a).detach()


def draws(p, q, a):
    next(p)
    return a * next(q)


def reads_class(p, q, a):
    p.x = 3
    return a * q.x + q().x


WITH_DICT = (function_with_attributes, ListOfOwn, DictOfOwn, Plain, plain_with_attributes, linear)
WITH_ATTRIBUTES = (*WITH_DICT, function, tensor, TupleOfOwn, exception, new_class)
DICTS = (dict, DictOfOwn, collections.OrderedDict)
CONTAINERS = (*DICTS, list, set, ListOfOwn)

PROGRAMS = {
    sets_attribute: (*WITH_ATTRIBUTES, namespace, threading.local),
    looks_for_attribute: WITH_ATTRIBUTES,
    reads_attributes_as_dict: WITH_DICT,
    counts_attributes: WITH_DICT,
    deletes_attribute: (plain_with_attributes,),
    calls_closures: (closures,),
    writes_both_closures: (closures,),
    writes_slot: (Slots,),
    deletes_slot: (Slots,),
    stores_item: DICTS,
    counts_item: (letters, counts),
    sets_factory: (counts,),
    takes_length: CONTAINERS,
    asks_for_truth: CONTAINERS,
    sets_what_a_function_is: (function,),
    requires_grad: (tensor,),
    drops_grad: (leaf,),
    sets_arguments: (exception,),
    switches_mode: (linear,),
    adds_module: (linear,),
    replaces_parameter: (linear,),
    draws: (numbers,),
    reads_class: (new_class,),
}
CASES = [(program, make) for program, makers in PROGRAMS.items() for make in makers]


def outcome(function, args):
    try:
        return function(*args, torch.ones(2))
    except Exception as error:
        return type(error).__name__, str(error)


def agree(program, arguments):
    """`arguments(one)` makes both; `one`: they are one object, or share what is changed."""
    for first in (False, True):
        compiled = flambeau.compile(program)
        for one in (first, first, not first, first, not first):
            got, expected = outcome(compiled, arguments(one)), outcome(program, arguments(one))
            if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
                assert torch.equal(got, expected), one
            else:
                assert str(got) == str(expected), one


@pytest.mark.parametrize(("program", "make"), CASES, ids=lambda value: value.__name__)
def test_one_object_instead_of_two(program, make):
    def arguments(one):
        p = make()
        return p, p if one else make()

    agree(program, arguments)


@pytest.mark.parametrize("make", WITH_DICT, ids=lambda value: value.__name__)
@pytest.mark.parametrize("of_object", [True, False])
def test_an_object_and_its_attributes(make, of_object):
    def by_object(p, q, a):
        p.x = 4
        return a * q.get("x", 1)

    def by_dict(p, q, a):
        q["x"] = 4
        return a * getattr(p, "x", 1)

    def arguments(one):
        p = make()
        return p, vars(p) if one else {}

    agree(by_object if of_object else by_dict, arguments)


def test_objects_that_share_their_attributes():
    def arguments(one):
        p, q = Plain(), Plain()
        p.__dict__ = {"x": 1}
        q.__dict__ = p.__dict__ if one else {"x": 1}
        return p, q

    agree(sets_attribute, arguments)


class_attributes = [lambda q: q.x, lambda q: q().x, lambda q: getattr(q, "x", 9)]


@pytest.mark.parametrize("read", [*class_attributes, lambda q: vars(q).get("x", 9)])
@pytest.mark.parametrize("derived", [False, True])
def test_a_class_and_its_bases(read, derived):
    def program(p, q, a):
        p.x = 3
        return a * read(q)

    def arguments(one):
        p, other = new_class(), new_class()
        base = p if one else other
        return p, type("Derived", (base,), {}) if derived else base

    agree(program, arguments)


LEVEL = 1


def test_a_namespace_given_as_argument():
    def program(q, a):
        q["LEVEL"] = 4
        return a * LEVEL

    def call(function, own):
        global LEVEL
        LEVEL = 1
        result = function(globals() if own else {}, torch.ones(2))
        after, LEVEL = LEVEL, 1
        return result.tolist(), after

    compiled = flambeau.compile(program)
    for own in (False, True, False, True):
        assert call(compiled, own) == call(program, own)
