"""The assembler of `daemon/bytecode` from Python: code objects go there as JSON and come back as real ones."""

import json
import subprocess
import sys
import types
from pathlib import Path

from raw_frames import slot_names

ROOT = Path(__file__).parents[2]
LOCAL, CELL, FREE = 0x20, 0x40, 0x80


class AssembleError(Exception):
    """The assembler refused."""


class Assembler:
    """One assembler process."""

    def __init__(self):
        build = ["cargo", "build", "--quiet", "--release", "-p", "flambeau-bytecode", "--example", "assemble"]
        subprocess.run(build, cwd=ROOT, check=True)
        binary = ROOT / "target/release/examples/assemble"
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.texts, self.known = {}, {}

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)

    def ask(self, do, code, **details):
        # By identity, which is quicker than comparing; kept, so that it stays this code's.
        if id(code) not in self.texts:
            self.texts[id(code)] = code, json.dumps(fields(code))
        text = self.texts[id(code)][1]
        request = json.dumps({"do": do, **details})
        if (id(code), request) not in self.known:
            self.process.stdin.write(f'{request[:-1]}, "code": {text}}}\n')
            self.process.stdin.flush()
            self.known[id(code), request] = json.loads(self.process.stdout.readline())
        answer = self.known[id(code), request]
        if isinstance(answer, dict) and "error" in answer:
            raise AssembleError(answer["error"])
        return answer

    def facts(self, code):
        """Per instruction: offset, operation, what it does alone, depth of its handler."""
        return self.ask("facts", code)

    def live(self, code, at, target, entry):
        """Per slot: whether a resume function that enters so has to restore it."""
        return self.ask("live", code, at=at, target=target, entry=entry)

    def resume(self, code, at, target, local_slots, stack, entry):
        """The resume code; offsets are in code units, `stack` holds "Null" and "Value"."""
        point = {"at": at, "target": target, "locals": local_slots, "stack": stack, "entry": entry}
        answer = self.ask("assemble", code, **point)
        assert answer["resume"]
        return built(answer["code"], code)

    def thin_call(self, code, at):
        return built(self.ask("thin_call", code, at=at)["code"], code)

    def thin_instr(self, code, at, inputs, output):
        return built(self.ask("thin_instr", code, at=at, inputs=inputs, output=output)["code"], code)


def slots(code):
    """Names and kinds of `localsplus`."""
    names = slot_names(code)
    kinds = [
        LOCAL * (n in code.co_varnames) | CELL * (n in code.co_cellvars) | FREE * (n in code.co_freevars) for n in names
    ]
    return names, kinds


def fields(code):
    """The JSON of `flambeau_ir::code::Code`. Constants of no interest are named by their place."""

    def const(index, value):
        if value is None:
            return "None"
        plain = type(value) is int and -(2**63) <= value < 2**63
        return {"Int": value} if plain else {"Str": f"#{index}"}

    names, kinds = slots(code)
    return {
        "hash": [0] * 32,
        "python": sys.version_info[:2],
        "name": code.co_name,
        "qualname": code.co_qualname,
        "filename": code.co_filename,
        "firstlineno": code.co_firstlineno,
        "argcount": code.co_argcount,
        "posonlyargcount": code.co_posonlyargcount,
        "kwonlyargcount": code.co_kwonlyargcount,
        "stacksize": code.co_stacksize,
        "flags": code.co_flags,
        "bytecode": list(code.co_code),
        "consts": [const(i, c) for i, c in enumerate(code.co_consts)],
        "names": code.co_names,
        "localsplusnames": names,
        "localspluskinds": kinds,
        "linetable": list(code.co_linetable),
        "exceptiontable": list(code.co_exceptiontable),
    }


def built(made, origin):
    """The real code object of what came back; named constants are those of `origin`."""

    def const(value):
        if value == "None":
            return None
        kind, content = next(iter(value.items()))
        return origin.co_consts[int(content[1:])] if kind == "Str" else content

    kinds = list(zip(made["localsplusnames"], made["localspluskinds"], strict=True))
    of = lambda kind: tuple(name for name, k in kinds if k & kind)
    code = types.CodeType(
        made["argcount"],
        made["posonlyargcount"],
        made["kwonlyargcount"],
        len(of(LOCAL)),
        made["stacksize"],
        made["flags"],
        bytes(made["bytecode"]),
        tuple(map(const, made["consts"])),
        tuple(made["names"]),
        of(LOCAL),
        made["filename"],
        made["name"],
        made["qualname"],
        made["firstlineno"],
        bytes(made["linetable"]),
        bytes(made["exceptiontable"]),
        of(FREE),
        of(CELL),
    )
    assert slots(code) == (made["localsplusnames"], made["localspluskinds"])
    return code
