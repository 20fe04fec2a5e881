"""What has state beside the frame: contextlib, weakref, threads, random, time; and what looks at frames and names."""

import contextlib
import contextvars
import inspect
import io
import json
import pickle
import queue
import random
import sys
import threading
import time
import traceback
import warnings
import weakref

import torch

from ..program import Made, ones, opaque, program


@program("https://github.com/pytorch/pytorch/issues/109309")
def exit_stack():
    log = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append(f"enter {self.name}")
            return self

        def __exit__(self, *_):
            log.append(f"exit {self.name}")

    def f(x, names):
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(Noted(n)) for n in names]
            stack.callback(log.append, "callback")
            y = x * len(held)
        return y, len(log)

    return Made(f, [(ones(3), "ab"), (ones(3), "c")], state=log)


@program("https://github.com/pytorch/pytorch/issues/109309")
def exit_stack_moved_out():
    def f(x):
        done = []
        with contextlib.ExitStack() as stack:
            stack.callback(done.append, 1)
            stack.enter_context(torch.no_grad())
            y = x * 2
            kept = stack.pop_all()
        before = list(done), torch.is_grad_enabled()
        kept.close()
        return y, before, done, torch.is_grad_enabled()

    return Made(f, [(ones(3).requires_grad_(),), (ones(2).requires_grad_(),)])


@program("https://github.com/pytorch/pytorch/pull/136033")
def suppress_an_exception():
    def f(x, table, key):
        y = x
        with contextlib.suppress(KeyError, ZeroDivisionError):
            y = x + 1
            y = y * table[key]
            y = y / (table[key] - 2)
        return y + 1

    return Made(f, [(ones(3), {"a": 3}, "a"), (ones(3), {"a": 3}, "b")])


@program("https://github.com/pytorch/pytorch/pull/136033")
def null_context_and_closing():
    class Thing:
        closed = 0

        def close(self):
            self.closed += 1

    def f(x, thing, grad):
        with contextlib.nullcontext(x + 1) as y, contextlib.closing(thing) as same:
            y = y * 2
        with contextlib.nullcontext() if grad else torch.no_grad():
            z = y * 3
        return z, same is thing, thing.closed

    thing = Thing()
    x = ones(3).requires_grad_()
    return Made(f, [(x, thing, True), (x, thing, False)])


@program("https://github.com/pytorch/pytorch/issues/128651")
def context_manager_with_finally():
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(name)
        try:
            yield len(log)
        finally:
            log.append(f"end {name}")

    def f(x):
        with noted("a") as n, noted("b") as m:
            y = x * n + m
        return y

    return Made(f, [(ones(3),), (ones(3),), (ones(2),)], state=log)


@program("https://github.com/pytorch/pytorch/issues/130559")
def context_manager_that_swallows():
    @contextlib.contextmanager
    def fallback(result):
        try:
            yield result
        except ValueError as error:
            result.append(str(error))
        else:
            result.append("fine")

    def f(x, n):
        seen = []
        with fallback(seen):
            if n > 1:
                raise ValueError(f"bad {n}")
            x = x + 1
        return x * 2, seen

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 3)])


@program("https://github.com/pytorch/pytorch/issues/133483")
def context_manager_as_decorator():
    depth = [0]

    @contextlib.contextmanager
    def deeper():
        depth[0] += 1
        try:
            yield
        finally:
            depth[0] -= 1

    @deeper()
    def inner(x):
        return x + depth[0]

    class Counted(contextlib.ContextDecorator):
        entered = 0

        def __enter__(self):
            type(self).entered += 1

        def __exit__(self, *_):
            return False

    @Counted()
    def outer(x):
        with deeper():
            return inner(x) * Counted.entered

    return Made(lambda x: outer(x), [(ones(3),), (ones(3),), (ones(2),)], state=depth)


@program("https://github.com/pytorch/pytorch/issues/133483")
def context_manager_around_a_break():
    mode = {"on": False}

    @contextlib.contextmanager
    def switched():
        before, mode["on"] = mode["on"], True
        try:
            yield
        finally:
            mode["on"] = before

    def f(x):
        with switched():
            y = x + mode["on"]
            opaque()
            z = y * 2 if mode["on"] else y
        return z, mode["on"]

    return Made(f, [(ones(3),), (ones(3),)], state=mode)


@program("https://github.com/pytorch/pytorch/issues/102339")
def catch_warnings_inside():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("not seen")
            y = x + 1
        return y * 2

    return Made(f, [(ones(3),), (ones(2),)], look=lambda *_: len(warnings.filters) > 0, warns=True)


@program("https://github.com/pytorch/pytorch/issues/125720")
def weak_reference_argument():
    class Node:
        def __init__(self, value):
            self.value = value

        def __call__(self):
            return self.value.sin()

    node = Node(ones(3))
    ref = weakref.ref(node)

    def f(ref):
        target = ref()
        return target() + 1, target is node, ref() is target

    return Made(f, [(ref,), (ref,)])


@program("https://github.com/pytorch/pytorch/issues/147597")
def weak_reference_dies_in_trace():
    class Node:
        pass

    def f(x):
        node = Node()
        ref = weakref.ref(node)
        alive = ref() is not None
        del node
        y = x + 1 if ref() is None else x - 1
        return y, alive

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/147597")
def weak_reference_dies_between_calls():
    class Node:
        value = 3

    held = [Node()]
    ref = weakref.ref(held[0])

    def f(x):
        node = ref()
        return x * node.value if node is not None else x - 1

    return Made(f, [(ones(3),), (ones(3),), (ones(3),)], before=lambda n: held.clear() if n == 2 else None)


@program("https://github.com/pytorch/pytorch/issues/125720")
def weak_dictionaries():
    class Key:
        pass

    a, b = Key(), Key()
    table = weakref.WeakKeyDictionary({a: 2})
    names = weakref.WeakValueDictionary(first=a)

    def f(x, key):
        table[key] = table.get(key, 0) + 1
        return x * table[key], len(table), names["first"] is a, "none" in names, key in table

    return Made(f, [(ones(3), a), (ones(3), b), (ones(3), a)], look=lambda *_: [table[a], table.get(b)])


@program("https://github.com/pytorch/pytorch/pull/161508")
def weak_proxy():
    class Config:
        scale = 2.0

        def twice(self):
            return self.scale * 2

    config = Config()
    proxy = weakref.proxy(config)

    def f(x):
        return x * proxy.scale + proxy.twice(), isinstance(proxy, Config)

    return Made(f, [(ones(3),), (ones(3),)], before=lambda n: setattr(config, "scale", 2.0 + n))


@program("https://github.com/pytorch/pytorch/issues/104066")
def thread_local_tensor():
    local = threading.local()
    local.x = ones(1)

    def f(x):
        local.seen = getattr(local, "seen", 0) + 1
        return torch.cat([x, local.x]) * local.seen, hasattr(local, "none")

    return Made(f, [(ones(2),), (ones(3),), (ones(2),)], look=lambda *_: local.seen)


@program("https://github.com/pytorch/pytorch/issues/186449")
def context_variable():
    scale = contextvars.ContextVar("scale", default=1.0)

    def f(x):
        token = scale.set(scale.get() + 1)
        y = x * scale.get()
        scale.reset(token)
        return y + scale.get(), scale.name

    return Made(f, [(ones(3),), (ones(2),)], look=lambda *_: scale.get())


@program("https://github.com/pytorch/pytorch/issues/94795")
def lock_around_work():
    lock, again = threading.Lock(), threading.RLock()
    calls = []

    def f(x):
        with lock:
            calls.append(lock.locked())
            with again, again:
                y = x + len(calls)
        return y * 2, lock.locked()

    return Made(
        f, [(ones(3),), (ones(3),), (ones(3),)], state=calls, look=lambda *_: lock.acquire(False) and lock.release()
    )


@program("https://github.com/pytorch/pytorch/pull/175601")
def lock_is_released_by_an_error():
    lock = threading.Lock()

    def f(x, n):
        with lock:
            if n > 1:
                raise RuntimeError(f"too many: {n}")
            return x * n

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 1)], raises=[1], state=[lock.locked()])


@program("https://github.com/pytorch/pytorch/issues/118260")
def thread_that_is_current():
    event = threading.Event()

    def f(x):
        if threading.current_thread() is threading.main_thread() and not event.is_set():
            event.set()
            return x + 1
        return x * threading.active_count() + (threading.get_ident() == threading.main_thread().ident)

    return Made(f, [(ones(3),), (ones(3),)], look=lambda *_: event.is_set())


@program("https://github.com/pytorch/pytorch/issues/118260")
def queue_of_tensors():
    def f(x, q):
        q.put(x + 1)
        if q.qsize() > 1:
            first = q.get_nowait()
            return first * 2, q.empty()
        return x, q.full()

    q = queue.Queue(maxsize=3)
    return Made(f, [(ones(2), q), (ones(2), q), (ones(2), q)], look=lambda *_: q.qsize())


@program("https://github.com/pytorch/pytorch/issues/118260")
def called_from_a_thread():
    def f(x):
        found = []
        worker = threading.Thread(target=lambda: found.append(x * 2))
        worker.start()
        worker.join()
        return found[0] + 1, len(found), worker.is_alive()

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/145446")
def random_functions():
    def f(x):
        y = x + random.random() + random.uniform(1, 2)
        return y, random.randint(1, 100), random.choice("abc"), random.gauss(0, 1), random.getrandbits(8)

    return Made(f, [(ones(3),), (ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/197085")
def shuffle_and_sample():
    def f(x):
        order = list(range(5))
        random.shuffle(order)
        return x[order], order, random.sample(range(100), 3), random.choices("ab", k=4)

    return Made(f, [(ones(5),), (ones(5),), (ones(5),)])


@program("https://github.com/pytorch/pytorch/issues/197101")
def seed_inside():
    def f(x, n):
        random.seed(n)
        a = random.random()
        state = random.getstate()
        b = random.random()
        random.setstate(state)
        return x + a, random.random() == b, random.randrange(10)

    return Made(f, [(ones(3), 0), (ones(3), 1), (ones(3), 0)])


@program("https://github.com/pytorch/pytorch/issues/196437")
def generator_object_of_random():
    own = random.Random(5)

    def f(x):
        fresh = random.Random(1).randint(1, 100)
        return x + own.randint(1, 100), fresh, own.random(), isinstance(own, random.Random)

    return Made(f, [(ones(2),), (ones(2, 2),), (ones(3, 2),)], look=lambda *_: own.getstate()[1][-1])


@program("https://github.com/pytorch/pytorch/issues/95425")
def layer_drop():
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(4))

    def f(x):
        for layer in layers:
            if random.random() > 0.5:
                x = layer(x)
        return x

    return Made(f, [(ones(1, 2),), (ones(1, 2),), (ones(1, 2),)])


@program("https://github.com/pytorch/pytorch/issues/137068")
def timing_a_block():
    def f(x):
        begun = time.time()
        y = x.sin()
        spent = time.time() - begun
        return y, spent >= 0, spent < 60, time.perf_counter() > 0, time.monotonic_ns() > 0

    return Made(f, [(ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/157352")
def timing_with_a_manager():
    class Profile:
        def __init__(self):
            self.total, self.runs = 0.0, 0

        def __enter__(self):
            self.start = time.time()
            return self

        def __exit__(self, *_):
            self.total += time.time() - self.start
            self.runs += 1

    profile = Profile()

    def f(x):
        with profile:
            y = x * 2
        with profile as same:
            y = y + 1
        return y, same.runs

    return Made(f, [(ones(3),), (ones(3),)], look=lambda *_: (profile.runs, profile.total > 0))


@program("https://github.com/pytorch/pytorch/issues/137068")
def time_as_text():
    def f(x):
        stamp = time.strftime("%Y", time.gmtime(0))
        return x + len(stamp), stamp, time.gmtime(86400).tm_mday

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/186449")
def context_variable_changed_between_calls():
    flag = contextvars.ContextVar("flag")

    def f(x):
        return x + 1 if flag.get(False) else x - 1

    return Made(f, [(ones(3),)] * 4, before=lambda n: flag.set(n % 2 == 1))


@program("https://github.com/pytorch/pytorch/issues/93749")
def exec_and_eval():
    def f(x, text):
        scope = {"x": x}
        exec(f"y = x * 2\ndef g(v): return v + {len(text)}", scope)
        return scope["g"](scope["y"]), eval(text, {"x": x}), eval("1 + 2"), sorted(k for k in scope if k < "_")

    return Made(f, [(ones(3), "x + 1"), (ones(2), "x.sum()")])


@program("https://github.com/pytorch/pytorch/issues/93749")
def names_of_the_frame():
    def f(x, n):
        y = x + n
        names = sorted(locals())
        return y, names, "torch" in globals(), sorted(k for k in dir(n) if k.startswith("bit")), vars()["n"]

    return Made(f, [(ones(3), 1), (ones(2), 2)])


@program("https://github.com/pytorch/torchdynamo/issues/941")
def traceback_of_a_caught_error():
    def inner(x, n):
        if n > 1:
            raise ValueError("deep")
        return x * n

    def middle(x, n):
        return inner(x, n) + 1

    def f(x, n):
        try:
            return middle(x, n)
        except ValueError as error:
            frames = traceback.extract_tb(error.__traceback__)
            return x, [frame.name for frame in frames], len({frame.lineno for frame in frames})

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 1)])


@program("https://github.com/pytorch/torchdynamo/issues/941")
def frames_that_a_callee_sees():
    def who():
        frame = sys._getframe(1)
        return frame.f_code.co_name, frame.f_back.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno

    def helper(x):
        return x + 1, who()

    def f(x):
        y, seen = helper(x)
        return y * 2, seen, who()[0], inspect.currentframe().f_code.co_name

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/152867")
def traceback_that_leaves_the_function():
    def inner(x):
        return x["missing"]

    def f(x, table):
        y = x + 1
        return y * inner(table)

    return Made(f, [(ones(3), {"missing": 2}), (ones(3), {}), (ones(3), {"missing": 3})], raises=[1])


@program("https://github.com/pytorch/pytorch/issues/147597")
def finalizers_run_in_order():
    log = []

    class Held:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            log.append(self.name)

    def f(x):
        a, b = Held("a"), Held("b")
        y = x + len(log)
        del a
        log.append("after a")
        b = Held("c")
        opaque()
        return y * 2, b.name

    return Made(f, [(ones(3),), (ones(3),)], state=log)


@program("https://github.com/pytorch/pytorch/issues/93782")
def global_lambda_is_replaced():
    global scale
    scale = lambda x: x * 2

    def before(n):
        global scale
        scale = [scale, lambda x: x * 3, torch.neg][n]

    return Made(lambda x: scale(x) + 1, [(ones(3),)] * 3, before=before)


@program("https://github.com/pytorch/pytorch/issues/143425")
def wrong_calls_of_functions():
    def target(a, /, b, *, c=1):
        return a * b + c

    def f(x):
        said = []
        for attempt in (
            lambda: target(x),
            lambda: target(x, 1, 2),
            lambda: target(x, 1, d=3),
            lambda: target(a=x, b=1),
            lambda: target(x, 1, **{"b": 2}),
            lambda: x(),
            lambda: len(3),
        ):
            try:
                said.append(attempt())
            except TypeError as error:
                said.append(str(error).rpartition(".")[2])
        return target(x, 2, c=3), said

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/93724")
def mutable_default_argument():
    def collect(x, into=[], *, table={}):
        into.append(x.shape[0])
        table[len(into)] = x
        return x * len(into)

    collect.__defaults__, collect.__kwdefaults__ = ([],), {"table": {}}

    def f(x):
        return collect(x) + collect(x, [1, 2]), len(collect.__kwdefaults__["table"])

    return Made(f, [(ones(3),), (ones(3),), (ones(2),)], look=lambda *_: collect.__defaults__[0])


@program("https://github.com/pytorch/pytorch/pull/196456")
def pickling_in_the_function():
    def f(x, config):
        data = pickle.dumps(config)
        again = pickle.loads(data)
        buffer = io.BytesIO()
        torch.save({"x": x}, buffer)
        buffer.seek(0)
        return x + again["n"], again == config, again is config, torch.load(buffer)["x"] * 2

    return Made(f, [(ones(3), {"n": 1}), (ones(2), {"n": 2, "m": [1]})])


@program("https://github.com/pytorch/pytorch/issues/196238")
def json_and_text_streams():
    def f(x, config):
        text = json.dumps(config, sort_keys=True)
        stream = io.StringIO(text + "\nsecond")
        return x * len(stream.readline()), json.loads(text) == config, stream.read(), json.loads("[1.5, null]")

    return Made(f, [(ones(3), {"b": 1, "a": [True, None]}), (ones(3), {})])
