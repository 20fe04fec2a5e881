"""Which modules of `Lib/test` are run: those for the language and for the library's Python and C types."""

from __future__ import annotations

import sys

#: In every version.
ALWAYS = """
abc abstract_numbers argparse array asyncgen augassign base64 baseexception binascii binop bisect bool builtin bytes
calendar call class cmath codecs collections colorsys compare complex configparser contains context contextlib
contextlib_async copy copyreg coroutines csv dataclasses datetime decimal decorators defaultdict deque descr dict
dictcomps dictviews difflib dynamic dynamicclassattribute enum enumerate except_star exception_group
exception_hierarchy exception_variations exceptions float fnmatch format fractions fstring funcattrs functools
generator_stop generators genericalias genericclass getopt global grammar graphlib hash hashlib heapq html index
inspect int int_literal ipaddress isinstance iter iterlen itertools json keyword keywordonlyarg list locale logging
long math memoryio memoryview module named_expressions numeric_tower opcodes operator ordered_dict patma
positional_only_arg pow pprint print property queue raise random range re reprlib richcmp scope secrets set shlex
slice sort statistics string string_literals strtod struct structseq subclassinit super textwrap threading_local time
traceback tuple type_annotations typechecks types typing unary unicode unpack_ex urlparse userdict userlist
userstring uuid warnings weakref weakset with yield_from zlib
"""
#: From a version on.
SINCE = {"listcomps": (3, 12), "type_aliases": (3, 12), "type_params": (3, 12), "unpack": (3, 12), "str": (3, 13)}
#: Up to a version.
UNTIL = {"unicode": (3, 12)}


def names() -> list[str]:
    """The modules for the running version, without `test.`."""
    version = sys.version_info[:2]
    found = [n for n in ALWAYS.split() if version <= UNTIL.get(n, version)]
    found += [n for n, since in SINCE.items() if version >= since]
    return sorted(f"test_{name}" for name in found)
