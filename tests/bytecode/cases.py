"""The list of calls that `corpus` fills, and their log."""

LOG: list[object] = []
CASES = {}


def fresh(arg):
    return arg() if isinstance(arg, type(case)) else arg


def calling(function, args=(), kwargs={}):  # noqa: B006
    def call():
        return function(*map(fresh, args), **kwargs)

    return call


def case(*args, name=None, **kwargs):
    """Adds a call with these arguments; functions among them are called for a fresh value."""

    def add(function):
        CASES[name or f"{function.__name__}{len(CASES)}"] = calling(function, args, kwargs)
        return function

    return add


def log(*values):
    LOG.append(values)
    return values[0] if values else None
