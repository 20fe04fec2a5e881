"""Templates by theme, in the form of `rare.py`: default dtypes, weak references and finalizers, opaque numbers, copies,
identity."""

#: Under another default dtype, with ints, Python numbers and tensors mixed.
DTYPES = [
    ("torch.set_default_dtype(torch.float64)\n{new} = torch.tensor([{i}, 2]) / 2 + {i}", "t"),
    ("torch.set_default_dtype({cond} and torch.float64 or torch.float32)\n{new} = torch.ones(3) * 0.5", "t"),
    ("torch.set_default_dtype(torch.float64)\nflambeau.graph_break()\n{new} = torch.full((3,), 1.5) + {t}\ntorch.set_default_dtype(torch.float32)", "t"),
    ("torch.set_default_dtype(torch.float64)\nSEEN.append((torch.tensor([16777217]) > 16777216.5, torch.tensor(1.5).dtype, torch.arange({i}, 9, 0.5).dtype))", ""),
    ("{a} = torch.get_default_dtype()\ntorch.set_default_dtype(torch.float16)\n{new} = torch.zeros(3) + {i}\ntorch.set_default_dtype({a})", "t"),
    ("{a} = torch.tensor([{i}, 1, 2])\n{new} = {a} * 0.5 + {a}.true_divide(2) + {a}.sqrt() * 0", "t"),
    ("SEEN.append((torch.result_type({t}, 1.5), torch.tensor([{i}]).mean(dtype=torch.get_default_dtype()), torch.get_default_dtype()))", ""),
    ("{new} = torch.tensor([{i}, 0, 1]).add(0.5) + torch.tensor(True) + torch.linspace(0, 1, 3)", "t"),
    ("{new} = torch.stack([torch.tensor(1.0), torch.tensor({i} / 2), torch.as_tensor(0.25)])", "t"),
    ("torch.set_default_dtype(torch.bfloat16)\ntry:\n    {new} = torch.tensor([{i} / 2, 1.0, 2]).where({t}.reshape(-1)[0] > 0, 0.5)\nfinally:\n    torch.set_default_dtype(torch.float32)", "t"),
    ("{new} = torch.where(torch.tensor([{i}, 0, 1]) > 0, 1.5, {i})", "t"),
    ("SEEN.append([v.dtype for v in (torch.tensor([1]) ** 0.5, torch.tensor([1]) ** 2, torch.tensor([True]) * 2, torch.tensor([1j]).abs(), torch.tensor([1]).float(), torch.tensor([]))])", ""),
]  # fmt: skip
#: Who is alive, and who is told.
LIVES = [
    ("{a} = Box({t}, {i})\n{b} = weakref.ref({a})\nSEEN.append({b}() is {a})\ndel {a}\nSEEN.append({b}() is None)", ""),
    ("{a} = Box({t}, {i})\n{b} = weakref.ref({a}, lambda r: SEEN.append('dead'))\n{a} = None\nSEEN.append({b}())", ""),
    ("{a} = weakref.WeakKeyDictionary()\n{a}[GB] = {i}\nSEEN.append({a}[GB])\nSEEN.append(GB in {a})", ""),
    ("{a} = weakref.WeakSet([GB, PEEK])\nSEEN.append((len({a}), GB in {a}, {i}))", ""),
    ("{a} = weakref.ref(GB)\nflambeau.graph_break()\n{new} = {a}().k", "i"),
    ("{a} = weakref.proxy(GB)\n{new} = {a}.k + len({a})", "i"),
    ("{a} = weakref.WeakMethod(GB.step)\n{new} = {a}()({t}, {i})", "t"),
    ("SEEN.append((weakref.ref(GB) is weakref.ref(GB), weakref.getweakrefcount(NS), weakref.ref(GB) == weakref.ref(GB)))", ""),
    ("class {a}(Ends):\n    pass\n{b} = {a}({i})\n{b} = {a}('2')\nSEEN.append({b}.tag)\ndel {b}", ""),
    ("def {a}():\n    {b} = Ends('inner')\n    flambeau.graph_break()\n    return {i}\n{new} = {a}()", "i"),
    ("{a} = weakref.ref({tv})\nSEEN.append({a}() is {tv})\n{tv} = {t} + 1", ""),
    ("{a} = [Ends('l')]\n{a}.clear()\nSEEN.append(len({a}))", ""),
    ("{a} = {{'e': Ends('d')}}\n{a}['e'] = {i}\n{new} = {a}['e']", "i"),
]  # fmt: skip
#: Numbers that no trace may keep, carried and computed with.
OPAQUE = [
    ("{a} = time.time()\nflambeau.graph_break()\n{new} = int(time.time() - {a} < 999)", "i"),
    ("{a} = time.perf_counter()\n{tv} = {t}\nprint('timed')\n{new} = int({a} > 0) + {i}", "i"),
    ("{a} = random.random()\nflambeau.graph_break()\nSEEN.append({a})\n{new} = int({a} * 4)", "i"),
    ("random.seed({i})\n{new} = random.randrange(5)\nSEEN.append(random.choice([1, 2, {i}]))", "i"),
    ("{a} = random.random()\n{tv} = {tv} + ({a} > 0.5)", ""),
    ("{a} = [time.monotonic(), {i}]\nflambeau.graph_break()\n{new} = {a}[1]\nSEEN.append({a}[0] > 0)", "i"),
    ("{a} = os.getpid()\nflambeau.graph_break()\nSEEN.append({a} == os.getpid())", ""),
    ("{a} = time.time_ns()\nfor {b} in range(3):\n    flambeau.graph_break()\n    {tv} = {t}\nSEEN.append({a} <= time.time_ns())", ""),
    ("def {a}(began):\n    flambeau.graph_break()\n    return time.time() - began\n{new} = int({a}(time.time()) * 0)", "i"),
    ("{a} = float({s})\nflambeau.graph_break()\n{new} = {t} + {a}", "t"),
    ("{a} = random.Random({i})\nSEEN.append(({a}.random(), {a}.randint(0, 3)))", ""),
    ("{a} = datetime.datetime.now()\nflambeau.graph_break()\nSEEN.append({a} <= datetime.datetime.now())", ""),
    ("SEEN.append((datetime.date.fromisoformat('2020-01-02').year, datetime.timedelta({i}).days, datetime.datetime(2020, 1, 2).isoformat()))", ""),
]  # fmt: skip
#: Copies, pickles, equal objects that are not the same, conversions.
COPIES = [
    ("{a} = copy.deepcopy({{'a': {lv}, 'b': {lv}, 't': {t}}})\nSEEN.append({a}['a'] is {a}['b'])\n{new} = {a}['t']", "t"),
    ("{a} = copy.copy(GB)\n{a}.k = {i}\nSEEN.append(({a}.items is GB.items, GB.k))", ""),
    ("{a} = copy.deepcopy(GB)\n{a}.items.append({i})\nSEEN.append((len(GB.items), {a}.t is GB.t))", ""),
    ("{a} = pickle.loads(pickle.dumps(({lv}, {i}, 'q')))\nSEEN.append({a})", ""),
    ("{a} = ''.join(['a', 'b'])\nSEEN.append(({a} is 'ab', {a} == 'ab', sys.intern({a}) is sys.intern('ab')))", ""),
    ("{a} = frozenset({lv})\nSEEN.append((frozenset({a}) is {a}, tuple(()) is (), tuple({lv}) is {lv}, str('q') is 'q'))", ""),
    ("{a} = dict(b={i}, a=1)\n{a}['b'] = {a}.pop('b')\nSEEN.append((list(dict({a})), list({a} | {{'c': 1}}), list(reversed({a}))))", ""),
    ("{a} = {{'a': {i}}}\nSEEN.append(({a}.fromkeys('xy', 2), dict.fromkeys([{i}]), {a}.keys() == {{'a'}}, {a}.items() & {{('a', 1)}}))", ""),
    ("{a} = copy.copy(Pair({t}, [{i}]))\nSEEN.append({a}.k)\n{b} = copy.deepcopy({a})\nSEEN.append({b}.k is {a}.k)", ""),
    ("{a} = Record({i}, [1])\n{b} = dataclasses.replace({a}, k=2)\nSEEN.append(({b}.items is {a}.items, dataclasses.asdict({b}), dataclasses.astuple({a})))", ""),
    ("SEEN.append((Color(1) is Color.RED, Color['RED'].name, list(Color), Color.BLUE.step(), repr(Color.RED), len(Color), Color.RED in Color))", ""),
    ("{a} = types.MappingProxyType({{'a': {i}}})\nSEEN.append((type({a}).__name__, {a}['a'], len({a}), 'a' in {a}))", ""),
    ("{a} = {i}\nSEEN.append(({a}.__class__ is int, ({a}).real, {a} is int({a}), {a}.__add__(2), int.__mul__({a}, 2), {a}.to_bytes(2, 'big') if {a} > 0 else 0))", ""),
    ("{a} = iter({lv})\nSEEN.append(({a}.__reduce__()[1], {a}.__length_hint__()))\nnext({a}, 0)\nSEEN.append({a}.__length_hint__())", ""),
]  # fmt: skip
#: Ids, tables by object and class, enums, signatures, ops of libraries.
IDENTITY = [
    ("{a} = {{GB: {i}, PEEK: 2}}\nSEEN.append((GB in {a}, {a}.get(GB), {a}.get(NS, 'n'), len({a}), PEEK in {a}))", ""),
    ("{a} = {{id({tv}): {i}, id(GB): 2}}\nSEEN.append(({a}.get(id({tv})), {a}.get(id(GB)), id(PEEK) in {a}, id({tv}) == id({tv})))", ""),
    ("{a} = set()\nfor {b} in (GB, PEEK, GB):\n    SEEN.append(id({b}) in {a})\n    {a}.add(id({b}))\n{new} = len({a})", "i"),
    ("SEEN.append((TABLE.get(type({i})), TABLE.get(type({tv}), 'none'), TABLE.get(type(GB)), Oops in TABLE, Uh in TABLE))", ""),
    ("TABLE[type(GB)] = {i}\nSEEN.append((TABLE[type(GB)], len(TABLE), list(TABLE.values())))", ""),
    ("TABLE[GB] = {i}\nflambeau.graph_break()\nSEEN.append((TABLE.pop(GB), TABLE.get(GB), len(TABLE)))", ""),
    ("{a} = TABLE.pop(int, {i})\nTABLE[Uh] = {a}\nTABLE.setdefault(Box, 7)\nSEEN.append([(getattr(k, '__name__', 0), v) for k, v in TABLE.items()])", ""),
    ("try:\n    {new} = TABLE[type({c})] + TABLE[type({tv})]\nexcept KeyError as e:\n    {new} = len(e.args)", "i"),
    ("{a} = collections.OrderedDict([(GB, {i}), (PEEK, 1)])\n{a}.move_to_end(GB)\nSEEN.append(([v for v in {a}.values()], list(reversed({a}.values())), next(iter({a})) is PEEK))", ""),
    ("{a} = {{}}\n{b} = copy.deepcopy([GB, GB, {lv}], {a})\nSEEN.append(({b}[0] is {b}[1], {b}[0] is GB, {b}[2], len({a}) > 2))", ""),
    ("{a} = [{i}]\n{b} = copy.deepcopy([{a}, {a}, (1, 'q')])\n{b}[0].append({i})\nSEEN.append(({a}, {b}))", ""),
    ("{a} = Color(1 + {i} % 2)\nSEEN.append(({a}.name, {a} is Color.RED, {a} in {{Color.BLUE: 1}}, {{Color.RED: 'r'}}.get({a})))", ""),
    ("try:\n    SEEN.append(Color({i} + 1).name)\nexcept ValueError as e:\n    SEEN.append(str(e))", ""),
    ("{a} = inspect.signature(apply)\nSEEN.append((list({a}.parameters), {a}.parameters['fn'].kind.name, str({a})))", ""),
    ("{a} = inspect.signature(lambda p, q={i}, *, r: 0).parameters\n{new} = {a}['q'].default\nSEEN.append([p.default is p.empty for p in {a}.values()])", "i"),
    ("{new} = torch.ops.flambeau_fuzz.scale({t}, {i}) * 0.5", "t"),
    ("torch.ops.flambeau_fuzz.raise_by({tv}, {i})\n{new} = {tv} + torch.ops.flambeau_fuzz.scale.default({t}, 2)", "t"),
    ("{a} = frozenset({{1, {i}}}).__contains__\n{b} = 'a-b'.split\nSEEN.append(({a}({i}), {b}('-'), (5).bit_length(), 'q'.join(['1', '2'])))", ""),
    ("{a} = types.MappingProxyType(TABLE)\nSEEN.append(({a}.get(str), int in {a}, len({a}), sorted(k.__name__ for k in {a} if isinstance(k, type))))", ""),
    ("{a} = [1]\n{a}.append({a})\nSEEN.append((len(str({a})), {a}[1] is {a}, repr({{'k': {a}}})))", ""),
]  # fmt: skip
THEMES = [*DTYPES, *LIVES, *OPAQUE, *COPIES, *IDENTITY]
