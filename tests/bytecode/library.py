"""Calls of the standard library whose Python code is taken up like the corpus. Only code that is not in use by the test
itself can stand here."""

import argparse
import ast
import calendar
import colorsys
import configparser
import csv
import difflib
import html.parser
import json.decoder
import json.scanner
import pprint
import random
import statistics
import string
import textwrap

from cases import calling

TEXT = "one two  three\n\n  four, five; six = 7 # eight\n" * 2
MODULES = (ast, argparse, calendar, colorsys, configparser, csv, difflib, html.parser, json.decoder)
MODULES += (json.scanner, pprint, random, statistics, string, textwrap)
FILES = {__file__, *(module.__file__ for module in MODULES)}
SOURCE = """
@d(1, *a, **k)
class A(B, m=C):
    x: int = 3
    async def f(self, a, /, b=1, *c, d=2, **e) -> "r":
        async with a as b, c: return [await x async for x in y if x], (yield)
        for (i, j), *k in {**a, 1: 2}: del i[1:2, ::3]
        else: raise ValueError(f"{a!r:>{b}} {{}}") from None
        try: lambda *, q=(1,): q if not -q ** 2 @ 3 << 4 else q.w[...]
        except (E, F) as e: global g; g += 1
        finally: assert a < b <= c is not d, "m"
        match a:
            case [1, *_, {"k": v, **r}, C(x, y=z)] | None if x := 2: pass
"""


def parsed(*arguments):
    parser = argparse.ArgumentParser(prog="p", exit_on_error=False, add_help=False)
    parser.add_argument("name", nargs="+")
    parser.add_argument("-n", "--number", type=int, default=1)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--a", action="store_true")
    group.add_argument("--b", dest="c", choices=["x", "y"])
    return sorted(vars(parser.parse_args(arguments)).items()), parser.format_help()


def decode(text):
    decoder = json.decoder.JSONDecoder()
    decoder.parse_string, decoder.scan_once = json.decoder.py_scanstring, json.scanner.py_make_scanner(decoder)
    return decoder.decode(text)


def configured(text):
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return {s: dict(parser[s]) for s in parser.sections()}


def tags(text):
    found = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda *tag: found.append(tag)
    parser.handle_endtag = found.append
    parser.handle_data = found.append
    parser.feed(text)
    parser.close()
    return found


def shuffled(n):
    source = random.Random(n)
    items = list(range(n))
    source.shuffle(items)
    return items, source.sample(items, 3), source.choices(items, k=2), source.gauss(0, 1), source.betavariate(1, 2)


LIBRARY = {
    "argparse": calling(parsed, ("a", "b", "-n", "3", "--b=x")),
    "argparse error": calling(parsed, ("a", "--a", "--b=x")),
    "ast": calling(lambda: ast.unparse(ast.parse(SOURCE.replace("x := 2", "(x := 2)")))),
    "ast literal": calling(ast.literal_eval, ("{'a': [1, (2.5, -3j + 1)], b'c': {None, True}}",)),
    "ast bad literal": calling(ast.literal_eval, ("[1, f(2)]",)),
    "calendar": calling(lambda: calendar.TextCalendar(6).formatmonth(2024, 2)),
    "colorsys": calling(lambda: [f(0.2, 0.4, 0.6) for f in (colorsys.rgb_to_hls, colorsys.hsv_to_rgb)]),
    "configparser": calling(configured, ("[a]\nx = 1\ny = %(x)s2\n\n[b]\nz : 3\n",)),
    "configparser error": calling(configured, ("[a]\nx = 1\nx = 2\n",)),
    "csv": calling(lambda: csv.Sniffer().sniff("a,b\n1,2\n3,4\n").delimiter),
    "difflib ratio": calling(lambda: difflib.SequenceMatcher(None, "abcd efg", "bcde gf").get_opcodes()),
    "html": calling(tags, ("<p a=1 b='c'>text &amp; <br/><!-- c --></p><x",)),
    "json decode": calling(decode, ('{"a": [1, 2.5e3, "t\\u0041\\n"], "b": {"c": null}}',)),
    "json decode error": calling(decode, ('{"a": [1, 2, "t\\x"]}',)),
    "pprint": calling(lambda: pprint.pformat({"a": list(range(30)), "b": ("x" * 50, "y" * 40)}, width=50)),
    "random": calling(shuffled, (7,)),
    "statistics error": calling(statistics.mean, ([],)),
    "string": calling(lambda: string.Template("$a ${b} $$").substitute({"a": 1}, b=2)),
    "string format": calling(lambda: string.Formatter().format("{0} {a[1]!r:>{w}}", 1, a="xy", w=5)),
    "textwrap": calling(lambda: textwrap.fill(textwrap.dedent(TEXT), 20, subsequent_indent="  ")),
    "textwrap short": calling(lambda: textwrap.shorten(TEXT, 25)),
}
