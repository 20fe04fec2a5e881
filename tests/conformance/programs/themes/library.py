"""The standard library in traces: itertools, functools, operator, collections, copy, and more."""

import bisect
import collections
import copy
import decimal
import fractions
import functools
import heapq
import itertools
import operator
import statistics
import string
import struct

import torch

from ..program import Made, ones, program


@program("https://github.com/pytorch/pytorch/issues/102879")
def chain_of_parameters():
    model = torch.nn.BatchNorm1d(2)

    def f(x):
        both = itertools.chain(model.parameters(), model.buffers())
        first = next(both)
        return x * first, [t.dtype for t in both], list(itertools.chain.from_iterable([[1], "ab"]))

    return Made(f, [(ones(3, 2),), (ones(2, 2),)])


@program("https://github.com/pytorch/pytorch/issues/107682")
def accumulate():
    def f(x, sizes):
        ends = [0] + list(itertools.accumulate(sizes))
        parts = [x[a:b].sum() for a, b in itertools.pairwise(ends)]
        return parts, list(itertools.accumulate([x, x], torch.mul)), list(itertools.accumulate(sizes, max, initial=2))

    return Made(f, [(ones(6), [1, 2, 3]), (ones(6), [3, 3])])


@program("https://github.com/pytorch/pytorch/issues/133879")
def infinite_iterators():
    def f(x):
        total = x
        for n, scale in zip(itertools.count(1, 2), itertools.cycle([1, -1])):
            if n > 7:
                break
            total = total + n * scale
        return total, list(zip(range(3), itertools.repeat("a"))), list(itertools.islice(itertools.count(0.5), 1, 4))

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/133879")
def groupby_and_takewhile():
    def f(x, names):
        groups = {k: len(list(g)) for k, g in itertools.groupby(sorted(names, key=len), key=len)}
        head = list(itertools.takewhile(lambda n: len(n) < 3, names))
        tail = list(itertools.dropwhile(lambda n: len(n) < 3, names))
        return x * len(groups), groups, head, tail, list(itertools.filterfalse(str.isupper, names))

    return Made(f, [(ones(3), ["a", "bb", "ccc", "D"]), (ones(3), ["EE", "e"])])


@program("https://github.com/pytorch/pytorch/issues/133879")
def product_and_combinations():
    def f(x, n):
        total = x
        for i, j in itertools.product(range(n), repeat=2):
            total = total + i * j
        pairs = list(itertools.combinations("abc", 2)), list(itertools.permutations([1, 2]))
        return total, pairs, list(itertools.combinations_with_replacement([x, n], 2))[1][1]

    return Made(f, [(ones(3), 2), (ones(3), 3)])


@program("https://github.com/pytorch/pytorch/issues/133879")
def tee_zip_longest_starmap():
    def f(x, items):
        a, b = itertools.tee(items)
        next(b)
        longest = list(itertools.zip_longest(a, b, fillvalue=0))
        powers = list(itertools.starmap(pow, [(2, 3), (3, 2)]))
        return x + sum(powers), longest, list(itertools.compress("abc", [1, 0, 1]))

    return Made(f, [(ones(3), [1, 2, 3]), (ones(3), [4, 5])])


@program("https://github.com/pytorch/pytorch/issues/146598")
def cache_with_side_effect():
    calls = []

    @functools.cache
    def cached(n):
        calls.append(n)
        return n * 2

    def f(x, n):
        return x * cached(n) + cached(n), len(calls)

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 1)], look=lambda *_: (list(calls), cached.cache_info()))


@program("https://github.com/pytorch/pytorch/issues/155841")
def lru_cache_on_a_method():
    class Foo:
        def __init__(self, n):
            self.n = n

        @functools.lru_cache(maxsize=2)
        def add(self, value):
            self.n += value
            return self.n

    def f(x, foo, value):
        return x + foo.add(value), foo.n, Foo.add.cache_parameters()["maxsize"]

    foo = Foo(4)
    return Made(f, [(ones(3), foo, 3), (ones(3), foo, 3), (ones(3), Foo(1), 2)], state=foo)


@program("https://github.com/pytorch/pytorch/issues/155841")
def cached_property():
    class Mask:
        built = 0

        def __init__(self, n):
            self.n = n

        @functools.cached_property
        def matrix(self):
            type(self).built += 1
            return torch.ones(self.n, self.n).tril()

    def f(x, mask):
        return x @ mask.matrix, mask.matrix is mask.matrix, "matrix" in mask.__dict__

    mask = Mask(2)
    return Made(f, [(ones(2, 2), mask), (ones(2, 2), mask), (ones(2, 2), Mask(2))], look=lambda *_: Mask.built)


@program("https://github.com/pytorch/pytorch/issues/146598")
def cached_tensor_is_the_same_object():
    @functools.lru_cache(maxsize=None)
    def table(n):
        return torch.arange(n)

    def f(x):
        t = table(x.shape[0])
        return x + t, t is table(x.shape[0])

    return Made(f, [(ones(3),), (ones(2),), (ones(3),)], look=lambda *_: (table.cache_info(), table(3) is table(3)))


@program("https://github.com/pytorch/pytorch/issues/110790")
def single_dispatch():
    @functools.singledispatch
    def scale(value, x):
        return x

    @scale.register
    def _(value: int, x):
        return x * value

    @scale.register(list)
    def _(value, x):
        return x + sum(value)

    def f(x, value):
        return scale(value, x), scale.dispatch(bool) is scale.dispatch(int)

    return Made(f, [(ones(3), 2), (ones(3), [1, 2]), (ones(3), "a")])


@program("https://github.com/pytorch/pytorch/issues/110790")
def single_dispatch_method():
    class Printer:
        @functools.singledispatchmethod
        def show(self, value):
            return "other"

        @show.register
        def _(self, value: torch.Tensor):
            return f"tensor{tuple(value.shape)}"

        @show.register
        def _(self, value: str):
            return value.upper()

    def f(x, value, printer):
        return x + 1, printer.show(value), printer.show(x)

    return Made(f, [(ones(3), "a", Printer()), (ones(2), 1, Printer())])


@program("https://github.com/pytorch/pytorch/issues/169010")
def partial_as_a_dict_key():
    def add(x, y):
        return x + y

    def f(x):
        one, two = functools.partial(add, 1), functools.partial(add, 1)
        table = {one: 5, two: 6}
        return x * table[one], len(table), one == two, one.func is add, one.args, one(y=x)

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/110790")
def partial_of_partial():
    def affine(x, scale, shift=0, *more, **named):
        return x * scale + shift + len(more) + named.get("extra", 0)

    base = functools.partial(affine, shift=1)

    def f(x, scale):
        bound = functools.partial(base, scale=scale, extra=2)
        return bound(x), bound.keywords, functools.partial(bound, shift=5)(x), bound.func is affine

    return Made(f, [(ones(3), 2), (ones(3), 3)])


@program("https://github.com/pytorch/pytorch/issues/110790")
def partial_method():
    class Layer:
        def run(self, x, mode):
            return x * 2 if mode == "double" else x + len(mode)

        double = functools.partialmethod(run, mode="double")
        named = functools.partialmethod(run, mode="ab")

    def f(x, layer):
        return layer.double(x), layer.named(x)

    return Made(f, [(ones(3), Layer()), (ones(2), Layer())])


@program("https://github.com/pytorch/pytorch/issues/107682")
def reduce_over_tensors():
    def f(xs):
        total = functools.reduce(operator.add, xs)
        joined = functools.reduce(lambda a, b: torch.cat([a, b]), xs[1:], xs[0][:1])
        try:
            functools.reduce(operator.mul, [])
        except TypeError as error:
            return total, joined, str(error)

    return Made(f, [([ones(2), ones(2)],), ([ones(2), ones(2), ones(2)],)])


@program("https://github.com/pytorch/pytorch/pull/184635")
def cmp_to_key():
    def by_length(a, b):
        return len(a) - len(b) or (a > b) - (a < b)

    def f(x, names):
        names.sort(key=functools.cmp_to_key(by_length), reverse=True)
        first = min(names, key=functools.cmp_to_key(by_length))
        return x * len(first), sorted(names, key=str.lower), first

    return Made(f, [(ones(3), ["bb", "a", "ccc"]), (ones(3), ["z", "Y", "xx"])])


@program("https://github.com/pytorch/pytorch/issues/143505")
def sort_with_keys():
    class Config:
        def __init__(self, cost):
            self.cost = cost

        def __lt__(self, other):
            return self.cost < other.cost

    def f(x, costs):
        configs = [(Config(c), n) for n, c in enumerate(costs)]
        best = sorted(configs, key=lambda pair: pair[0])[:2]
        return (
            x + sum(n for _, n in best),
            [n for _, n in best],
            sorted(costs, key=None, reverse=True),
            min(costs, key=abs),
        )

    return Made(f, [(ones(3), [0.3, -0.1, 0.2]), (ones(3), [1.0, 2.0, 0.5])])


@program("https://github.com/pytorch/pytorch/issues/130537")
def sort_is_stable_and_sees_errors():
    def f(x, pairs):
        source = dict(pairs)
        order = sorted(source, key=lambda k: source[k])
        try:
            sorted([1, "a"])
        except TypeError as error:
            return x * source[order[0]], order, str(error), sorted(pairs, key=operator.itemgetter(1), reverse=True)

    return Made(f, [(ones(3), [("a", 2), ("b", 1), ("c", 2)]), (ones(3), [("q", 1), ("p", 1)])])


@program("https://github.com/pytorch/pytorch/issues/103913")
def wraps_inside_the_function():
    def f(x, y):
        def add(x, y):
            "adds"
            return x + y

        @functools.wraps(add)
        def wrapped(*args):
            return add(*args) * 2

        return wrapped(x, y), wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__ is add

    return Made(f, [(ones(3), ones(3)), (ones(2), 1)])


@program("https://github.com/pytorch/pytorch/issues/172732")
def wraps_copies_attributes():
    def tagged(fn):
        @functools.wraps(fn)
        def inner(*args, **named):
            inner.calls += 1
            return fn(*args, **named) * 2

        inner.calls = 0
        return inner

    @tagged
    def base(x):
        return x + 1

    @functools.wraps(base)
    def outer(x):
        return base(x) - 1

    return Made(
        lambda x: (outer(x), outer.calls, outer.__name__),
        [(ones(3),), (ones(3),)],
        look=lambda *_: (base.calls, outer.calls),
    )


@program("https://github.com/pytorch/pytorch/issues/110790")
def total_ordering():
    @functools.total_ordering
    class Rank:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    def f(x, a, b):
        return x * (a >= b) + (a <= b), a > b, max(a, b).n, sorted([b, a])[0].n

    return Made(f, [(ones(3), Rank(1), Rank(2)), (ones(3), Rank(3), Rank(3))])


@program("https://github.com/pytorch/pytorch/pull/134456")
def operator_functions():
    def f(x, items):
        operator.setitem(items, 0, 9)
        operator.delitem(items, 1)
        y = operator.matmul(x, x) + operator.truth(items) + operator.index(3)
        y = operator.iadd(y, operator.countOf(items, 9))
        return y, items, operator.length_hint(items), operator.contains(items, 9), operator.concat([1], [2])

    return Made(f, [(ones(2, 2), [1, 2, 3]), (ones(2, 2), [9, 8])])


@program("https://github.com/pytorch/pytorch/pull/134456")
def getters_and_callers():
    class Node:
        def __init__(self, value, child=None):
            self.value, self.child = value, child

        def scaled(self, n, *, shift=0):
            return self.value * n + shift

    def f(x, node):
        pick, deep = operator.itemgetter(1, 0), operator.attrgetter("child.value", "value")
        call = operator.methodcaller("scaled", 3, shift=1)
        return x * call(node), pick([5, 6]), deep(node), operator.itemgetter(slice(1, 3))("abcd")

    return Made(f, [(ones(3), Node(2, Node(4))), (ones(3), Node(1, Node(0)))])


@program("https://github.com/pytorch/pytorch/issues/130554")
def default_dict():
    def f(xs):
        groups = collections.defaultdict(list)
        for x in xs:
            groups[x.shape[0]].append(x * 2)
        counts = collections.defaultdict(int, a=1)
        counts["b"] += 2
        return groups, counts, counts.default_factory is int, "z" in counts, counts.get("z")

    return Made(f, [([ones(2), ones(3), ones(2)],), ([ones(1)],)])


@program("https://github.com/pytorch/pytorch/issues/123894")
def default_dict_argument_that_grows():
    def f(x, sums, key):
        sums[key] = sums[key] + x.sum()
        return x * len(sums)

    sums = collections.defaultdict(lambda: torch.zeros(()))
    return Made(f, [(ones(2), sums, "a"), (ones(2), sums, "b"), (ones(2), sums, "a"), (ones(2), sums, "c")])


@program("https://github.com/pytorch/pytorch/issues/198189")
def ordered_dict_move_to_end():
    def f(cache, x, key):
        if key in cache:
            cache.move_to_end(key)
        else:
            cache[key] = x + 1
            if len(cache) > 2:
                cache.popitem(last=False)
        return cache[key] * 2, list(cache), list(reversed(cache))

    cache = collections.OrderedDict()
    return Made(f, [(cache, ones(2), key) for key in "abac"])


@program("https://github.com/pytorch/pytorch/issues/93151")
def ordered_dict_equality():
    def f(x):
        a = collections.OrderedDict(p=1, q=2)
        b = collections.OrderedDict([("q", 2), ("p", 1)])
        b.move_to_end("q")
        c = a | {"r": x}
        return x * len(c), a == b, b == {"q": 2, "p": 1}, type(c), a.popitem(), list(c)

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/138194")
def deque_with_maxlen():
    def f(x, history):
        history.append(x.sum())
        history.extendleft([x.max()])
        return torch.stack(list(history)), len(history), history.maxlen, history[0]

    history = collections.deque(maxlen=3)
    return Made(f, [(ones(2), history), (ones(3), history), (ones(4), history)])


@program("https://github.com/pytorch/pytorch/pull/195010")
def deque_methods():
    def f(x):
        d = collections.deque("abcd", 5)
        d.rotate(1)
        d.extend([1, 2])
        doubled = d * 2
        try:
            collections.deque().popleft()
        except IndexError as error:
            return x + len(d), list(d), list(doubled), str(error), d.index("b"), d.copy().maxlen, d.count(1)

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/138194")
def counter_arithmetic():
    def f(x, text):
        c = collections.Counter(text)
        c.update("aa")
        c["q"] -= 1
        more = c + collections.Counter(z=2)
        return x * c["a"], c.most_common(1), more, c.total(), c["none"], sorted((c - more).elements()), +c

    return Made(f, [(ones(3), "abca"), (ones(3), "bb")])


@program("https://github.com/pytorch/pytorch/pull/138194")
def chain_map_and_user_dict():
    class Upper(collections.UserDict):
        def __setitem__(self, key, value):
            super().__setitem__(key.upper(), value)

    def f(x, base):
        scope = collections.ChainMap({"a": 1}, base)
        child = scope.new_child({"c": 3})
        child["d"] = 4
        upper = Upper(q=2)
        return x * scope["a"] + child["b"], sorted(child), len(scope.maps), dict(upper), upper["Q"]

    return Made(f, [(ones(3), {"a": 5, "b": 6}), (ones(3), {"b": 1})])


@program("https://github.com/pytorch/pytorch/issues/106885")
def heap_of_numbers():
    def f(x, values):
        heap = []
        for v in values:
            heapq.heappush(heap, v)
        least = heapq.heappop(heap)
        swapped = heapq.heappushpop(heap, 0), heapq.heapreplace(heap, 9)
        return x * least, heap, swapped, heapq.nlargest(2, values), heapq.nsmallest(1, values, key=lambda v: -v)

    return Made(f, [(ones(3), [3, 1, 4, 1, 5]), (ones(3), [2, 7, 1])])


@program("https://github.com/pytorch/pytorch/issues/106885")
def heap_of_tensors():
    def f(xs):
        heap = [(x.shape[0], n, x) for n, x in enumerate(xs)]
        heapq.heapify(heap)
        size, _, first = heapq.heappop(heap)
        return first * size, [n for _, n, _ in heap], list(heapq.merge([1, 4], [2, 3]))

    return Made(f, [([ones(3), ones(1), ones(2)],), ([ones(2), ones(1)],)])


@program("https://github.com/pytorch/pytorch/issues/106885")
def bisect_into_buckets():
    edges = [10, 20, 30]

    def f(x, n):
        at = bisect.bisect_right(edges, n)
        marks = [1, 3]
        bisect.insort(marks, 2)
        return x * at, marks, bisect.bisect_left(edges, 20), bisect.bisect(["a", "bb"], 1, key=len)

    return Made(f, [(ones(3), 5), (ones(3), 20), (ones(3), 99)])


@program("https://github.com/pytorch/pytorch/issues/115122")
def deepcopy_of_a_config():
    class Config:
        def __init__(self):
            self.size, self.layers, self.scale = 2, [1, {"a": 2}], ones(2)

    config = Config()

    def f(x):
        own = copy.deepcopy(config)
        own.size += 1
        own.layers[1]["a"] = 5
        return x * own.size + own.scale, own.layers, own.scale is config.scale, own.layers[1] is config.layers[1]

    return Made(f, [(ones(2),), (ones(2),)], state=config)


@program("https://github.com/pytorch/pytorch/issues/107570")
def copies_of_tensors():
    def f(x):
        shallow, deep = copy.copy(x), copy.deepcopy(x)
        deep.add_(1)
        shallow.mul_(2)
        return x, shallow, deep, shallow is x

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/196456")
def copies_with_protocol_methods():
    class Node:
        def __init__(self, value):
            self.value, self.copies = value, 0

        def __copy__(self):
            made = Node(self.value)
            made.copies = self.copies + 1
            return made

        def __deepcopy__(self, memo):
            return Node(copy.deepcopy(self.value, memo))

    def f(x, node):
        a, b = copy.copy(node), copy.deepcopy(node)
        b.value.append(4)
        shared = copy.deepcopy([node.value, node.value])
        return x * len(a.value) + len(b.value), a.copies, shared[0] is shared[1]

    return Made(f, [(ones(3), Node([1])), (ones(3), Node([1, 2]))])


@program("https://github.com/pytorch/pytorch/issues/149970")
def deepcopy_of_a_module():
    layer = torch.nn.Linear(2, 2)

    def f(x):
        fast = copy.deepcopy(layer)
        with torch.no_grad():
            fast.weight.mul_(2)
        return fast(x) - layer(x), fast.weight is layer.weight

    return Made(f, [(ones(1, 2),), (ones(3, 2),)], state=layer)


@program("https://github.com/pytorch/pytorch/issues/196238")
def statistics_of_numbers():
    def f(x, values):
        mean = statistics.mean(values)
        return x * mean, statistics.median(values), statistics.pstdev(values), statistics.mode([1, 1, 2])

    return Made(f, [(ones(3), [1.0, 2.0, 6.0]), (ones(3), [2.0, 4.0])])


@program("https://github.com/pytorch/pytorch/issues/196238")
def struct_packing():
    layout = struct.Struct("<hf")

    def f(x, n):
        data = struct.pack("<IH", n, 7)
        a, b = struct.unpack("<IH", data)
        return x + a, b, data, struct.calcsize("<IH"), layout.size, layout.unpack(layout.pack(n, 0.5))

    return Made(f, [(ones(3), 258), (ones(3), 3)])


@program("https://github.com/pytorch/pytorch/issues/196238")
def string_templates():
    def f(x, name):
        text = string.Template("$who has ${n}").substitute(who=name, n=x.shape[0])
        return x * len(text), text, string.capwords("ab cd"), string.punctuation[:3]

    return Made(f, [(ones(3), "a"), (ones(2), "bcd")])


@program("https://github.com/pytorch/pytorch/issues/141283")
def set_update_with_iterators():
    def f(x, seen, names):
        seen.update(map(int, names), (n * 10 for n in range(2)))
        seen.discard(99)
        seen ^= {0, 1}
        return x + len(seen), sorted(seen), seen >= {10}, 2 in seen

    seen = set()
    return Made(f, [(ones(3), seen, ["1", "2"]), (ones(3), seen, ["3"]), (ones(3), {5}, ["5"])])


@program("https://github.com/pytorch/pytorch/issues/130557")
def set_methods():
    def f(x, a, b):
        both = a.intersection(b), a | b, a - b, a ^ b, a.union("z", ["y"])
        flags = a.issubset(b), a.isdisjoint(b), a <= a | b, a == b
        c = a.copy()
        c.intersection_update(b)
        return x * len(c), both, flags, set().union(a, b) == a | b

    return Made(f, [(ones(3), {"a", "b"}, {"b", "c"}), (ones(3), {"q"}, {"q", "r"})])


@program("https://github.com/pytorch/pytorch/issues/110599")
def set_of_tensors():
    def f(x, y):
        seen = {x, y}
        seen.add(x)
        total = x + y if y in seen else x
        return total, len(seen), x in {y}, frozenset([x]) == {x}

    return Made(f, [(ones(3), ones(3)), (ones(2), ones(2))])


@program("https://github.com/pytorch/pytorch/issues/137411")
def dict_methods():
    def f(x, d, more):
        d.update(more, z=x)
        d |= {"w": 1}
        first = d.setdefault("first", 5)
        gone = d.pop("w", None), d.pop("none", 7)
        kept = {k: v for k, v in sorted(d.items(), key=lambda kv: kv[0]) if k != "z"}
        return d["z"] * first, gone, kept, dict.fromkeys("ab", 0), dict(zip("pq", (1, 2)))

    return Made(f, [(ones(3), {"a": 1}, {"b": 2}), (ones(3), {}, [("c", 3)])])


@program("https://github.com/pytorch/pytorch/issues/150110")
def dict_views_after_changes():
    def f(x, d):
        keys, values, items = d.keys(), d.values(), d.items()
        d["late"] = x
        shared = keys & {"a", "late"}, keys - {"a"} == {"late"}, ("a", 1) in items
        return len(keys), sorted(shared[0]), shared[1:], list(values)[-1] + 1, list(reversed(keys))

    return Made(f, [(ones(3), {"a": 1}), (ones(2), {"a": 1})])


@program("https://github.com/pytorch/pytorch/pull/193649")
def dict_keys_have_no_union():
    def f(x, keys):
        try:
            return keys.union({3})
        except AttributeError as error:
            return x * len(keys), str(error), keys | {3}, keys.isdisjoint({1}), keys == {1, 2}

    return Made(f, [(ones(3), {1: 0, 2: 0}.keys()), (ones(3), {5: 0}.keys())])


@program("https://github.com/pytorch/pytorch/issues/150110")
def dict_views_are_returned():
    def f(x, d):
        d["y"] = x + 1
        return d.items(), d.keys(), d.values()

    return Made(f, [(ones(2), {}), (ones(3), {"a": 1})], look=lambda _, result: [list(view)[0] for view in result[1:]])


@program("https://github.com/pytorch/pytorch/issues/137411")
def list_methods():
    def f(x, items):
        items.insert(1, x)
        items.extend(n for n in range(2))
        items += [7]
        last = items.pop(), items.pop(0)
        items[1:2] = ["p", "q"]
        del items[-1]
        items.reverse()
        return x * len(items), last, items.index("q"), items.count("p"), items * 2 == [*items, *items]

    return Made(f, [(ones(3), [1]), (ones(2), [1, 2])], look=lambda args, _: len(args[1]))


@program("https://github.com/pytorch/pytorch/issues/137411")
def list_errors():
    def f(x, items):
        said = []
        for attempt in (
            lambda: items.remove(9),
            lambda: items[10],
            lambda: items.index(5),
            lambda: [].pop(),
            lambda: {}["k"],
        ):
            try:
                attempt()
            except (ValueError, IndexError, KeyError) as error:
                said.append((type(error).__name__, str(error)))
        return x + len(said), said

    return Made(f, [(ones(3), [1]), (ones(3), [9])])


@program("https://github.com/pytorch/pytorch/pull/197379")
def fractions_of_numbers():
    def f(x, n):
        a = fractions.Fraction(n, 6)
        b = a + fractions.Fraction("1/3") * 2
        return (
            x * float(b),
            b.numerator,
            a < b,
            str(b),
            round(b),
            b.limit_denominator(2),
            -a == fractions.Fraction(-n, 6),
        )

    return Made(f, [(ones(3), 1), (ones(3), 4)])


@program("https://github.com/pytorch/pytorch/issues/196238")
def decimals_of_text():
    def f(x, text):
        d = decimal.Decimal(text)
        return (
            x * int(d),
            d.quantize(decimal.Decimal("0.1")),
            d + 1,
            d.as_tuple().exponent,
            d == decimal.Decimal("1.50"),
        )

    return Made(f, [(ones(3), "1.5"), (ones(3), "22.25")])
