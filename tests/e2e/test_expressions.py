"""One expression a function: what a tracer evaluates itself has Python's value, type and exception. A break is fine, a
wrong value is not. The torch expressions run on special values, and on both ways a graph runs."""

# ruff: noqa

import abc

import mode
import pytest
import torch
from samples import Color, Flags, Level
from support import check

import flambeau


class Plain:
    pass


class Abstract(abc.ABC):
    @abc.abstractmethod
    def go(self): ...


class Concrete(Abstract):
    def go(self):
        return 1

    def __call__(self):
        return 2


class Loud:
    def __eq__(self, other):
        return "eq"

    def __lt__(self, other):
        return []

    def __bool__(self):
        return False

    def __len__(self):
        return 3

    def __index__(self):
        return 2

    def __getitem__(self, key):
        return key

    def __neg__(self):
        return "neg"

    def __rsub__(self, other):
        return ("rsub", other)

    def __hash__(self):
        return 7


NAN = float("nan")
EITHER = int | None
PYTHON = """
-7 // 2; -7 % 3; 7 % -3; -7.5 // 2; -7.5 % 2; 7.5 % -2; divmod(-7, 2); divmod(7.5, -2); 2**100; 2**-1; (-2) ** 3; (-8) ** (1/3)
0.1 + 0.2; 1e16 + 1; 1 / 3; 10**20 // 3; -(10**20) % 7; 5 & 3 | 8 ^ 1; ~5; 1 << 70; -1 >> 3; 2**63; -2**63; 2**63 - 1 + 1; 2**62 * 4
True + True; True & False; True ^ 1; ~True; -True; True / 2; round(2.5); round(3.5); round(2.675, 2); round(-1.5); round(1234, -2); round(1e300)
int(-2.7); int("0x1f", 16); int(" 12 "); int("1_000"); float("1e-3"); float("-inf"); float(" nan ") != 0; abs(-3); abs(-0.0); pow(3, 4, 5); pow(2, -1)
math.floor(-2.5); math.ceil(-2.5); math.trunc(-2.5); math.copysign(1, -0.0); math.sqrt(2); math.log(8, 2); math.log2(8); math.gcd(12, 18); math.hypot(3, 4)
math.isclose(0.1 + 0.2, 0.3); math.factorial(20); math.comb(5, 2); math.fmod(-7, 3); math.pi; math.inf; math.prod([2, 3]); math.isnan(NAN); math.exp(1); math.atan2(1, -1)
1 == 1.0; NAN == NAN; NAN != NAN; min(3, 1.0, 2); max([1, True, 1.0]); max(True, 1); min(1, True); sum([0.1] * 10); sum([1, 2], 5); bool(0.0); bool(NAN)
complex(1, 2) * 2j; (7).bit_length(); (0.5).as_integer_ratio(); (2.0).is_integer(); 0.0 == -0.0; 1 < 2 < 3 > 2; 1 < 3 < 2; 0.0 or -0.0; (1).real; (3).numerator
1 // 0; 1 % 0; 1.0 / 0; 0.0 // 0; 1 << -1; math.sqrt(-1); math.log(0); 10**400 * 1.0; int("q"); float("x"); int(NAN); int(math.inf); chr(-1); ord("ab"); round(NAN)
"a" < "b"; "a" + "b"; "ab" * 2; 2 * "ab"; "ab" * -1; "b" in "abc"; "" in "abc"; "abc"[-1]; "abc"[5:]; "abc"[::-1]; "abc"[7]; "é".encode(); "aé😀"[2]; len("aé😀")
"Hello".lower(); "Hello".upper(); "a, b".split(", "); " a  b ".split(); "a,b,c".split(",", 1); "a,b,c".rsplit(",", 1); "abab".replace("ab", "x", 1); "hello".find("l", 3)
"abc".startswith(("x", "a")); "abc".startswith("b", 1); "abc".endswith("c"); "a,b".partition(","); "ab".partition(","); "a,b,c".rpartition(","); " x ".strip(); "xxaxx".lstrip("x")
",".join("12"); ",".join([]); ",".join([1]); "abc def".title(); "aBc".swapcase(); "3".zfill(3); "-3".zfill(4); "hello".count("l"); "ab".isidentifier(); "12".isdigit(); "²".isdigit()
ord("a"); chr(98); "a\\nb\\n".splitlines(); "x".center(5, "."); "x".ljust(3) + "|"; "abc".removeprefix("a"); "a\\tb".expandtabs(); "abc".index("z"); "abc".rfind("c"); "ß".upper(); "ǆ".title()
sorted("hello"); "".join(reversed("abc")); max("abc"); list("abc"); set("aa") == {"a"}; "%s %d %5.2f %r %x %%" % ("a", 3, 2.5, "q", 255); "%d" % "x"; "%(k)s" % {"k": 1}; "%s" % (1,)
"{0} {1} {k!r:>5}".format(1, 2, k="z"); "{} {}".format(1, 2); "{}".format(); "{a[0]} {b.real}".format(a=[1], b=2); "{:>{w}}".format("x", w=4); "{{}}".format(); str(None); str([1, "a"]); str({"k": (1,)})
f"{1234.5678:.2f} {1234.5678:10.1e} {1234.5678:+g} {1234.5678:,.3f} {0.5:%}"; f"{1e22} {1e-7} {1.0} {math.inf} {-0.0} {1e16} {123456789.123456789}"; f"{1e15} {1e-5} {0.0001} {5e-324} {1.7976931348623157e308}"
f"{42:05d} {42:x} {42:#b} {-42:,} {42:>6} {42:^6} {42:<6}|"; f"{'s':>5}|{'s':*^5}|{'long':.2}"; f"{True} {None} {True:d} {3:.1f} {3:e}"; f"{[1, 'a', 1.5]} {(1,)} { {'k': 1} } {()}"; f"{2.5:{6}.{3}f}"; f"{'x'!r:>6}"; f"{3!s:>4}"
repr("it's"); repr('a"b'); repr("a\\n\\t\\\\\\x00é"); repr(1.0); repr(b"a\\xff"); repr((1,)); repr(slice(1, 2)); repr(range(3)); repr(Level.HIGH); str(Level.HIGH); str(Color.RED); repr(Color.RED); f"{Level.HIGH}"
b"abc"[0]; b"abc"[1:]; b"abc".decode(); bytes([1, 2]); list(b"ab"); b"abc".hex(); b"a" + b"b"; b"a" in b"abc"; bytearray(b"x"); "a" == b"a"
[1, 2] + [3]; [1, 2] * 2; [1, 2] < [1, 3]; [1, 2] == (1, 2); (1, "a") < (2,); (1, 2) + (3,); (1, 2) + [3]; [1][5]; (1, 2).index(5); [1, 2].index(5); [1, 2].count(1); (1, 2, 1).count(1); [].pop(); [1, 2, 3]["a"]; [1] < 1
sorted([3, 1.0, True]); sorted(["bb", "a", "cc"], key=len, reverse=True); sorted([(1, "b"), (1, "a")]); sorted([1, "a"]); sorted({3, 1, 2}); min([]); max([], default=3); min("b", "a"); max([1, 2], key=lambda x: -x); sorted([3, 1], reverse=1)
list(reversed([1, 2])); list(zip([1, 2], "ab")); list(zip([1], [2, 3], strict=True)); list(enumerate("ab", 5)); list(map(lambda x, y: x + y, [1, 2], [10, 20, 30])); list(filter(None, [0, 1, "", "a"])); any([]); all([]); any([0, 2]); sum([[1], [2]], [])
list(range(10, 0, -3)); len(range(0, 10, 3)); 4 in range(10, 0, -3); range(5)[-1]; range(5)[1:3]; range(0) == range(2, 2); range(3)[5]; list(range(True)); range(1.5); slice(None, -1, 2).indices(5); list(range(5))[slice(1, None, 2)]; hash(1) == hash(1.0)
{1: "int", True: "bool", 1.0: "float"}; {"a": 1} | {"b": 2}; {"a": 1} == {"a": 1.0}; dict(a=1, **{"b": 2}); dict([("a", 1)]); dict([1]); {}["x"]; {"a": 1}.get("b"); {"a": 1}.pop("z"); {"a": 1}.keys() & {"a"}; {"a": 1}.keys() == {"a"}; list({"b": 1, "a": 2}); {1: 2}[[]]; {[]: 1}
{1, 2} | {3}; {1, 2} & {2}; {1, 2} - {2}; {1, 2} ^ {2, 3}; {1, 2} <= {1, 2, 3}; frozenset([1]) == {1}; len({1, True, 1.0}); {1} < {1}; 1 in {1.0}; {1, 2}.isdisjoint([3]); set([1, 1]); {NAN} == {NAN}; frozenset({1, 2}) | {3}; {1}.union([2], (3,)); {1} | [2]
NAN in [NAN]; [NAN] == [NAN]; [NAN].index(NAN); (NAN,) == (NAN,); {"k": NAN} == {"k": NAN}; [0.0] == [-0.0]; [1, 2][True]; [1, 2][-3]; [[1]] * 2 == [[1], [1]]; [] is []; () is (); None is None; 1.5 is 1.5; "a" is "a"; Ellipsis is ...; NotImplemented is None
int | str; int | int; None | int; Plain | None | int | Plain; (int | str) | (str | float); (int | str).__args__; int | 3; 3 | int; (int | str) == (str | int); (int | str) == (int | float); (int | None) == int; isinstance("a", int | None); isinstance(None, int | None); isinstance(a, int | torch.Tensor); issubclass(bool, str | int); issubclass(bool, str | None); isinstance(1, list[int] | int); isinstance(1, str | list[int]); isinstance([], Sequence | None); isinstance(1, EITHER); EITHER | float; EITHER.__args__; issubclass(int, EITHER); len({EITHER: 1}); repr(int | str)
isinstance(1, int); isinstance(True, int); isinstance(1, (str, int)); isinstance(1, int | str); isinstance([], Sequence); isinstance({}, Mapping); isinstance("s", Sequence); isinstance(len, Callable); isinstance(lambda: 1, Callable); isinstance(Concrete(), Callable); isinstance(Plain(), Callable)
isinstance([], Iterable); isinstance(iter([]), Iterator); isinstance((i for i in []), Iterator); isinstance(1, Hashable); isinstance([], Hashable); isinstance({}, Sized); isinstance(Plain(), Sized); isinstance(Loud(), Sized); isinstance(Concrete(), Abstract); issubclass(bool, int); issubclass(int, (str, float)); isinstance(int, type); isinstance(None, type(None))
type(1).__name__; type("s") is str; type(a).__name__; type(lambda: 1).__name__; type(len).__name__; type(Plain).__name__; type(Plain()).__name__; type(None).__name__; type(...).__name__; type(i for i in []).__name__; type(math).__name__; type(Plain().__init__).__name__; type([].append).__name__; type({}.keys()).__name__; type(type).__name__; int.__name__; Plain.__qualname__; type(iter([])).__name__
callable(len); callable(3); callable(Plain); callable(Plain()); callable(Concrete()); hasattr([], "append"); hasattr([], "nope"); hasattr(1, "bit_length"); hasattr("", "swapcase"); hasattr(1.0, "hex"); hasattr({}, "__or__"); hasattr(lambda: 1, "__code__"); hasattr(Plain(), "x"); hasattr(a, "nope"); hasattr(a, "relu"); hasattr(math, "nope"); hasattr(len, "__self__"); hasattr(a.shape, "numel"); hasattr((), "numel"); hasattr((i for i in []), "send"); hasattr(Color, "RED"); hasattr(Color.RED, "nope"); getattr(1, "nope", "d")
Loud() == 1; Loud() != 1; Loud() < 1; not Loud(); bool(Loud()); len(Loud()); [1, 2, 3][Loud()]; Loud()[1:2]; -Loud(); 5 - Loud(); 1 in [Loud()]; [Loud()].index(3); Loud() + 1; Plain() + 1; Plain() < Plain(); Plain() == Plain(); -Plain(); Plain()[0]; len(Plain()); Plain()(); 1 in Plain(); iter(Plain()); Plain().x; hash(Loud()); {Loud(): 1}[Loud()]; +Loud(); abs(Plain()); max(Loud(), 1); bool(Plain())
None[0]; None(); (1).nope; "a" + 1; 1 + "a"; len(3); iter(3); next(iter([])); next(3); [] < 1; 1.5 << 2; -"a"; ~1.5; +"a"; 1 < "a"; None < 1; 1 in 5; "a" in 5; 5 in "a"; [1] + (2,); setattr(3, "x", 1); del_(3); undefined_name; int([]); float(None); str(1, 2, 3); int(); float(); bool(); str(); list(3); tuple("ab"); dict(1); set(1)
Color.RED is Color(1); Color["BLUE"].value; Color.RED.name; Color(5); Level.HIGH > 3; Level.HIGH + 1; Level.HIGH == 5; [c.name for c in Color]; Color.RED in (Color.BLUE, Color.RED); {Color.RED: 1}[Color.RED]; Color.RED == 1; Flags.A | Flags.B; (Flags.A | Flags.B).value; len(Color); Color.RED != Color.BLUE; Level(1); Level.LOW is Level.LOW; {1: "x"}[Level.LOW]; f"{Level.LOW:>3}"; Color.NOPE; isinstance(Level.LOW, int); Level.LOW.real
list(itertools.chain([1], (2, 3))); list(itertools.islice(itertools.count(3, 2), 3)); list(itertools.product([1, 2], "ab")); list(itertools.zip_longest([1], [2, 3], fillvalue=0)); list(itertools.accumulate([1, 2, 3])); list(itertools.combinations(range(3), 2)); list(itertools.repeat(1, 2)); list(itertools.starmap(operator.add, [(1, 2)])); list(itertools.takewhile(lambda x: x < 2, [1, 2, 1])); list(itertools.pairwise([1, 2, 3])); list(itertools.permutations([1, 2])); [k for k, g in itertools.groupby("aab")]; list(itertools.islice([1, 2, 3, 4], 1, None, 2)); list(itertools.chain.from_iterable([[1], [2]])); list(itertools.dropwhile(bool, [1, 0, 1]))
operator.add(1, 2); operator.mul(2, 3); operator.itemgetter(1)([1, 2]); operator.attrgetter("real")(3); operator.neg(1); operator.getitem([1, 2], 0); operator.contains([1], 1); operator.index(True); operator.truth([]); operator.is_(None, None); operator.methodcaller("upper")("a"); operator.floordiv(-7, 2); operator.concat([1], [2])
collections.Counter("aab")["a"]; collections.deque([1, 2], maxlen=1)[0]; collections.OrderedDict(a=1) == {"a": 1}; collections.defaultdict(int)["x"]; list(collections.OrderedDict(b=1, a=2)); collections.ChainMap({"x": 1})["x"]; len(collections.deque([1])); collections.defaultdict(list, a=[1])["a"]; repr(collections.OrderedDict(a=1)); type(collections.OrderedDict()).__name__; isinstance(collections.OrderedDict(), dict)
a.shape == (4, 6); a.shape[0]; a.shape[1:]; a.shape + (1,); a.shape.numel(); list(a.shape); a.size(-1); torch.Size([1, 2]); torch.Size((2,)) + a.shape; type(a.shape[:1]).__name__; str(a.shape); a.shape * 2; (1,) + a.shape; a.stride(); a.dim(); len(a); a.numel(); a.dtype; str(a.dtype); a.device; str(a.device); repr(a.device); a.is_contiguous(); a.element_size(); a.ndim; a.nbytes; a.itemsize; a.is_leaf; a.grad; a.grad_fn; a.storage_offset(); a.is_floating_point(); a.layout; a.T.shape; a.t().is_contiguous(); a.requires_grad; a._version; a.names; a.data_ptr() > 0; a.type(); a.get_device(); a.is_sparse; a.output_nr; a.is_complex()
a is a; a is b; [a, b].index(a); a in [a]; a == None; a != None; a == "x"; a in (b, a); {a: 1}[a]; len({a, b}); isinstance(a, torch.Tensor); type(a) is torch.Tensor; a is None; bool(a[0, 0] > 100); float(a[0, 0]); int(a[0, 0]); a[0, 0].item(); a.tolist(); f"{a[0, 0]:.2f}"; str(a); [x for x in a[0]]; a and b; not a; 1 if a[0, 0] else 2; max(a[0, 0], b[0, 0]); range(3)[a[0, 0] > 100]; [1, 2][torch.tensor(1)]; a.shape is a.shape; a.T is a.T; round(a[0, 0]); math.sqrt(torch.tensor(4.0)); "x" * torch.tensor(2); sorted([a[0, 0], b[0, 0]]); hash(a) == hash(a); a < "x"; a + "x"; a + None; a + [1]; [1] + a[0]; (1,) * a.dim(); a @ 3; a[7]; a[0, 0, 0]; a[[]]; a[()]; a["x"]; a[1.5]; a[None].shape; a[...].shape; a[True].shape; a[False].shape; a.nope; a.shape.nope; a.view(5); a.reshape(-1, 5); a.size(3); torch.nope; len(a[0, 0]); iter(a[0, 0])
torch.finfo(torch.float32).eps; torch.iinfo(torch.int8).max; torch.finfo(torch.float16).min; torch.finfo(torch.bfloat16).tiny; torch.broadcast_tensors(a, b)[0] is a; [t is a for t in torch.broadcast_tensors(a, a[:1])]; torch.broadcast_tensors(a[:1], b)[0] is b; [torch.finfo(d).resolution for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]; torch.finfo(a.dtype).bits; torch.float32.itemsize; torch.float32.is_floating_point; torch.promote_types(torch.int8, torch.float16); torch.result_type(a, 1); torch.can_cast(torch.float, torch.int); torch.get_default_dtype(); torch.is_tensor(a); torch.is_floating_point(a); torch.numel(a); torch.is_grad_enabled(); torch.device("cpu").type; torch.device("cuda", 1).index; torch.device("cuda:1") == torch.device("cuda", 1); str(torch.device("cpu")); torch.cuda.is_available(); torch.broadcast_shapes((1, 2), (3, 1)); torch.float is torch.float32; torch.__version__ > "1"; torch.iinfo(torch.uint8).min; torch.finfo(torch.int8); torch.is_same_size(a, b); torch.equal(a, b); torch.allclose(a, a); torch.overrides.is_tensor_like(a)
"""

TORCH = """
x + y; x * 0; x / 0; 0 / x; x % 2; x // 2; 2 // x; x - y; x * y; x / y; x.max(); x.min(); x.nansum(); torch.maximum(x, y); torch.minimum(x, y); torch.fmax(x, y); torch.fmin(x, y); x.clamp(min=0); x.clamp(max=0); x.clamp(-1, 1); x.clamp(0.5, -0.5); x == x; x != x; x > y; x >= y; x < 0; x <= 0
x.sign(); x.sgn(); x.abs(); x.sqrt(); x.log(); x.log2(); x.log10(); x.rsqrt(); x.round(); x.round(decimals=1); x.floor(); x.ceil(); x.trunc(); x.frac(); x.exp(); x.exp2(); x.tanh(); x.sigmoid(); x.sin(); x.cos(); x.tan(); x.asin(); x.acos(); x.atan(); x.sinh(); x.cosh(); x.asinh(); x.acosh(); x.atanh(); x.erf(); x.erfc(); x.log1p(); x.expm1(); x.reciprocal(); x.square(); -x; x.neg(); x.logit(); x.lgamma(); x.digamma()
F.relu(x); F.relu6(x); F.gelu(x.nan_to_num(0, 50, -50).clamp(-50, 50)); F.gelu(x, approximate="tanh"); F.silu(x); F.softplus(x); F.softsign(x); F.leaky_relu(x); F.elu(x); F.selu(x); F.celu(x); F.hardswish(x); F.hardsigmoid(x); F.hardtanh(x); F.mish(x); F.logsigmoid(x); F.tanhshrink(x); F.softshrink(x); F.hardshrink(x); F.threshold(x, 0.5, 2.0); F.prelu(x, torch.full((1,), 0.25)); F.glu(x[:8])
x.isnan(); x.isinf(); x.isfinite(); x.isposinf(); torch.nan_to_num(x); torch.nan_to_num(x, 1.0, 2.0, 3.0); x.softmax(0); x.log_softmax(0); x.logsumexp(0); F.softmin(x, 0); x.argmax(); x.argmin(); x.sort().values; x.sort(descending=True).indices; x.pow(2); x.pow(3); x.pow(0.5); x.pow(0); x.pow(-1); x.pow(-0.5); x**y; 2**x; torch.copysign(y, x); x.logical_not(); x.bool(); x.cumsum(0); x.cumprod(0); x.prod(); x.sum(); x.mean(); x.std(); x.var(); x.norm(); x.amax(); x.amin(); x.any(); x.all(); torch.atan2(x, y); x.lerp(y, 0.5); x.hypot(y); torch.signbit(x)
torch.where(x > 0, x, y); torch.where(x > 0, x, 0.0); torch.where(x.isnan(), 1.0, x); x.masked_fill(x > 0, -1.0); x.masked_fill(x.isnan(), float("-inf")); torch.addcmul(x, y, y, value=2); torch.addcdiv(x, y, y + 1); torch.add(x, y, alpha=-2); torch.sub(x, y, alpha=2); torch.rsub(x, 1); x.remainder(3); x.fmod(2); x.float().to(torch.int32).float() * 0; x[3:].int(); x[5:7].to(torch.uint8); x.half(); x.bfloat16(); x.double(); x.half().float(); x.bfloat16().float(); x.heaviside(y); torch.logaddexp(x, y); torch.xlogy(x, y); x.dist(y); x.ldexp(y); torch.logical_and(x, y); torch.logical_xor(x, y); x.nextafter(y); x.bool() & y.bool(); (x > 0).float() * x; (x > 0).sum(); (x > 0).any(); x.nan_to_num().cumsum(0); x.clamp_min(0.0); x.clamp_max(y); x.clamp(y, x); torch.floor_divide(x, 0.3); x.true_divide(3); torch.div(x, 0.7, rounding_mode="floor"); torch.div(x, 0.7, rounding_mode="trunc"); torch.rad2deg(x); x.deg2rad(); torch.sinc(x); x.i0(); x.positive(); abs(x); x.min(y); x.max(0).values; x.nanmean(); x.median(); x.nanmedian(); x.count_nonzero(); x.var(unbiased=False); x.std(0, keepdim=True); F.normalize(x[None]); F.layer_norm(x, (9,)); F.mse_loss(x, y); F.l1_loss(x, y); F.smooth_l1_loss(x, y); F.binary_cross_entropy_with_logits(x, y.sigmoid())
"""


def split(text):
    return [e.strip() for line in text.strip().splitlines() for e in line.split(";") if e.strip()]


def function(expression, arguments):
    """`lambda arguments: expression`, with this file's globals."""
    source = mode.source(f"def f({arguments}):\n    return {expression}\n")
    space = {}
    exec(compile(source, f"<{expression}>", "exec"), globals(), space)
    return space["f"]


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("expression", split(PYTHON))
def test_python(expression):
    torch.manual_seed(0)
    check(
        function(f"({expression}, a + 1)[0]", "a, b"),
        (torch.randn(4, 6), torch.randn(4, 6)),
        graphs=None,
        backend="eager",
    )


@pytest.mark.parametrize("expression", split(TORCH))
def test_torch_special_values(expression):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0, 1e-42, 3e38])
    check(function(expression, "x, y"), (x, x.flip(0)), (x * 0.3, x), graphs=None, backend="cpu")


def test_most_expressions_are_folded():
    """The tracer evaluates plain arithmetic itself: no break."""
    before = flambeau.counters()
    folded = ["-7 // 2", "2**100", "f'{1.5:.2f}'", "sorted([3, 1])", "'a,b'.split(',')", "len(range(3))"]
    unions = ["isinstance(1, int | None)", "isinstance(1, EITHER)", "int | str"]
    for expression in folded + unions:
        flambeau.compile(function(f"({expression}, a + 1)", "a"), backend="eager")(torch.ones(1))
    assert flambeau.counters()["graphs"] - before["graphs"] == 9
    assert mode.MODE == "leaf" or flambeau.counters()["graph_breaks"] == before["graph_breaks"]


LARGE = 10**20
# Expressions of an int that differs between calls, and what no size can be.
SIZED = """
LARGE + n; n + LARGE; LARGE - n; n - LARGE; LARGE * n; n * LARGE; LARGE // n; n // LARGE; LARGE % n; n % LARGE; LARGE ** n
LARGE << n; LARGE >> n; n < LARGE; n > LARGE; n == LARGE; LARGE == n; n != LARGE; n / LARGE; LARGE / n; LARGE & n; n | LARGE
n ^ LARGE; n == complex(n); n == 3 + 0j; (n + 0j) == n; n == 3.0; n < 2.5; n + 1j; n // 2.5; 2.5 % n; n * 1e308 * 10
b"x" * n; n * b"x"; "x" * n; n * "x"; (1,) * n; n * [1]; "%d" % n; "%s-%s" % (n, LARGE); b"%d" % n; f"{n + LARGE}"
divmod(LARGE, n); divmod(n, LARGE); pow(n, 2, 7); pow(LARGE, n); max(n, LARGE); min(LARGE, n); sum([LARGE, n])
n == None; n == "x"; None != n; n in (LARGE, 3); LARGE in (n,); [LARGE, n].index(n); sorted([LARGE, n, 2.5]); (LARGE, n) < (LARGE, 5)
n + None; None * n; "a" + n; n - "a"; n @ 2; {1} | n; n < "a"; n < None; bool(n - LARGE); int(LARGE - n); ~n + LARGE
n <= 3; 3 <= n; n >= 3; (n, 1) <= (3, 1); (n - 20) // 3; (n - 20) % 3; (3 - 2 * n) // n; divmod(1 - n, 2)
"""
SIZED = [e.strip() for line in SIZED.split("\n") for e in line.split(";") if e.strip()]


@pytest.mark.parametrize("expression", SIZED)
def test_sizes_beside_other_constants(expression):
    names = {"LARGE": LARGE}
    exec(
        f"def f(x, n):\n    try:\n        z = {expression}\n    except Exception as error:\n"
        "        return type(error).__name__, str(error)\n    return z, x + 1",
        names,
    )
    for dynamic in (None, True):
        flambeau.reset()
        compiled = flambeau.compile(names["f"], dynamic=dynamic)
        for n in (3, 5, 7, 4):
            assert repr(compiled(torch.ones(2), n)) == repr(names["f"](torch.ones(2), n)), (dynamic, n)


class Index:
    def __index__(self):
        return 1


STATEMENTS = [
    "del items[k]",
    "items[k] = 3",
    "items.append(items[k])",
    "items.pop(k)",
    "(1, 2)[k]",
    "range(3)[k]",
    "'ab'[k]",
]


@pytest.mark.parametrize("statement", [*STATEMENTS, "b'ab'[k]"])
def test_positions(statement):
    """What is in range, out of it, and no position, in lists of three lengths; and one that becomes symbolic."""
    names = {}
    exec(
        f"def f(x, items, k):\n    try:\n        {statement}\n    except Exception as error:\n"
        "        return type(error).__name__, str(error), items\n    return items, x + 1",
        names,
    )
    f = names["f"]
    for length in (0, 1, 3):
        for k in (0, 5, -7, LARGE, -LARGE, None, "a", 1.5, True, Index(), (1,), slice(0, 1)):
            flambeau.reset()
            compiled = flambeau.compile(f)
            for _ in range(2):
                found = repr(compiled(torch.ones(1), [1] * length, k))
                assert found == repr(f(torch.ones(1), [1] * length, k)), (length, k)
    compiled = flambeau.compile(f, dynamic=True)
    for k in (0, 5, 7, -9, 1):
        assert repr(compiled(torch.ones(1), [1, 2], k)) == repr(f(torch.ones(1), [1, 2], k)), k
