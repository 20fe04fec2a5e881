"""Text, bytes and numbers: methods and operators of immutable values beside tensors."""

import cmath
import math
import string

import torch

from ..program import Made, ones, program


@program("https://github.com/pytorch/pytorch/issues/146350")
def str_predicates():
    def f(x, text):
        flags = [text.isalnum(), text.isdigit(), text.isidentifier(), text.isupper(), text.isspace(), text.istitle()]
        return x * sum(flags), flags

    return Made(f, [(ones(3), "abc"), (ones(3), "12"), (ones(3), "Ab Cd")])


@program("https://github.com/pytorch/pytorch/issues/146350")
def str_unbound_methods():
    def f(x, text):
        return x + len(str.upper(text)) + str.count(text, "a"), str.partition(text, "."), str.zfill(text, 8)

    return Made(f, [(ones(2), "layer.0"), (ones(2), "a.a.a")])


@program("https://github.com/pytorch/pytorch/issues/146350")
def str_split_and_join():
    def f(x, name):
        *path, last = name.split(".")
        if last.startswith(("weight", "bias")) and "/".join(path).endswith("0"):
            return x * 2, "/".join(reversed(path))
        return x - 1, name.rsplit(".", 1), name.removeprefix("block.").splitlines()

    return Made(f, [(ones(3), "block.0.weight"), (ones(3), "block.1.bias"), (ones(3), "block.0.scale")])


@program("https://github.com/pytorch/pytorch/issues/146350")
def str_translate():
    table = str.maketrans("abc", "xyz", "-")

    def f(x, text):
        return x + text.translate(table).count("x"), text.translate(str.maketrans({"a": None})), string.ascii_lowercase

    return Made(f, [(ones(3), "a-b-c"), (ones(3), "aaa")])


@program("https://github.com/pytorch/torchdynamo/issues/41")
def fstring_of_shape_and_class():
    class Named:
        pass

    def f(x, thing):
        key = f"{type(thing).__name__}-{x.shape[0]:03d}-{tuple(x.shape)!r}-{x.dtype}"
        return x.sin(), key

    return Made(f, [(ones(3), Named()), (ones(3), 1), (ones(4, 2), Named())])


@program("https://github.com/pytorch/torchdynamo/issues/41")
def format_specs():
    def f(x, value, width):
        return x * 2, f"{value:>{width}.2f}|{value:e}|{value!s:^12}", "{0:,} {name!r}".format(1234567, name="n")

    return Made(f, [(ones(3), 1.5, 8), (ones(3), -2.25, 10)])


@program("https://github.com/pytorch/torchdynamo/issues/41")
def percent_format():
    def f(x, step, loss):
        return x + step, "step %d: %.3f %s %5s%%" % (step, loss, "ok", None), "%(a)s-%(b)r" % {"a": 1, "b": "two"}

    return Made(f, [(ones(3), 1, 0.5), (ones(3), 2, 0.25)])


@program("https://github.com/pytorch/pytorch/pull/186500")
def fstring_of_tensor_before_mutation():
    def f(x):
        y = x + 1
        text = f"{y=}"
        y.mul_(2)
        return y, text

    return Made(f, [(ones(2),), (ones(2) * 3,)])


@program("https://github.com/pytorch/pytorch/pull/186500")
def user_class_with_format():
    class Money:
        def __init__(self, cents):
            self.cents = cents

        def __format__(self, spec):
            return f"{self.cents / 100:.2f}{spec}"

        def __str__(self):
            return "money"

    def f(x, money):
        return x + money.cents, f"{money:EUR} {money} {money!s}", format(money, "USD")

    return Made(f, [(ones(3), Money(150)), (ones(3), Money(275))])


@program("https://github.com/pytorch/pytorch/pull/180627")
def hex_oct_bin_ascii():
    def f(x, n, text):
        return x + n, hex(n), oct(n), bin(n), ascii(text), chr(n + 60), ord(text[0]), repr(text)

    return Made(f, [(ones(3), 10, "ä"), (ones(3), 17, "b'")])


@program("https://github.com/pytorch/pytorch/pull/130158")
def float_methods():
    def f(x, v):
        if v.is_integer():
            return x * v
        return x - v, v.as_integer_ratio(), v.hex(), float.fromhex("0x1.8p+1"), v.conjugate(), v.real, v.imag

    return Made(f, [(ones(3), 2.0), (ones(3), 1.5), (ones(3), 0.75)])


@program("https://github.com/pytorch/pytorch/issues/119152")
def int_shifts_and_bits():
    def f(x, n):
        return x * (1 << n), n >> 1, n & 3, n | 8, n ^ 5, ~n, n.bit_length(), (n + 9).bit_count()

    return Made(f, [(ones(3), 2), (ones(3), 3), (ones(3), 5)])


@program("https://github.com/pytorch/pytorch/pull/196436")
def int_bytes():
    def f(x, n):
        data = n.to_bytes(4, "little")
        return x + int.from_bytes(data, "big"), data, int("ff", 16), int("0b11", 0), n.as_integer_ratio()

    return Made(f, [(ones(3), 258), (ones(3), 1)])


@program("https://github.com/pytorch/pytorch/pull/196436")
def integer_division_signs():
    def f(x, a, b):
        return x * (a // b), a % b, divmod(a, b), divmod(-a, b), -a // b, pow(a, 3, 7), round(a / b, 2), abs(-a)

    return Made(f, [(ones(3), 7, 2), (ones(3), 9, 4), (ones(3), 11, -3)])


@program("https://github.com/pytorch/pytorch/issues/180843")
def complex_constructor():
    def f(x, a, b):
        return x + complex(a, b), complex("1+2j").conjugate()

    return Made(f, [(ones(2).to(torch.complex64), 20.0, 0.0), (ones(2).to(torch.complex64), 1.0, -2.0)])


@program("https://github.com/pytorch/pytorch/issues/125718")
def complex_arithmetic():
    def f(x, z):
        w = z * 2j + (1 - 1j) ** 2
        return x * w.real, w.imag, abs(w), cmath.phase(w), z == z.conjugate(), cmath.sqrt(-1)

    return Made(f, [(ones(3), 1 + 2j), (ones(3), 3 + 0j)])


@program("https://github.com/pytorch/pytorch/issues/180843")
def complex_of_tensor_item():
    def f(x):
        z = complex(x[0].item(), 1.0)
        return x * z.real, z

    return Made(f, [(ones(3),), (ones(3) * 2,)])


@program("https://github.com/pytorch/pytorch/issues/196238")
def bytes_methods():
    def f(x, data):
        return x + data[0], data.hex(":"), data.decode("utf-8").title(), data.split(b" "), b"x" in data, data * 2

    return Made(f, [(ones(3), b"ab cd"), (ones(3), b"xy")])


@program("https://github.com/pytorch/pytorch/issues/196238")
def bytearray_and_memoryview():
    def f(x, data):
        buffer = bytearray(data)
        buffer[0] += 1
        buffer.extend(b"!")
        view = memoryview(data)
        return x * len(buffer), bytes(buffer), view[1], view[1:].tobytes(), view.nbytes

    return Made(f, [(ones(3), b"abc"), (ones(3), b"zz")])


@program("https://github.com/pytorch/pytorch/issues/146350")
def str_slices_and_comparison():
    def f(x, a, b):
        order = (a < b, a >= b, a == b, min(a, b), sorted(a), a[::-1], a[-2:], a * 2 + b)
        return x.cos() if order[0] else x.sin(), order

    return Made(f, [(ones(3), "abc", "abd"), (ones(3), "b", "ab"), (ones(3), "é", "z")])


@program("https://github.com/pytorch/pytorch/issues/146350")
def str_encode_errors():
    def f(x, text):
        try:
            data = text.encode("ascii")
        except UnicodeEncodeError as error:
            return x + error.start, error.reason, text.encode("ascii", "replace")
        return x - len(data), data.decode("ascii")

    return Made(f, [(ones(3), "abc"), (ones(3), "aé"), (ones(3), "ü")])


@program("https://github.com/pytorch/pytorch/pull/114507")
def math_on_ints_that_change():
    def f(x, a):
        return x + math.floor(a + 0.5) + math.radians(a), math.isqrt(a), math.gcd(a, 12), math.comb(a, 2), math.log2(a)

    return Made(f, [(ones(3), 12), (ones(3), 16), (ones(3), 9)])


@program("https://github.com/pytorch/pytorch/pull/114507")
def math_special_values():
    def f(x, v):
        if math.isnan(v) or math.isinf(v):
            return torch.zeros_like(x), math.copysign(1.0, v)
        return (
            x * math.exp(v),
            math.frexp(v),
            math.modf(v),
            math.hypot(v, 2.0),
            math.fsum([v, 0.1]),
            math.nextafter(v, 9),
        )

    return Made(f, [(ones(3), 0.5), (ones(3), -math.inf), (ones(3), -0.0)])


@program("https://github.com/pytorch/pytorch/issues/123810")
def finfo_and_iinfo():
    def f(x):
        info = torch.finfo(x.dtype)
        mask = torch.full((2, 2), info.min, dtype=x.dtype)
        return (
            mask.clamp(min=-1e4) + x,
            info.eps,
            info.bits,
            torch.iinfo(torch.int8).max,
            info.tiny == info.smallest_normal,
        )

    return Made(f, [(ones(2, 2),), (ones(2, 2).double(),), (ones(2, 2).half(),)])


@program("https://github.com/pytorch/pytorch/issues/107856")
def dtype_attributes():
    def f(x):
        d = x.dtype
        made = torch.zeros(2, dtype=d if d.is_floating_point else torch.float64)
        return (
            made + x,
            d.itemsize,
            d.is_complex,
            d.is_signed,
            str(d),
            d in (torch.float32, torch.int64),
            d.to_complex(),
        )

    return Made(f, [(ones(2),), (ones(2).double(),), (ones(2).half(),)])


@program("https://github.com/pytorch/pytorch/issues/107856")
def device_as_a_value():
    def f(x, where):
        device = torch.device(where)
        same = device == x.device, isinstance(x.device, torch.device), device.type, device.index, str(device)
        return torch.ones(2, device=x.device) + x, same, hash(device) == hash(torch.device("cpu")), {device: 1}

    return Made(f, [(ones(2), "cpu"), (ones(2), "meta"), (ones(2), "cpu:0")])


@program("https://github.com/pytorch/pytorch/issues/138077")
def type_of_a_tensor_as_text():
    def f(x):
        if x.type() == "torch.FloatTensor":
            return x + 1
        return x.type(torch.float64), x.type(), x.type_as(ones(1)).dtype

    return Made(f, [(ones(2),), (ones(2).int(),), (ones(2).double(),)])


@program("https://github.com/pytorch/pytorch/issues/106407")
def size_methods():
    def f(x):
        size = x.size()
        return (
            x.reshape(size[1:] + size[:1]),
            size.numel(),
            size.count(2),
            size.index(3),
            size == (2, 3),
            size[-1:],
            [*size],
        )

    return Made(f, [(ones(2, 3),), (ones(3, 2),), (ones(2, 3, 2),)])


@program("https://github.com/pytorch/pytorch/issues/110880")
def dunder_method_of_a_tensor_by_name():
    def f(x, name):
        return getattr(x, name)(3), x.__and__(1), x.__rsub__(10)

    return Made(f, [(torch.arange(4), "__or__"), (torch.arange(4), "__xor__"), (torch.arange(4), "__lshift__")])


@program("https://github.com/pytorch/pytorch/issues/119152")
def bool_arithmetic():
    def f(x, flag):
        return x * flag, flag + True, flag & False, flag ^ True, -flag, int(flag), flag and x, not flag, [1, 2][flag]

    return Made(f, [(ones(2), True), (ones(2), False)])


@program("https://github.com/pytorch/pytorch/issues/154432")
def size_plus_tuple():
    def f(x):
        sizes = x.shape + x.shape, x.shape + (), (1,) + x.shape, x.shape * 2, x.shape[:1]
        return x.reshape(x.shape + (1,)), sizes, [type(s) is torch.Size for s in sizes], torch.Size([2]) == (2,)

    return Made(f, [(ones(2, 3),), (ones(3, 3),), (ones(4, 3),)])


@program("https://github.com/pytorch/pytorch/issues/93706")
def size_is_returned_and_printed():
    def f(x):
        size = x.size()
        return size, x.shape[:-1], str(size), x.stride(), x.view(-1, size[-1]).shape

    return Made(f, [(ones(2, 3),), (ones(4, 3),), (ones(5, 3),)])


@program("https://github.com/pytorch/pytorch/issues/196467")
def tensor_of_a_size():
    def f(x):
        return torch.Tensor(x.size()).shape, torch.Tensor(tuple(x.size())), torch.tensor(x.shape), x.new_zeros(x.shape)

    return Made(f, [(ones(1, 4),), (ones(2, 2),)])


@program("https://github.com/pytorch/pytorch/pull/196436")
def int_and_float_conversions_that_fail():
    def f(x, v):
        said = []
        for kind, value in ((int, v), (float, 10**400), (int, "12x"), (round, v), (complex, "j2")):
            try:
                said.append(kind(value))
            except (OverflowError, ValueError) as error:
                said.append(str(error))
        return x + len(said), said

    return Made(f, [(ones(3), float("inf")), (ones(3), 2.5), (ones(3), float("nan"))])


@program("https://github.com/pytorch/pytorch/issues/128071")
def address_modulo_alignment():
    def aligned(x):
        return x if x.data_ptr() % 16 == 0 else x.clone()

    def f(x):
        return aligned(x) + 1, aligned(x[1:]) * 2

    return Made(f, [(ones(4),), (ones(5),)])
