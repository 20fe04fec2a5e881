"""Iterators that live across a graph break, that come from outside, or that leave the compiled function."""

import itertools

import torch

from ..program import Made, ones, opaque, program


def rest(args, _):
    """What is left in the iterator that is the last argument."""
    return list(args[-1])


@program("https://github.com/pytorch/pytorch/issues/146340")
def list_iterator_argument():
    def f(x, it):
        first = next(it)
        opaque()
        return x * first + next(it), iter(it) is it

    return Made(f, [(ones(3), iter([1, 2, 3])), (ones(3), iter([4, 5, 6, 7]))], look=rest)


@program("https://github.com/pytorch/pytorch/issues/146347")
def enumerate_argument():
    def f(x, it):
        n, v = next(it)
        for m, w in it:
            x = x + m * w
            if m == 2:
                break
        return x, n, v

    return Made(f, [(ones(3), enumerate([1, 2, 3, 4])), (ones(3), enumerate([5, 6, 7, 8], 1))], look=rest)


@program("https://github.com/pytorch/pytorch/issues/146348")
def generator_argument():
    def numbers(n, log):
        try:
            for i in range(n):
                yield i
        finally:
            log.append("closed")

    def f(x, log, it):
        y = x + next(it)
        opaque()
        for v in it:
            y = y * 2 + v
            if v > 1:
                break
        return y, iter(it) is it

    log = []
    return Made(f, [(ones(3), log, numbers(4, log)), (ones(3), log, numbers(3, log))], look=rest, state=log)


@program("https://github.com/pytorch/pytorch/issues/146359")
def zip_argument():
    def f(x, z):
        a, b = next(z)
        return x * a + b, iter(z) is z

    return Made(f, [(ones(3), zip([1, 2], [3, 4])), (ones(3), zip([0], [7], strict=True))], look=rest)


@program("https://github.com/pytorch/pytorch/issues/196212")
def reversed_argument():
    def f(x, it):
        same = iter(it)
        first = next(same)
        second = next(it)
        return x + first * 10 + second, same is it

    return Made(
        f, [(ones(1), reversed([3, 5, 7])), (ones(1), reversed(range(4))), (ones(1), reversed((1, 2)))], look=rest
    )


@program("https://github.com/pytorch/pytorch/issues/147440")
def dict_items_argument():
    def f(x, items):
        it = iter(items)
        key, value = next(it)
        opaque()
        return x * value, key, list(it)

    return Made(f, [(ones(3), {"a": 3, "b": 4}.items()), (ones(3), {"c": 5}.items())])


@program("https://github.com/pytorch/pytorch/pull/167694")
def range_iterator_across_a_break():
    def f(x, n):
        it = iter(range(n))
        x = x + next(it)
        opaque()
        for i in it:
            x = x * 2 + i
            opaque()
        return x, next(it, "end")

    return Made(f, [(ones(3), 3), (ones(3), 4)])


@program("https://github.com/pytorch/pytorch/pull/88857")
def break_in_a_loop():
    def inner(x):
        return torch.sin(x)

    def f(x, n):
        for i in range(n):
            x = inner(x) + i
            opaque()
        return x * 2

    return Made(f, [(ones(3), 6), (ones(3), 6), (ones(3), 9)])


@program("https://github.com/pytorch/pytorch/pull/88857")
def break_in_nested_loops():
    def f(x):
        for i in range(3):
            for name in "ab":
                x = x + i
                if i == 1 and name == "b":
                    opaque()
                    continue
            if float(x.sum()) > 100:
                break
        else:
            return x, "all"
        return x, "some"

    return Made(f, [(ones(3),), (ones(3) * 20,), (ones(3),)])


@program("https://github.com/pytorch/pytorch/pull/88857")
def while_loop_on_a_tensor():
    def f(x):
        steps = 0
        while x.norm() > 1:
            x = x / 2
            steps += 1
        return x, steps

    return Made(f, [(ones(3),), (ones(3) * 7,), (ones(3) / 9,)])


@program("https://github.com/pytorch/pytorch/issues/133358")
def map_across_a_break():
    def f(xs):
        seen = []
        doubled = map(lambda x: seen.append(x.shape) or x * 2, xs)
        first = next(doubled)
        opaque()
        return first, len(seen), list(doubled), len(seen)

    return Made(f, [([ones(1), ones(2), ones(3)],), ([ones(4), ones(2)],)])


@program("https://github.com/pytorch/pytorch/issues/128944")
def filter_across_a_break():
    def f(xs):
        kept = filter(lambda x: x.requires_grad, xs)
        total = next(kept) * 2
        opaque()
        for x in kept:
            total = total + x
        return total, list(filter(None, [0, 1, "", "a"]))

    a, b = ones(2).requires_grad_(), ones(2)
    return Made(f, [([b, a, a],), ([a, b],)])


@program("https://github.com/pytorch/pytorch/issues/137380")
def filter_is_returned():
    def f(x):
        small = filter(lambda n: n < 4, itertools.count())
        return x + next(small), filter(lambda n: n % 2, [1, 2, 3]), zip(range(3), small)

    return Made(f, [(ones(3),), (ones(2),)], look=lambda _, result: (list(result[1]), list(result[2])))


@program("https://github.com/pytorch/pytorch/issues/112794")
def enumerate_across_a_break():
    def f(xs):
        pairs = enumerate(map(torch.neg, xs), start=2)
        n, first = next(pairs)
        opaque()
        return [x * m for m, x in pairs], first * n

    return Made(f, [([ones(2), ones(2), ones(2)],), ([ones(3), ones(3)],)])


@program("https://github.com/pytorch/pytorch/issues/133358")
def zip_across_a_break():
    def f(xs, scales):
        pairs = zip(xs, scales, itertools.count())
        total = torch.zeros(2)
        for x, s, n in pairs:
            total = total + x * s
            if n == 0:
                opaque()
        try:
            list(zip(xs, scales, strict=True))
        except ValueError as error:
            return total, str(error)
        return total, "equal"

    return Made(f, [([ones(2), ones(2)], [3, 4]), ([ones(2), ones(2)], [1, 2, 3])])


@program("https://github.com/pytorch/pytorch/issues/147440")
def dict_iterator_across_a_break():
    def f(d):
        keys, items = iter(d), iter(d.items())
        first = next(keys), next(items)[1]
        opaque()
        return first[1] * 2, first[0], [*keys], [v + 1 for _, v in items], list(reversed(d.values()))

    return Made(f, [({"a": ones(2), "b": ones(2)},), ({"c": ones(1)},)])


@program("https://github.com/pytorch/pytorch/issues/147440")
def dict_changes_while_iterated():
    def f(x, d):
        try:
            for key in d:
                x = x + d[key]
                d[key + "!"] = 1
        except RuntimeError as error:
            return x, str(error), list(d)

    return Made(f, [(ones(3), {"a": 1, "b": 2}), (ones(3), {"c": 5})])


@program("https://github.com/pytorch/pytorch/issues/141283")
def set_iterator_across_a_break():
    def f(x, items):
        it = iter(items)
        x = x + next(it)
        opaque()
        return x + sum(it), sorted(map(str, items))

    return Made(f, [(ones(3), {1, 2, 3}), (ones(3), frozenset([5, 6]))])


@program("https://github.com/pytorch/pytorch/issues/146340")
def string_and_tuple_iterators():
    def f(x, text, shape):
        letters, sizes = iter(text), iter(shape)
        head = next(letters), next(sizes)
        opaque()
        return x * head[1], head[0] + "".join(letters), [*sizes], next(letters, None)

    return Made(f, [(ones(3), "abc", (2, 3)), (ones(3), "z", (4,))])


@program("https://github.com/pytorch/pytorch/issues/175855")
def list_grows_while_iterated():
    def f(x):
        values = [x.sum()]

        def grow():
            for item in values:
                if len(values) < 4:
                    values.append(item + 1)
                yield item

        return torch.stack(list(grow())), len(values)

    return Made(f, [(ones(1),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/175855")
def list_iterator_held_by_two():
    def f(x, items, it):
        x = x + next(it)
        items.append(10)
        items[1] = 7
        opaque()
        return x * next(it), len(items)

    items = [1, 2, 3]
    it = iter(items)
    return Made(f, [(ones(3), items, it), (ones(3), items, it)], look=lambda *_: it.__length_hint__())


@program("https://github.com/pytorch/pytorch/issues/175855")
def list_iterator_in_an_object():
    class Feed:
        def __init__(self, items):
            self.it = iter(items)

    feed = Feed([1, 2, 3, 4, 5])

    def f(x):
        for v in feed.it:
            x = x + v
            if v % 2 == 0:
                break
        return x

    return Made(f, [(ones(3),), (ones(3),), (ones(3),)], look=lambda *_: feed.it.__length_hint__())


@program("https://github.com/pytorch/pytorch/issues/119198")
def user_iterator_across_a_break():
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    def f(x, it):
        x = x + next(it)
        opaque()
        for v in it:
            x = x * 2 + v
            if v == 1:
                break
        return x, it.n

    return Made(f, [(ones(3), Countdown(4)), (ones(3), Countdown(5))], look=rest)


@program("https://github.com/pytorch/pytorch/issues/198190")
def generator_across_a_break():
    def steps(x):
        total = x
        for n in range(3):
            total = total * 2
            received = yield total + n
            if received:
                total = total + received
        return "done"

    def f(x):
        gen = steps(x)
        first = next(gen)
        opaque()
        second = gen.send(5)
        third = next(gen)
        try:
            next(gen)
        except StopIteration as stop:
            return first, second, third, stop.value

    return Made(f, [(ones(2),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/198190")
def generator_is_returned():
    def f(x, started):
        def gen():
            got = yield x * 1
            yield got
            return 7

        made = gen()
        if started:
            next(made)
        return made

    def look(args, result):
        found = [] if args[1] else [next(result)]
        found.append(result.send("sent"))
        try:
            next(result)
        except StopIteration as stop:
            found.append(stop.value)
        return found, type(result).__name__

    return Made(f, [(ones(2), False), (ones(2), True)], look=look)


@program("https://github.com/pytorch/pytorch/issues/146628")
def generator_reads_a_changed_tensor():
    def f(x):
        lazy = (x * n for n in range(1, 3))
        x.add_(1)
        first = next(lazy)
        x.add_(1)
        return first, lazy

    return Made(f, [(ones(2),), (ones(3),)], look=lambda _, result: list(result[1]))


@program("https://github.com/pytorch/pytorch/issues/198190")
def generator_advanced_by_two_calls():
    def numbers():
        n = 0
        while True:
            n += 1
            yield n

    shared = numbers()

    def f(x):
        return x * next(shared) + next(shared)

    return Made(f, [(ones(3),), (ones(3),), (ones(3),)], look=lambda *_: shared.gi_frame.f_locals["n"])


@program("https://github.com/pytorch/pytorch/issues/133879")
def itertools_objects_across_a_break():
    def f(x):
        count, cycle = itertools.count(3, 2), itertools.cycle("ab")
        part = itertools.islice(count, 1, 6)
        first = next(part), next(cycle)
        opaque()
        both = itertools.chain([next(count)], part)
        return x * first[0], first[1], next(cycle), next(both), list(both), next(count)

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/102879")
def chain_argument():
    def f(x, it):
        return x + next(it), next(it)

    made = [itertools.chain([1, 2], (3,)), itertools.islice(range(9), 2, 6), itertools.accumulate([1, 2, 3, 4])]
    return Made(f, [(ones(3), it) for it in made], look=rest)


@program("https://github.com/pytorch/pytorch/issues/133879")
def call_until_a_sentinel():
    def f(x, items):
        it = iter(items.pop, 0)
        for v in it:
            x = x + v
        return x, len(items), list(it)

    return Made(f, [(ones(3), [9, 0, 1, 2]), (ones(3), [0, 5])])


@program("https://github.com/pytorch/pytorch/issues/146348")
def unpacking_iterators():
    def f(x, it):
        a, *middle, b = it
        try:
            c, d = iter([1])
        except ValueError as error:
            return x * a + b, middle, str(error)

    return Made(f, [(ones(3), iter(range(4))), (ones(3), map(int, "456"))])


@program("https://github.com/pytorch/pytorch/issues/133358")
def consumers_of_iterators():
    def f(xs):
        found = any(x.shape[0] > 2 for x in xs), all(x.ndim == 1 for x in xs)
        sizes = iter([x.shape[0] for x in xs])
        return (
            sum(x.sum() for x in xs),
            found,
            max(sizes),
            min((3, 1), default=0),
            max([], default="none"),
            2 in iter([1, 2]),
        )

    return Made(f, [([ones(2), ones(3)],), ([ones(1)],)])
