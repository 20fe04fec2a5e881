"""Effects: print, logging, warnings, counters, and containers of users that the traced code changes."""

import io
import logging
import sys
import warnings

import torch

from ..program import Made, logger, ones, opaque, program

total = 0
history = []


@program("https://github.com/pytorch/pytorch/issues/93739")
def print_between_ops():
    def f(x, step):
        x = torch.sin(x)
        print("step", step, x.shape, sep=" | ")
        x = torch.sin(x)
        print(f"{step:>4}", end=".\n", flush=True)
        return x

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(2), 3)])


@program("https://github.com/pytorch/pytorch/issues/93739")
def print_of_tensors():
    def f(x):
        y = x + 1
        print("y is", y)
        y.mul_(2)
        print(y, y.sum())
        return y

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/93739")
def print_before_an_error():
    def f(x, n):
        print("before", n)
        if n > 1:
            raise ValueError("no")
        print("after")
        return x * n

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 1)], raises=[1])


@program("https://github.com/pytorch/pytorch/issues/93739")
def print_of_containers_that_change():
    def f(x, items):
        print(items)
        items.append(x.shape[0])
        print(items, {"n": len(items)})
        return x * len(items)

    items = []
    return Made(f, [(ones(3), items), (ones(2), items), (ones(3), items)])


@program("https://github.com/pytorch/pytorch/issues/93739")
def print_to_a_file():
    stream = io.StringIO()

    def f(x, n):
        print("line", n, file=stream)
        stream.write(f"{n}\n")
        sys.stdout.write("out\n")
        return x + n

    return Made(f, [(ones(3), 1), (ones(3), 2)], look=lambda *_: stream.getvalue())


@program("https://github.com/pytorch/pytorch/issues/93739")
def print_in_inlined_frames():
    def inner(x, depth):
        print("  " * depth + "in", depth)
        y = inner(x + 1, depth - 1) if depth else x * 2
        print("  " * depth + "out", depth)
        return y

    def f(x, depth):
        return inner(x, depth) + 1

    return Made(f, [(ones(3), 2), (ones(3), 1)])


@program("https://github.com/pytorch/pytorch/issues/110886")
def log_records():
    log, stream = logger("programs.records")

    def f(x, n):
        log.debug("hidden %s", n)
        log.info("shape %s and %d", tuple(x.shape), n)
        if n > 1:
            log.warning("large: %r", {"n": n})
        return x * n

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(2), 3)], look=lambda *_: stream.getvalue())


@program("https://github.com/pytorch/pytorch/issues/110886")
def log_names_the_function():
    log, stream = logger("programs.names")

    def helper(x):
        log.info("in helper", stacklevel=1)
        log.error("caller", stacklevel=2)
        return x + 1

    def f(x):
        y = helper(x)
        log.info("in f")
        return y

    return Made(f, [(ones(3),), (ones(2),)], look=lambda *_: stream.getvalue())


@program("https://github.com/pytorch/pytorch/issues/110886")
def log_of_tensors_and_errors():
    log, stream = logger("programs.errors")

    def f(x, d):
        log.info("mean %s", x.mean())
        try:
            return x * d["scale"]
        except KeyError:
            log.error("no scale in %s", d, exc_info=False)
            return x

    return Made(f, [(ones(3), {"scale": 2}), (ones(3), {"a": 1})], look=lambda *_: stream.getvalue())


@program("https://github.com/pytorch/pytorch/issues/110886")
def log_to_a_users_handler():
    class Kept(logging.Handler):
        def __init__(self):
            super().__init__()
            self.kept = []

        def emit(self, record):
            self.kept.append((record.levelname, record.getMessage(), record.funcName))

    log, handler = logging.Logger("programs.kept"), Kept()
    log.addHandler(handler)
    log.addFilter(lambda record: "skip" not in record.msg)

    def f(x, n):
        log.info("got %d", n)
        log.info("skip %d", n)
        return x + n

    return Made(f, [(ones(3), 1), (ones(3), 2)], look=lambda *_: list(handler.kept))


@program("https://github.com/pytorch/pytorch/issues/110886")
def log_level_changes_between_calls():
    log, stream = logger("programs.level")

    def f(x):
        log.info("info")
        if log.isEnabledFor(logging.DEBUG):
            log.debug("debug %d", x.shape[0])
        return x + 1

    levels = [logging.INFO, logging.DEBUG, logging.ERROR]
    return Made(f, [(ones(3),)] * 3, before=lambda n: log.setLevel(levels[n]), look=lambda *_: stream.getvalue())


@program("https://github.com/pytorch/pytorch/issues/110886")
def warn_once_by_a_cache():
    log, stream = logger("programs.once")
    seen = set()

    def warning_once(message):
        if message not in seen:
            seen.add(message)
            log.warning(message)

    def f(x, name):
        warning_once(f"deprecated {name}")
        return x * 2

    return Made(f, [(ones(3), "a"), (ones(3), "a"), (ones(3), "b")], state=seen, look=lambda *_: stream.getvalue())


@program("https://github.com/pytorch/pytorch/issues/135688")
def warnings_from_the_frame():
    def f(x, n):
        warnings.warn(f"first {n}")
        y = x + n
        warnings.warn("second", DeprecationWarning)
        return y

    return Made(f, [(ones(3), 1), (ones(3), 2)], warns=True)


@program("https://github.com/pytorch/pytorch/issues/135688")
def warnings_of_callers():
    class Old(UserWarning):
        pass

    def old(x):
        warnings.warn("old is old", Old, stacklevel=2)
        return x * 2

    def f(x):
        y = old(x)
        return old(y) + 1

    return Made(f, [(ones(3),), (ones(2),)], warns=True)


@program("https://github.com/pytorch/pytorch/issues/135688")
def warnings_become_errors():
    def f(x, n):
        if n:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.warn("fatal", RuntimeWarning)
        return x + 1

    return Made(f, [(ones(3), 0), (ones(3), 1)], raises=[1], warns=True)


@program("https://github.com/pytorch/pytorch/issues/135688")
def warning_of_an_op():
    def f(x):
        return torch.tensor(x) + 1

    return Made(f, [(ones(2, 2),), (ones(3),)], warns=True)


@program("https://github.com/pytorch/pytorch/issues/132165")
def global_counter():
    global total
    total = 0

    def f(x):
        global total
        total += 1
        y = x * total
        opaque()
        total += 10
        return y + total

    return Made(f, [(ones(3),), (ones(3),), (ones(2),)], look=lambda *_: total)


@program("https://github.com/pytorch/pytorch/issues/132165")
def global_made_and_deleted():
    def f(x, n):
        global made_here
        made_here = x + n
        y = made_here * 2
        if n == 2:
            del made_here
        return y, "made_here" in globals()

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 3)], look=lambda *_: globals().get("made_here"))


@program("https://github.com/pytorch/pytorch/issues/93724")
def global_list_grows():
    history.clear()

    def f(x):
        history.append(x + 1)
        return x * len(history), history[-1] is history[0]

    return Made(f, [(ones(2),), (ones(3),), (ones(2),), (ones(2),)], state=history)


@program("https://github.com/pytorch/pytorch/issues/169722")
def state_of_a_tracker():
    class Tracker:
        def __init__(self):
            self.log, self.best, self.steps = {}, None, 0

        def update(self, name, value):
            self.log.setdefault(name, []).append(value)
            self.steps += 1
            if self.best is None or self.steps > 2:
                self.best = (name, value)

    tracker = Tracker()

    def f(x, name):
        tracker.update(name, x.mean())
        return x * tracker.steps

    return Made(f, [(ones(3), "a"), (ones(2), "b"), (ones(3), "a")], state=tracker)


@program("https://github.com/pytorch/pytorch/issues/169722")
def changes_before_an_error():
    def f(x, log, n):
        log.append("begun")
        x.add_(1)
        if n == 1:
            raise KeyError("lost")
        log.append("done")
        return x * 2

    log = []
    return Made(f, [(ones(3), log, n) for n in range(3)], raises=[1])


@program("https://github.com/pytorch/pytorch/issues/169722")
def arguments_changed_in_place():
    def f(x, items, table, seen):
        x.mul_(2)
        items[0] += x
        items.append(x)
        table["x"] = items[0]
        table["inner"]["n"] += 1
        seen.add(len(items))
        return x

    return Made(f, [(ones(2), [ones(2)], {"inner": {"n": 0}}, set()), (ones(3), [1], {"inner": {"n": 5}}, {1})])


@program("https://github.com/pytorch/pytorch/issues/169722")
def order_of_effects_across_a_break():
    def f(x, log):
        log.append(("before", len(log)))
        y = x + 1
        log.append(y)
        opaque()
        log[0] = "changed"
        y.add_(1)
        log.append(("after", y.sum()))
        return y

    return Made(f, [(ones(3), []), (ones(2), ["old"])])


@program("https://github.com/pytorch/pytorch/issues/169722")
def views_and_aliases_changed():
    def f(x):
        row, col = x[0], x[:, 1]
        row.add_(10)
        col.mul_(2)
        y = x.clone()
        x[1, 0] = row.sum()
        return row, y, x.view(-1)[1:3]

    return Made(f, [(ones(2, 3),), (ones(3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/197896")
def effects_in_callbacks():
    class Events:
        def __init__(self):
            self.handlers, self.fired = [], []

        def on(self, fn):
            self.handlers.append(fn)
            return fn

        def fire(self, *args):
            for fn in self.handlers:
                self.fired.append(fn(*args))

    events = Events()

    @events.on
    def first(x):
        return x.sum()

    events.on(lambda x: x.shape)

    def f(x):
        y = x * 2
        events.fire(y)
        return y, len(events.fired)

    return Made(f, [(ones(3),), (ones(2),)], look=lambda *_: list(events.fired))


@program("https://github.com/pytorch/pytorch/issues/132165")
def attribute_of_a_module_of_python():
    import types

    settings = types.ModuleType("settings")
    settings.flag, settings.count = False, 0

    def f(x):
        settings.count += 1
        settings.flag = not settings.flag
        return x + 1 if settings.flag else x - 1

    return Made(f, [(ones(3),)] * 3, look=lambda *_: (settings.flag, settings.count))
