"""Small programs whose compiled frames read facts of every kind."""

from __future__ import annotations

from .world import Entry

_SOURCES = {
    "constants": '''
def f(x, n, s, flag):
    if flag and s == "a":
        return x * n
    return x + n
def arguments():
    return torch.ones(2, 3), 3, "a", True
''',
    "globals": '''
K = 3
TABLE = {"a": 1, "b": 2}
LIST = [1, 2]
T = torch.tensor([1.0, 2.0, 3.0])
def helper(x, k=2, *, scale=1.5):
    return x * k * scale + K
def f(x):
    y = helper(x) + TABLE["a"] + sum(LIST) + T
    for key, value in TABLE.items():
        y = y * value
    if "c" in TABLE:
        y = y - 1
    return y
def arguments():
    return (torch.ones(2, 3),)
''',
    "closure": '''
def make(k, t):
    total = 0
    def inner(x, j=1):
        nonlocal total
        total += k
        return x * t + total + j
    return inner
f = make(2, torch.tensor([1.0, 2.0, 3.0]))
def arguments():
    return (torch.ones(2, 3),)
''',
    "objects": '''
class Base:
    factor = 2
    def scale(self, x):
        return x * self.factor
class Thing(Base):
    def __init__(self):
        self.k, self.items, self.t = 3, [1, 2], torch.tensor([1.0, 2.0, 3.0])
    @property
    def double(self):
        return self.k * 2
    @staticmethod
    def still(x):
        return x + 1
    @classmethod
    def of(cls, x):
        return x * cls.factor
    def __len__(self):
        return len(self.items)
def f(x, o):
    y = o.scale(x) + o.double + len(o) + o.t
    y = o.still(y) + o.of(x)
    if o:
        y = y + getattr(o, "missing", 5)
    if hasattr(o, "other"):
        y = y * 2
    o.k = o.k + 1
    return y
def arguments():
    return torch.ones(2, 3), Thing()
''',
    "emptiness": '''
FULL, EMPTY = [1.5, 2.5], []
class Holder:
    def __init__(self):
        self.waiting = [torch.ones(3)]
def f(x, holder):
    y = x + 1 if FULL else x
    y = y * 3 if EMPTY else y
    return y - 2 if not holder.waiting else y
def arguments():
    return torch.ones(2, 3), Holder()
''',
    "slots": '''
class Slotted:
    __slots__ = ("k", "t", "empty")
    def __init__(self):
        self.k, self.t = 2, torch.ones(3)
def f(x, o):
    if hasattr(o, "empty"):
        return x
    return x * o.k + o.t
def arguments():
    return torch.ones(2, 3), Slotted()
''',
    "containers": '''
def f(x, items, table, names, pair):
    y = x
    for i, item in enumerate(items):
        y = y + i * item
    for name in table:
        y = y * len(name)
    if "a" in names:
        y = y - 1
    a, b = pair
    items.append(int(a))
    table["new"] = b
    return y + table.get("z", 1), items
def arguments():
    return torch.ones(2, 3), [1, 2], {"x": 1, "yy": 2}, {"a", "b"}, (1, 2.5)
''',
    "deques": '''
import collections
LAST = collections.deque([1.0, 2.0], maxlen=3)
def f(x, queue, log):
    y = x
    y = y * queue.popleft()
    queue.append(2)
    log.append(3)
    LAST.append(0.5)
    for k in LAST:
        y = y + k
    return y, LAST[0], LAST.maxlen
def arguments():
    return torch.ones(2, 3), collections.deque([1, 2]), collections.deque([7])
''',
    "identity": '''
def f(x, y, a, b):
    a.append(1)
    b.append(2)
    if x is y:
        return x + 1, a
    x.add_(1)
    y.mul_(2)
    return x + y, a, b
def arguments():
    return torch.ones(2, 3), torch.ones(2, 3), [], []
''',
    "views": '''
def f(x, y):
    z = x[0]
    z.add_(y.sum())
    y.mul_(2)
    return z, y.t(), x
def arguments():
    return torch.ones(2, 3), torch.ones(2, 3)
''',
    "gradients": '''
W = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
def f(x, y):
    if x.requires_grad and x.is_leaf:
        y = y + 1
    if x.grad is None:
        y = y * 2
    with torch.no_grad():
        s = x.sum()
    return (x * W).sum() + s * y, torch.is_grad_enabled()
def arguments():
    return torch.ones(2, 3, requires_grad=True), torch.ones(3)
''',
    "dtypes": '''
import math
def f(x, y):
    z = torch.relu(x) + torch.zeros(3) + math.sqrt(4)
    if x.dtype == torch.float32 and x.dim() == 2 and x.shape[0] > 1:
        z = z @ y
    return z.mean(), z.to(y.dtype), torch.full((2,), 1.5)
def arguments():
    return torch.ones(2, 3), torch.ones(3, 3)
''',
    "sizes": '''
def f(x, n):
    rows, columns = x.shape
    if rows * n > 4:
        return x.reshape(columns, rows) + n
    return x.sum(0) * n
def arguments():
    return torch.ones(2, 3), 3
''',
    "module": '''
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.act = torch.nn.ReLU()
        self.register_buffer("shift", torch.ones(3))
        self.register_buffer("nothing", None)
        self.scale = 2.0
    def forward(self, x):
        y = self.act(self.linear(x)) * self.scale + self.shift
        if self.training:
            y = y + 1
        if self.nothing is not None:
            y = y - self.nothing
        return y
torch.manual_seed(0)
f = Block()
def arguments():
    return (torch.ones(2, 3),)
''',
    "modules": '''
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(2)])
        self.layers[1].weight = self.layers[0].weight
        self.heads = torch.nn.ModuleDict({"a": torch.nn.Identity()})
        self.drop = torch.nn.Dropout(0.5)
        self.stack = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Tanh())
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for name, head in self.heads.items():
            x = head(x)
        return self.drop(self.stack(x))
torch.manual_seed(0)
net = Net()
def f(x):
    return net(x) + 1
def arguments():
    return (torch.ones(2, 3),)
''',
    "hooks": '''
def hook(module, args, out):
    return out * K
def before(module, args):
    return (args[0] + 1,)
K = 2
torch.manual_seed(0)
net = torch.nn.Linear(3, 3)
net.register_forward_hook(hook)
net.register_forward_pre_hook(before)
def f(x):
    return net(x)
def arguments():
    return (torch.ones(2, 3),)
''',
    "breaks": '''
K = 2
STATE = {"n": 0}
def helper(x, k):
    y = x * k
    flambeau.graph_break()
    STATE["n"] += K
    return y + STATE["n"]
def f(x, k, o):
    for i in range(2):
        x = helper(x, k + i)
    if x.sum() > 0:
        return x + o.v
    return x - K
def arguments():
    return torch.ones(2, 3), 2, types.SimpleNamespace(v=1)
''',
    "partials": '''
def scale(x, k, *, by=1):
    return x * k + by
P = functools.partial(scale, k=2, by=3)
class C:
    def m(self, x):
        return x + 1
M = C().m
def f(x, g):
    return P(x) + M(x) + g(x)
def arguments():
    return torch.ones(2, 3), lambda x: x * 2
''',
    "classes": '''
class A:
    k = 1
class B(A):
    pass
def f(x, o):
    y = x * B.k
    if isinstance(o, A) and type(o) is B:
        y = y + 2
    return y
def arguments():
    return torch.ones(2, 3), B()
''',
    "records": '''
Pair = collections.namedtuple("Pair", "a b")
@dataclasses.dataclass
class Data:
    t: torch.Tensor
    n: int = 2
def f(x):
    y = x * Pair(1, 2).b
    d = Data(y)
    return Pair(d.t + d.n, 3)
def arguments():
    return (torch.ones(2, 3),)
''',
    "enums": '''
class Color(enum.Enum):
    RED = 1
    BLUE = 2
def f(x, color):
    if color is Color.RED:
        x = x * 2
    return x, color.value
def arguments():
    return torch.ones(2, 3), Color.RED
''',
    "subclasses": '''
class Attributes(dict):
    __setattr__ = dict.__setitem__
    def __getattr__(self, name):
        return self[name]
class Noted(dict):
    def __setattr__(self, name, value):
        dict.__setattr__(self, name, value + 1)
class Loose(list):
    def __getattr__(self, name):
        return len(self)
class Small(int):
    def twice(self):
        return self * 2
def f(x, a, n, l, k):
    a.k = 2
    n.k = 3
    return x * a.k + n.k + l.size + k.twice() + k, sorted(a)
def arguments():
    return torch.ones(2, 3), Attributes(v=1), Noted(), Loose([1, 2]), Small(3)
''',
    "metaclass": '''
class Meta(type):
    factor = 3
    def made(cls):
        return cls.k + cls.factor
class Thing(metaclass=Meta):
    k = 1
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return self.n == other.n
    __hash__ = None
class Descriptor:
    def __get__(self, owner, kind):
        return owner.n + 1
    def __set__(self, owner, value):
        owner.__dict__["n"] = value
class Other(Thing):
    d = Descriptor()
def f(x, a, b):
    y = x * Thing.made()
    if a == b:
        y = y + 1
    a.d = 5
    return y * a.d + len({a.n, b.n})
def arguments():
    return torch.ones(2, 3), Other(1), Other(1)
''',
    "generators": '''
N = 3
def count(n):
    for i in range(n):
        yield i * N
def f(x, *rest, **options):
    y = x
    for i in count(3):
        y = y + i
    y = y + sum(r for r in rest)
    return y * options.get("k", 2)
def arguments():
    return torch.ones(2, 3), 1, 2
''',
    "exceptions": '''
TABLE = {"a": 1}
class Odd(Exception):
    pass
def get(o, k):
    try:
        return o[k]
    except KeyError:
        return 0
def f(x, n):
    try:
        if n > 3:
            raise Odd(n)
        y = x / TABLE["b"]
    except (KeyError, Odd) as error:
        y = x + len(error.args)
    return y + get(TABLE, "z")
def arguments():
    return torch.ones(2, 3), 2
''',
    "immutable": '''
import datetime, re
WORD = re.compile("(a+)b")
DAY = datetime.date(2024, 2, 3)
class Box:
    pass
BOX = Box()
BOX.span = datetime.timedelta(days=2)
def f(x, text):
    found = WORD.match(text)
    return x * (DAY + BOX.span).day + (len(found.group(1)) if found else 0)
def arguments():
    return torch.ones(2, 3), "aab"
''',
    "set_on_classes": '''
class A:
    seen = 1
class B(A):
    late = 2
def f(x, b):
    A.seen = b.seen + 1
    return x * B.seen + b.late
def arguments():
    return torch.ones(2, 3), B()
''',
    "registered": '''
import abc
class Meta(abc.ABCMeta):
    pass
class Shape(metaclass=Meta):
    pass
class Round(Shape):
    pass
class Other:
    pass
class Square:
    side = 3
Shape.register(Other)
def f(x, s):
    return x * 2 if isinstance(s, Shape) else x * s.side
def arguments():
    return torch.ones(2, 3), Square()
''',
    "patterns": '''
K = 2
class P:
    __match_args__ = ("a", "b")
    def __init__(self, a, b):
        self.a, self.b = a, b
class Items:
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return i
def shape(s):
    match s:
        case [a, b]:
            return a + b
        case {"k": v, **rest}:
            return v + len(rest)
        case _:
            return 5
def f(x, p, d, s):
    match p:
        case P(1, b=b):
            x = x * b
        case P(a):
            x = x - a
        case int(n):
            x = x + n + K
    return x * shape(d) + shape(s) + shape(Items())
def arguments():
    return torch.ones(2, 3), P(1, 3), {"k": 2, "z": 1}, [3, 4]
''',
    "kept": '''
FIRST, SECOND = contextvars.ContextVar("first"), contextvars.ContextVar("second", default=3)
FIRST.set(2)
SET, NAMES = {9, 1, 4}, {"b", "a", "c"}
class Key:
    pass
KEY = Key()
@functools.lru_cache
def found(n, key=None, word=1):
    return [n, word]
found(1), found("a"), found(2, KEY, word=(1, 2))
def f(x, n):
    y = x * found(n)[0] + found(2, KEY, word=(1, 2))[0] + len(found("a"))
    for i in SET:
        y = y * 2 - i
    for name in NAMES:
        y = y * 3 + ord(name)
    for i in {17, 1, 9, 33}:
        y = y * 2 - i
    return y * FIRST.get() + SECOND.get(5) + SECOND.get() + hash(n)
def arguments():
    return torch.ones(2, 3, dtype=torch.float64), 1
''',
    "stood_for": '''
LIST = [3, 1, 2]
def small(n):
    return n < 3
def f(x, n):
    heap = list(LIST)
    heapq.heapify(heap)
    heapq.heappush(heap, n)
    for i in itertools.takewhile(small, itertools.chain(LIST[1:], heap)):
        x = x * 2 + i
    for i, _ in zip(itertools.cycle(LIST), range(5)):
        x = x * 2 - i
    return x + bisect.bisect([1, 2, 3], n), heap
def arguments():
    return torch.ones(2, 3), 2
''',
}  # fmt: skip

ENTRIES = [
    Entry(
        name, "import bisect, collections, contextvars, dataclasses, enum, functools, heapq, itertools, types\n" + text
    )
    for name, text in _SOURCES.items()
]
