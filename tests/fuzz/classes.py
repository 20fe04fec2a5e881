"""Random classes and metaclasses with special methods and descriptors, and every kind of use of them and of what is built in."""

from __future__ import annotations

from .expressions import Expressions
from .scope import Scope

#: Bodies of methods of two operands. {m} is the method's name, `o` the other operand.
BINARY = [
    "return NotImplemented", "return self.k + 1", "SEEN.append('{m}'); return self", "SEEN.append('{m}'); return NotImplemented", "return super().{m}(o)",
    "self.k += 1; return self.k", "return type(self) is type(o)", "return (self.k, '{m}')", "raise TypeError('{m}')", "return o", "return GT + self.k", "flambeau.graph_break(); return 3", "return getattr(o, 'k', 2) > self.k",
]  # fmt: skip
UNARY = [
    "return self.k", "SEEN.append('{m}'); return 2", "return super().{m}()", "raise AttributeError('{m}')", "raise TypeError('{m}')", "self.k += 1; return self.k", "return self.k > 2", "return True", "return 0", "return '{m}'", "return None",
    "flambeau.graph_break(); return 1", "return -1",
]  # fmt: skip
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "matmul",
    "divmod",
)
COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
ONE = ("__neg__", "__abs__", "__invert__", "__pos__", "__int__", "__float__", "__index__", "__bool__", "__len__", "__repr__", "__str__", "__length_hint__", "__trunc__", "__floor__", "__complex__")  # fmt: skip
#: Other members. {n}: an attribute's name.
MEMBERS = [
    "def __call__(self, *a, **o):\n    return len(a) + len(o)", "def __call__(self, a=1):\n    SEEN.append('call')\n    return super().__call__(a)", "def __call__(self, *a):\n    SEEN.append(len(a))\n    return GT * 2",
    "def __iter__(self):\n    yield self.k\n    SEEN.append('iter')\n    yield 2", "def __iter__(self):\n    return iter([1, self.k])", "def __iter__(self):\n    return self", "def __iter__(self):\n    return 3", "__iter__ = None", "def __iter__(self):\n    SEEN.append('iter')\n    return super().__iter__()",
    "def __next__(self):\n    self.k += 1\n    if self.k > 9:\n        raise StopIteration\n    return self.k", "def __contains__(self, o):\n    SEEN.append('in')\n    return o == self.k", "__contains__ = None", "def __contains__(self, o):\n    return super().__contains__(o)",
    "def __getitem__(self, at):\n    SEEN.append(at)\n    if at == 3:\n        raise IndexError\n    return self.k", "def __getitem__(self, at):\n    return super().__getitem__(at)", "def __setitem__(self, at, v):\n    SEEN.append((at, v))", "def __delitem__(self, at):\n    SEEN.append(at)", "def __missing__(self, at):\n    return at",
    "def __reversed__(self):\n    return iter([self.k])", "def __getattr__(self, name):\n    if name == '{n}':\n        return 4\n    raise AttributeError(name)", "def __getattr__(self, name):\n    SEEN.append(name)\n    raise AttributeError(name)", "def __getattr__(self, name):\n    raise KeyError(name)",
    "def __getattribute__(self, name):\n    if name == '{n}':\n        raise AttributeError(name)\n    return super().__getattribute__(name)", "def __getattribute__(self, name):\n    if name == '{n}':\n        SEEN.append(name)\n        return 5\n    return object.__getattribute__(self, name)",
    "def __setattr__(self, name, v):\n    super().__setattr__(name, v)\n    if name == '{n}':\n        SEEN.append(name)", "def __delattr__(self, name):\n    SEEN.append(name)", "def __enter__(self):\n    return self\ndef __exit__(self, *error):\n    SEEN.append(len(error))\n    return True",
    "def __format__(self, form):\n    return form + 'f'", "def __dir__(self):\n    return ['x']", "def __round__(self, n=1):\n    return n", "def __pow__(self, o, m=None):\n    return (self.k, m)", "def __rpow__(self, o, m=None):\n    return 'rpow'", "def __copy__(self):\n    SEEN.append('copy')\n    return self",
    "def __deepcopy__(self, memo):\n    return 3", "def __class_getitem__(cls, at):\n    return cls.__name__, at", "def __init_subclass__(cls, **o):\n    SEEN.append(cls.__name__)\n    super().__init_subclass__(**o)", "def __set_name__(self, owner, name):\n    SEEN.append(name)", "__hash__ = None", "__eq__ = None", "__add__ = None", "__bool__ = lambda self: False",
    "def __get__(self, o, kind=None):\n    return self if o is None else 7", "def __set__(self, o, v):\n    SEEN.append(v)", "def __new__(cls, *a):\n    SEEN.append('new')\n    return super().__new__(cls)", "@property\ndef {n}(self):\n    SEEN.append('{n}')\n    return self.k", "@property\ndef {n}(self):\n    raise AttributeError('{n}')",
    "@property\ndef {n}(self):\n    return self.k\n@{n}.setter\ndef {n}(self, v):\n    SEEN.append(v)\n    self.k = v", "@functools.cached_property\ndef {n}(self):\n    SEEN.append('{n}')\n    return self.k", "@classmethod\ndef {n}(cls, *a):\n    return cls.__name__, len(a)", "@staticmethod\ndef {n}(*a):\n    return len(a)", "def {n}(self, *a):\n    return self.k, len(a)",
    "{n} = functools.partialmethod(lambda self, v=1, *a: (self.k, v, len(a)), 3)", "{n} = functools.partial(lambda *a: len(a), 3)", "{n} = 5", "{n} = Data()", "{n} = NonData()", "{n} = OnlySet()", "{n} = Refusing()", "{n} = Named()", "{n} = len", "{n} = lambda *a: len(a)", "{n} = GT", "{n} = [1, 2]", "{n}: int = 3", "{n} = operator.neg", "{n} = GB.step",
    "@property\ndef __class__(self):\n    return Box", "@property\ndef __dict__(self):\n    return {{'q': 1}}", "__slots__ = ()", "__doc__ = 'a text'", "__doc__ = property(lambda self: 'made')", "__call__ = staticmethod(lambda *a: len(a))", "__len__ = classmethod(lambda cls: 4)", "__len__ = property(lambda self: lambda: 3)", "__getitem__ = Data()", "__eq__ = NonData()", "__add__ = staticmethod(lambda *a: len(a))",
    "def __torch_function__(self, *a):\n    return 3", "__array_priority__ = 3", "def __del__(self):\n    pass", "def __reduce__(self):\n    return int, (3,)", "def __subclasses__(cls):\n    return [1]", "def mro(cls):\n    return super().mro()",
]  # fmt: skip
#: Members of metaclasses besides. `cls` is a class.
META = [
    "def __call__(cls, *a, **o):\n    SEEN.append(cls.__name__)\n    return super().__call__(*a, **o)", "def __instancecheck__(cls, o):\n    SEEN.append('instance')\n    return super().__instancecheck__(o)", "def __instancecheck__(cls, o):\n    return type(o) is int", "def __subclasscheck__(cls, o):\n    return o is int",
    "def __len__(cls):\n    return 3", "def __iter__(cls):\n    return iter([1, 2])", "def __contains__(cls, o):\n    return o == 2", "def __getitem__(cls, at):\n    return at, 'meta'", "def __bool__(cls):\n    return False", "def __eq__(cls, o):\n    SEEN.append('eq')\n    return cls is o\n__hash__ = type.__hash__", "def __hash__(cls):\n    return 3",
    "def __add__(cls, o):\n    return 'added'", "def __or__(cls, o):\n    return 'or'", "def __getattr__(cls, name):\n    if name.startswith('__'):\n        raise AttributeError(name)\n    return name", "def __getattribute__(cls, name):\n    if name == '{n}':\n        return 8\n    return super().__getattribute__(name)", "def __setattr__(cls, name, v):\n    SEEN.append(name)\n    super().__setattr__(name, v)",
    "@property\ndef {n}(cls):\n    return cls.__name__", "{n} = Data()", "{n} = NonData()", "{n} = OnlySet()", "{n} = 9", "def {n}(cls):\n    return cls.__name__", "def __repr__(cls):\n    return 'repr of ' + cls.__name__", "def __prepare__(name, bases, **o):\n    return {{'prepared': 1}}\n__prepare__ = staticmethod(__prepare__)", "@property\ndef __name__(cls):\n    return 'other'", "def __dir__(cls):\n    return ['m']",
    "def __init__(cls, name, bases, space, **o):\n    super().__init__(name, bases, space)\n    cls.inited = len(space) > 2", "def __new__(meta, name, bases, space, **o):\n    space['newed'] = name\n    return super().__new__(meta, name, bases, space)", "def mro(cls):\n    SEEN.append('mro')\n    return super().mro()",
]  # fmt: skip
BASES = ["", "", "", "(int)", "(list)", "(dict)", "(tuple)", "(set)", "(str)", "(float)", "(Box)", "(PropBox)", "(LoudBox)", "(Exception)", "(collections.OrderedDict)", "(collections.abc.Sized)", "(collections.abc.Mapping)", "(collections.UserList)", "(frozenset)", "(collections.deque)", "(collections.defaultdict)", "(torch.nn.Module)", "(types.SimpleNamespace)", "(threading_local)", "(Pair)", "(contextlib.ContextDecorator)", "(collections.abc.Hashable, collections.abc.Iterable)", "(collections.Counter)", "(object)", "(enum.Enum)", "(enum.IntEnum)", "(bytes)"]  # fmt: skip
NAMES = ["n0", "n1", "n2", "k", "t"]
#: Names to look for on all kinds of objects.
LOOKED = [*NAMES, *NAMES, "__call__", "__len__", "__iter__", "__hash__", "__eq__", "__dict__", "__class__", "__doc__", "__name__", "__qualname__", "__module__", "mro", "__mro__", "__bases__", "__subclasses__", "__getitem__", "__bool__", "__next__", "__contains__", "__self__", "__func__", "__wrapped__", "__code__", "__defaults__", "__get__", "__set__", "__delete__", "__add__", "__radd__", "__iadd__", "__slots__", "__weakref__", "__init__", "__new__", "__enter__", "__exit__", "__index__", "__float__", "__annotations__", "__abstractmethods__", "__class_getitem__", "__set_name__", "__init_subclass__", "__subclasshook__", "__reduce__", "__reduce_ex__", "__getattr__", "__getattribute__", "__setattr__", "__dir__", "__sizeof__", "__format__", "__text_signature__", "__origin__", "__path__", "__file__", "__loader__", "__all__", "__closure__", "__kwdefaults__", "__globals__", "__torch_function__", "__array__", "__copy__", "__deepcopy__", "__length_hint__", "__missing__", "__reversed__", "__index__", "keys", "items", "append", "shape", "forward", "training", "grad", "args", "func", "fget", "start", "zz", "_fields", "value", "name"]  # fmt: skip
#: Objects of all kinds besides the program's own.
ALL = ["len", "print", "int", "type", "object", "list", "dict", "GL", "GD", "GT", "GB", "NET", "PEEK", "NS", "Box", "Net", "Pair", "Pair(1, 2)", "torch", "math", "collections", "torch.add", "torch.nn.functional.relu", "GL.append", "GB.step", "Box.step", "GT.add", "torch.Tensor.add", "str.upper", "'q'.upper", "functools.partial(len, 'a')", "(lambda: 1)", "crc", "off", "traced", "property(len)", "Box.__init__", "GB.__init__", "object.__init__", "None", "...", "NotImplemented", "3", "2.5", "'q'", "b'q'", "True", "(1, 2)", "{{1, 2}}", "frozenset((1,))", "range(3)", "slice(1)", "iter([1])", "iter(())", "(v for v in GL)", "{{}}.keys()", "{{'a': 1}}.items()", "zip()", "map(len, ())", "enumerate(())", "reversed([1])", "memoryview(b'q')", "bytearray(b'q')", "1j", "torch.float32", "torch.device('cpu')", "GT.shape", "torch.nn.ReLU()", "torch.nn.Linear", "torch.nn.Parameter(GT)", "types.SimpleNamespace(a=1)", "collections.deque([1])", "collections.OrderedDict(a=1)", "collections.defaultdict(list)", "collections.Counter('aab')", "collections.abc.Sized", "Color", "Color.RED", "Record(1, [])", "Record", "types.MappingProxyType({{'a': 1}})", "vars(Box)", "re.compile('a')", "list[int]", "int | str", "super(Net, NET)", "Oops('a')", "Oops", "weakref.ref(GB)", "staticmethod(len)", "classmethod(len)", "Box.__dict__['step']", "int.__add__", "(3).__add__", "list.__len__", "[].__len__", "dict.fromkeys", "object.__new__", "type.__call__", "operator.itemgetter(0)", "operator.attrgetter('k')", "itertools.count()", "torch.Generator()", "datetime.date(2020, 1, 2)", "datetime.date", "decimal.Decimal(2)", "fractions.Fraction(1, 2)", "log", "lock", "sys", "types", "Halve", "math.pi", "contextlib.nullcontext()", "inspect.signature(crc)", "abc.ABC", "typing.Any", "typing.List[int]", "Partial", "HALF", "GB.__dict__", "PEEK.__class__", "x", "y", "b", "n"]  # fmt: skip
#: Uses: {o} {p} objects, {k} a class, {n} a name, {x} {y} instances of the program's classes or simple values, {op} an operator.
USES = [
    (6, "{x} {op} {y}"), (3, "{x} {compare} {y}"), (2, "{x} {compare} {i}"), (2, "{i} {op} {x}"), (2, "{x} {op} {i}"), (1, "{x} {op} {t}"), (1, "{t} {op} {x}"), (1, "{x} {op} GL"), (1, "[1] {op} {x}"), (1, "'q' {op} {x}"), (1, "(1,) {compare} {x}"), (1, "{o} {op} {p}"), (1, "{o} {compare} {p}"), (1, "{o} is {p}"),
    (1, "2 in {x}"), (1, "{x} in GL"), (1, "{x} in (1, {y})"), (1, "{x} in {{1: 2}}"), (1, "{x} in {y}"), (1, "2 in {o}"), (1, "not {x}"), (1, "not {o}"), (1, "bool({x})"), (1, "{x} and 1"), (1, "1 if {x} else 2"), (1, "1 if {o} else 2"), (2, "len({x})"), (1, "len({o})"), (1, "list({x})"), (1, "[*{x}]"), (1, "list({o})"), (1, "tuple({x})"), (1, "dict({x})"), (1, "dict({o})"), (1, "set({x})"), (1, "sum({x})"),
    (1, "next({x})"), (1, "next(iter({x}))"), (1, "hash({x}) == hash({x})"), (1, "hash({o}) is None"), (1, "type(hash({o}))"), (1, "{{{x}: 1}}[{x}]"), (1, "{{{x}, {y}}} == {{{x}}}"), (1, "repr({x})"), (1, "str({x})"), (1, "f'{{{x}}}'"), (1, "f'{{{x}!r:>9}}'"), (1, "format({x}, '3')"), (1, "'%s' % ({x},)"), (1, "abs({x})"), (1, "-{x}"), (1, "~{x}"), (1, "+{x}"), (1, "int({x})"), (1, "float({x})"), (1, "complex({x})"), (1, "[1, 2, 3][{x}]"), (1, "range({x})"), (1, "round({x})"), (1, "round({x}, 2)"), (1, "math.floor({x})"), (1, "math.sqrt({x})"), (1, "divmod({x}, {y})"), (1, "divmod({i}, {x})"),
    (1, "pow({x}, {y})"), (1, "pow({x}, {y}, 5)"), (1, "pow(2, {x}, 5)"), (1, "reversed({x})"), (1, "list(reversed({x}))"), (1, "sorted([{x}, {y}])"), (1, "max({x}, {y})"), (1, "min([{x}, {i}])"), (1, "{x}()"), (1, "{x}({i})"), (1, "{x}({i}, a=2)"), (1, "{x}[{i}]"), (1, "{x}['q']"), (1, "{x}[1:2]"), (1, "{k}[int]"), (1, "{k}[1]"), (1, "operator.setitem({x}, 1, 2)"), (1, "operator.delitem({x}, 1)"), (1, "operator.iadd({x}, {y})"), (1, "operator.index({x})"), (1, "operator.length_hint({x}, 5)"), (1, "operator.truth({x})"), (1, "operator.eq({x}, {y})"), (1, "operator.call({x})"),
    (3, "{x}.{n}"), (2, "{k}.{n}"), (1, "{x}.{n}()"), (1, "{x}.{n}(1)"), (1, "{k}.{n}()"), (1, "{k}.{n}({x})"), (1, "setattr({x}, '{n}', {i})"), (1, "setattr({k}, '{n}', {i})"), (1, "delattr({x}, '{n}')"), (3, "hasattr({x}, '{look}')"), (3, "hasattr({o}, '{look}')"), (2, "hasattr({k}, '{look}')"), (2, "kind(getattr({o}, '{look}', 1))"), (2, "kind(getattr({x}, '{look}', 1))"), (1, "kind(getattr({k}, '{look}', 1))"), (2, "kind({o}.{look})"), (1, "kind({x}.{look})"), (1, "kind({k}.{look})"), (1, "hasattr(type({o}), '{look}')"), (1, "hasattr(type({k}), '{look}')"), (1, "callable({o})"), (1, "callable({x})"), (1, "callable({k})"), (1, "'{look}' in dir({k})"), (1, "'{look}' in vars({k})"), (1, "'{look}' in {k}.__dict__"), (1, "sorted(vars({x}))"),
    (2, "isinstance({o}, {kind})"), (2, "isinstance({x}, {kind})"), (1, "isinstance({x}, {k})"), (1, "isinstance({o}, {k})"), (1, "isinstance({x}, ({kind}, {k}))"), (1, "isinstance({o}, {kind} | {kind})"), (1, "issubclass({k}, {kind})"), (1, "issubclass(type({o}), {kind})"), (1, "issubclass({kind}, {k})"), (1, "issubclass({kind}, {kind})"), (1, "type({x}) is {k}"), (1, "type({x}).__name__"), (1, "type({k}).__name__"), (1, "type({o}).__name__"), (1, "type({o}) is type({p})"), (1, "{x}.__class__ is {k}"), (1, "{k}.__mro__ == {k}.mro()"), (1, "len({k}.__mro__)"), (1, "{k}.__bases__[0].__name__"), (1, "{k}.__base__.__name__"), (1, "[s.__name__ for s in {k}.__subclasses__() if globals().get(s.__name__) is s]"), (1, "{k}.__name__, {k}.__qualname__, {k}.__module__"), (1, "{k}.__doc__"), (1, "{x}.__doc__"), (1, "{x}.__module__"), (1, "kind({o}.__doc__)"), (1, "{k} | None"), (1, "{k} == {k}"), (1, "{k} in {{{k}: 1}}"), (1, "{k} in [{k}]"), (1, "len({k})"), (1, "list({k})"), (1, "2 in {k}"), (1, "bool({k})"), (1, "repr({k})[:9]"), (1, "{k} + 1"),
    (2, "type({x}).{one}({x})"), (1, "{x}.{one}()"), (1, "{k}.{one}({x})"), (2, "type({x}).{two}({x}, {y})"), (1, "{x}.{two}({y})"), (1, "{x}.{two}({i})"), (1, "object.__eq__({x}, {y})"), (1, "type(object.__repr__({x}))"), (1, "type(object.__hash__({x}))"), (1, "int.{two}({i}, {x})"), (1, "int.{two}({i}, {i})"), (1, "({i}).{two}({x})"), (1, "list.{two}(GL[:2], [1])"), (1, "GL[:2].{two}([1, 2])"), (1, "list.__len__({x})"), (1, "dict.__len__({x})"), (1, "len.__call__([1])"), (1, "'q'.{two}('r')"), (1, "str.{two}('q', {x})"), (1, "(1.5).{two}({i})"), (1, "(1, 2).{two}((1,))"), (1, "{{1}}.{two}({{2}})"), (1, "{{'a': 1}}.{two}({{'b': 1}})"), (1, "type.{one}({k})"), (1, "type.__call__({k}, {i})"), (1, "type({k}).__call__({k}, {i})"), (1, "object.__getattribute__({x}, '{n}')"), (1, "type.__getattribute__({k}, '{n}')"), (1, "object.__setattr__({x}, '{n}', 2)"), (1, "type(super({k}, {x}).__repr__())"), (1, "super({k}, {x}).{n}"), (1, "super({k}, {x}).{two}({y})"), (1, "super({k}, {k}).{n}"), (1, "{x}.__init__()"), (1, "{x}.__init__({i})"), (1, "{k}.__new__({k})"), (1, "object.__new__({k})"), (1, "kind({o}.{one}())"), (1, "kind({o}.{two}({p}))"), (1, "kind(type({o}).{two}({o}, {p}))"),
    (2, "{k}({i})"), (1, "{k}()"), (1, "{k}([1, 2])"), (1, "{k}(a=1)"), (1, "{k}('ab')"), (1, "copy.copy({x})"), (1, "copy.deepcopy({x})"), (1, "kind(copy.copy({o}))"), (1, "pickle.dumps({x}) and 1"), (1, "weakref.ref({x})() is {x}"), (1, "inspect.isclass({x})"), (1, "callable(getattr({x}, '{n}', None))"), (1, "type('T', ({k},), {{'z': 1}})().z"), (1, "type('T', ({k},), {{}})"), (1, "functools.singledispatch(len)({x})"), (1, "Pair({x}, {y}) == Pair({y}, {x})"), (1, "[{x}] == [{y}]"), (1, "({x}, 1) < ({y}, 2)"), (1, "{{'a': {x}}} == {{'a': {y}}}"), (1, "[{x}, 1].index({y})"), (1, "[{x}, 1].count({y})"), (1, "(1, {x}).index({x})"), (1, "GL.index({x})"), (1, "{x} in collections.deque([1, {y}])"), (1, "{x} in range(3)"), (1, "dict(a={x})['a'] is {x}"), (1, "torch.add({t}, {x})"), (1, "{t} * {x}"), (1, "{t}[{x}]"), (1, "torch.tensor({x})"), (1, "torch.is_tensor({o})"), (1, "{t}.reshape({x}, -1)"), (1, "torch.ones({x})"), (1, "isinstance({t}, {k})"), (1, "torch.full((2,), {x})"),
    (1, "print({x})"), (1, "print({k})"), (1, "(flambeau.graph_break(), {x} == {y})[1]"), (1, "max([{x}, {y}], key=lambda v: 1)"), (1, "any([{x}])"), (1, "all([{x}, {y}])"), (1, "list(map({k}, [1, 2]))"), (1, "list(filter({k}, [1, 2]))"), (1, "[v for v in {x}]"), (1, "{{**{x}}}"), (1, "(lambda *a: len(a))(*{x})"), (1, "(lambda **a: sorted(a))(**{x})"), (1, "apply({x}, {i})"), (1, "apply({k}, {i})"), (1, "functools.partial({x}, 1)()"), (1, "functools.reduce({x}, [1, 2])"), (1, "sorted([3, 1], key={x})"), (1, "sorted([3, 1], key={k})"), (1, "list(zip({x}, GL))"), (1, "'-'.join({x})"), (1, "str.join('-', map(str, {x}))"), (1, "slice({x}).indices(3)"), (1, "isinstance({x}, collections.abc.Callable)"), (1, "isinstance({x}, typing.Hashable)"),
]  # fmt: skip
KINDS = ["int", "object", "type", "list", "dict", "tuple", "str", "bool", "float", "Box", "PropBox", "collections.abc.Sized", "collections.abc.Iterable", "collections.abc.Iterator", "collections.abc.Hashable", "collections.abc.Callable", "collections.abc.Container", "collections.abc.Mapping", "collections.abc.Sequence", "collections.abc.Set", "collections.abc.Generator", "collections.abc.Reversible", "collections.abc.MutableMapping", "numbers.Number", "numbers.Integral", "os.PathLike", "contextlib.AbstractContextManager", "torch.Tensor", "torch.nn.Module", "types.FunctionType", "types.MethodType", "types.ModuleType", "Exception", "enum.Enum", "typing.Hashable", "torch.nn.Parameter", "torch.FloatTensor", "types.BuiltinFunctionType", "Sizeable", "Hooked", "typing.SupportsInt", "torch.dtype", "types.GeneratorType", "torch.Size", "property"]  # fmt: skip
STATEMENTS = [
    "{a} = {x}\n{a} {op}= {y}\nSEEN.append(({a} is {x}, {a}))", "{a} = {x}\n{a} {op}= {i}\nSEEN.append({a})", "{iv} {op}= {x}", "{tv} {op}= {x}", "{l} {op}= {x}", "{x}.{n} = {i}", "{k}.{n} = {i}", "{x}.{n} += 1", "{k}.{n} = property(lambda self: 6)", "{k}.{n} = lambda self, *a: len(a)", "del {x}.{n}", "del {k}.{n}", "{x}[1] = 2", "{x}['q'] = {t}", "del {x}[1]", "{x}[1] += 1", "with {x} as {a}:\n    SEEN.append({a} is {x})\n    {tv} = {t}", "with {x}:\n    raise Oops('w')", "for {a} in {x}:\n    SEEN.append({a})\n    {tv} = {t}", "{a}, {b} = {x}", "{a}, *{b} = {x}\nSEEN.append({b})", "match {x}:\n    case {k}():\n        SEEN.append('class')\n    case _:\n        SEEN.append('none')", "match {x}:\n    case {k}({n}=1) | {k}({n}=2):\n        SEEN.append('attr')\n    case [{a}, *_]:\n        SEEN.append('seq')\n    case {{'q': {a}}}:\n        SEEN.append('map')", "while {x}:\n    {x}.k -= 1\n    if {x}.k < 1:\n        break", "if {x}:\n    {tv} = {t}\nelse:\n    {tv} = {tv} + 1", "if {x} == {y}:\n    {tv} = {t}", "{x}.__class__ = {k}", "{x}.__dict__['{n}'] = {i}", "{x}.__dict__.update({n}=3)", "type({x}).{n} = {i}", "raise {x}", "raise {k}", "try:\n    raise Oops(1)\nexcept {k}:\n    SEEN.append('caught')", "class {a}({k}):\n    n1 = {i}\n    def __len__(self):\n        return super().__len__() + 1\nSEEN.append({a}.n1)", "class {a}({k}, flag=1):\n    pass", "class {a}(metaclass={meta}):\n    n0 = {i}\nSEEN.append({a}.n0)", "class {a}:\n    n0 = {x}\n    n1 = {k}\nSEEN.append((kind({a}.n0), {a}().n1 is {k}))", "{a} = {x}.{n}\nSEEN.append(kind({a}))", "try:\n    SEEN.append({o}.{look} is None)\nexcept AttributeError:\n    SEEN.append('none')\n    {tv} = {t}", "if hasattr({o}, '{look}'):\n    {tv} = {t}\nelse:\n    {iv} = {i}", "{a} = {x}\n{a} {op}= 1\nSEEN.append({a} is {x})", "{k}.__len__ = lambda self: 2\nSEEN.append(len({x}))", "{k}.__bool__ = lambda self: False\nSEEN.append(not {x})", "{k}.__eq__ = lambda self, o: True\nSEEN.append({x} == 1)", "{k}.__getattr__ = lambda self, name: name\nSEEN.append({x}.zz)", "assert {x}, 'false'", "print(*{x})", "{a} = lambda self=1: {x}\n{k}.made = {a}\nSEEN.append({x}.made is {a})", "SEEN.append([{x}.{n}, {x}.{n}])", "def {a}(o):\n    return o.{n}\nSEEN.append([{a}({x}), {a}({y})])", "def {a}(o):\n    try:\n        return o.{look}\n    except AttributeError:\n        return 2\nSEEN.append(kind({a}({o})))", "collections.abc.Sized.register({k})\nSEEN.append(isinstance({x}, collections.abc.Sized))", "Hooked.register({k})\nSEEN.append(isinstance({x}, Hooked))", "@dataclasses.dataclass\nclass {a}:\n    p: int = {i}\n    q: object = None\nSEEN.append({a}(2) == {a}({i}))", "@functools.total_ordering\nclass {a}:\n    def __lt__(self, o):\n        return {cond}\nSEEN.append({a}() >= {a}())",
]  # fmt: skip
OPERATORS = ["+", "-", "*", "//", "/", "%", "**", "&", "|", "^", "<<", "@"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]


class Classes(Expressions):
    """`classes` defines some at module level, `use` uses them."""

    def __init__(self, seed: int, breaks: float | None = None):
        super().__init__(seed, breaks)
        self.kinds: list[str] = []  # names of the program's classes,
        self.metas: list[str] = ["type"]
        self.instances: list[str] = []  # and of their instances

    def member(self) -> str:
        """A random member of a class."""
        pick = self.random.random()
        if pick < 0.2:
            name = self.random.choice(ARITHMETIC)
            name = f"__{self.pick('', '', 'r', 'i')}{name}__" if name != "divmod" else f"__{self.pick('', 'r')}divmod__"
            return self.method_text(name, "self, o", BINARY)
        if pick < 0.3:
            return self.method_text(self.random.choice(COMPARED), "self, o", BINARY)
        if pick < 0.5:
            return self.method_text(self.random.choice(ONE), "self", UNARY)
        return self.random.choice(MEMBERS).replace("{n}", self.random.choice(NAMES[:3]))

    def method_text(self, name: str, parameters: str, bodies: list[str]) -> str:
        """A method in one line."""
        return f"def {name}({parameters}): {self.random.choice(bodies).replace('{m}', name)}"

    def members(self, count: int, more: list[str]) -> None:
        """Writes so many."""
        for _ in range(count):
            text = self.random.choice(more) if more and self.chance(0.6) else self.member()
            for line in (
                text.replace("{n}", self.random.choice(NAMES[:3])).replace("{{", "{").replace("}}", "}").split("\n")
            ):
                self.line(line)

    def guarded(self, write) -> None:
        """What Python refuses is left out: combinations of bases and members are drawn without a look at them."""
        with self.block("try:"):
            write()
        with self.block("except Exception as error:"):
            self.line("SEEN.append(said(error))")

    def classes(self) -> None:
        """Metaclasses, classes, subclasses of them, and instances; those that cannot be made are plain ones."""
        if self.chance(0.4):
            meta = self.fresh("Meta")
            self.line(f"class {meta}(type): pass")
            self.guarded(lambda: self.class_text(f"class {meta}(type):", META, 3))
            self.metas.append(meta)
        for _ in range(self.random.randint(1, 3)):
            name = self.fresh("K")
            base = f"({self.random.choice(self.kinds)})" if self.kinds and self.chance(0.5) else self.pick(*BASES)
            if self.metas[-1] != "type" and self.chance(0.5):
                base = f"{base[:-1]}, metaclass={self.metas[-1]})" if base else f"(metaclass={self.metas[-1]})"
            self.line(f"class {name}:\n    k = 2")
            self.guarded(lambda name=name, base=base: self.class_text(f"class {name}{base}:", [], 4))
            self.kinds.append(name)
            for _ in range(self.random.randint(1, 2)):
                made = self.fresh("q")
                self.line(f"{made} = instance({name}, {self.random.randrange(5)})")
                self.instances.append(made)

    def class_text(self, header: str, more: list[str], most: int) -> None:
        """A class with a counter `k` and some members."""
        with self.block(header):
            self.line("k = 2")
            self.members(self.random.randint(1, most), more)

    def use(self, scope: Scope) -> None:
        """A use of an object or class, seen with its exception."""
        chosen = self.random.choice
        if self.chance(0.3):
            text = chosen(STATEMENTS)
        else:
            text = f"SEEN.append({self.weighted(USES)})"
        simple = ["GB", "PEEK", "GL", "GD", "2", "2.5", "'q'", "(1, 2)", "Color.RED", "Pair(1, 2)", "True", "None"]
        kinds = [*self.kinds, *self.kinds, "Box", "Pair", "Color"]
        holes = {
            "x": lambda: chosen(self.instances) if self.instances and self.chance(0.8) else chosen(simple),
            "o": lambda: chosen([*ALL, *self.instances, *self.kinds]), "k": lambda: chosen(kinds),
            "n": lambda: chosen(NAMES), "look": lambda: chosen(LOOKED), "op": lambda: chosen(OPERATORS), "compare": lambda: chosen(COMPARISONS),
            "kind": lambda: chosen(KINDS), "one": lambda: chosen(ONE), "meta": lambda: chosen(self.metas), "a": lambda: self.fresh("z"), "b": lambda: self.fresh("z"),
            "two": lambda: chosen([*COMPARED, f"__{self.pick('', 'r', 'i')}{chosen(ARITHMETIC)}__", "__contains__", "__getitem__", "__getattribute__"]),
        }  # fmt: skip
        holes |= {"y": holes["x"], "p": holes["o"]}
        for hole, of, value in (("tv", "t", "torch.ones(3)"), ("iv", "i", "1"), ("l", "li", "[1]")):
            if f"{{{hole}}}" in text:
                if not scope.write[of]:
                    self.line(f"{scope.add(of, self.fresh('z'))} = {value}")
                name = chosen(scope.write[of])
                holes[hole] = lambda name=name: name
        for hole, make in holes.items():
            if f"{{{hole}}}" in text:
                text = text.replace(f"{{{hole}}}", make())
        with self.block("try:"):
            for line in self.fill(text, scope).split("\n"):
                self.line(line)
        with self.block("except Exception as error:"):
            self.line("SEEN.append(said(error))")
