"""A reader of LLVM's textual IR, for the few forms that the privacy kernel is made of.

What it does not know it refuses: an unknown word is an error, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


class RefusedError(Exception):
    """The IR has something that this tool does not model."""


TOKEN = re.compile(
    r"""\s*(?:
      (?P<name>[%@](?:"[^"]*"|[-\w.$]+))
    | (?P<meta>![\w.]+|!(?=\{))
    | (?P<group>\#\d+)
    | (?P<number>0x[0-9A-Fa-f]+|-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+(?![\w.]))
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<mark>[()\[\]{},=:*<>"])
    )""",
    re.VERBOSE,
)

# Attributes of parameters, arguments and results that only permit optimisations, or say what the tool
# checks anyway: that a pointer leads to memory, and that a value is defined.
PLAIN_ATTRIBUTES = frozenset(
    [
        "dead_on_return",
        "dead_on_unwind",
        "immarg",
        "noalias",
        "nocapture",
        "nofree",
        "nonnull",
        "noundef",
        "readnone",
        "readonly",
        "returned",
        "signext",
        "writable",
        "writeonly",
        "zeroext",
    ]
)
BRACKETED_ATTRIBUTES = frozenset(["captures", "dereferenceable", "initializes", "sret"])
LINKAGE = frozenset(["dso_local", "fastcc", "hidden", "internal", "private", "linkonce_odr", "weak_odr"])
# Metadata of an instruction that says nothing about its value.
SILENT_METADATA = frozenset(["!alias.scope", "!noalias", "!llvm.loop", "!prof", "!unpredictable", "!srcloc"])


@dataclass(frozen=True)
class Type:
    """An integer of `bits` bits, or one of the other kinds: of a vector, `parts` are the types of its numbers."""

    kind: str
    bits: int = 0
    parts: tuple[Type, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in memory."""
        if self.kind == "bytes":
            return self.bits
        if self.kind == "vector":
            return sum(part.size for part in self.parts)
        if self.bits % 8 != 0:
            raise RefusedError(f"a number of {self.bits} bits in memory")
        return self.bits // 8


@dataclass(frozen=True)
class Operand:
    """A name, or a constant."""

    type: Type
    name: str | None = None
    constant: int | None = None
    is_poison: bool = False
    range: tuple[int, int] | None = None
    parts: tuple[Operand, ...] = ()


@dataclass
class Instruction:
    """One instruction, taken apart."""

    op: str
    line: str
    dest: str | None = None
    flags: frozenset[str] = frozenset()
    type: Type = field(default_factory=lambda: Type("void"))
    operands: list[Operand] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    cases: list[tuple[int, str]] = field(default_factory=list)
    callee: str = ""
    offset: int = 0
    align: int = 1
    predicate: str = ""
    indices: list[int] = field(default_factory=list)
    range: tuple[int, int] | None = None
    noundef: bool = False


@dataclass
class Function:
    """A function with its blocks, in the order of the file."""

    name: str
    result: Type
    result_range: tuple[int, int] | None
    result_noundef: bool
    parameters: list[Operand]
    blocks: dict[str, list[Instruction]]
    text: str


@dataclass
class Attributes:
    """What attributes say that the tool makes use of."""

    range: tuple[int, int] | None = None
    noundef: bool = False
    align: int = 1


class Cursor:
    """The tokens of a line, one after the other."""

    def __init__(self, line: str, module: Module) -> None:
        self.line = line
        self.module = module
        self.tokens: list[tuple[str, str]] = []
        position = 0
        text = line.rstrip()
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise RefusedError(f"no token at {text[position:]!r} in {line!r}")
            self.tokens.append((match.lastgroup, match.group(match.lastgroup)))
            position = match.end()
        self.at = 0

    def refuse(self, what: str) -> RefusedError:
        return RefusedError(f"{what} in {self.line.strip()!r}")

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise self.refuse("an end")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def take(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.refuse(f"{self.peek()!r} instead of {text!r}")

    def flags(self, known: str) -> frozenset[str]:
        found = set()
        while self.peek() in known.split():
            found.add(self.next())
        return frozenset(found)

    def integer(self) -> int:
        text = self.next()
        try:
            return int(text)
        except ValueError:
            raise self.refuse(f"{text!r} instead of a whole number") from None

    def type(self) -> Type:
        text = self.next()
        if re.fullmatch(r"i\d+", text):
            return Type("int", int(text[1:]))
        if text == "double":
            return Type("double", 64)
        if text == "ptr":
            return Type("ptr")
        if text == "void":
            return Type("void")
        if text == "{":
            parts = [self.type()]
            while self.take(","):
                parts.append(self.type())
            self.expect("}")
            return Type("struct", 0, tuple(parts))
        if text == "[":
            count = self.integer()
            self.expect("x")
            element = self.type()
            self.expect("]")
            return Type("bytes", count * element.size)
        if text == "<":
            count = self.integer()
            self.expect("x")
            element = self.type()
            self.expect(">")
            if element.kind not in ("int", "double"):
                raise self.refuse("a vector of what are no numbers")
            return Type("vector", 0, (element,) * count)
        raise self.refuse(f"the type {text!r}")

    def skip_brackets(self) -> None:
        self.expect("(")
        depth = 1
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(self.next(), 0)

    def attributes(self) -> Attributes:
        found = Attributes()
        while self.kind() == "word":
            word = self.peek()
            if word == "range":
                self.next()
                self.expect("(")
                self.type()
                low = self.integer()
                self.expect(",")
                found.range = (low, self.integer())
                self.expect(")")
            elif word == "align":
                self.next()
                found.align = self.integer()
            elif word in BRACKETED_ATTRIBUTES:
                self.next()
                self.skip_brackets()
            elif word in PLAIN_ATTRIBUTES:
                self.next()
                found.noundef |= word == "noundef"
            else:
                break
        return found

    def value(self, kind: Type, limits: tuple[int, int] | None = None) -> Operand:
        what, text = self.kind(), self.next()
        if what == "name":
            return Operand(kind, name=text, range=limits)
        if kind.kind == "vector":
            return self.vector(kind, text)
        if text in ("poison", "undef"):
            return Operand(kind, is_poison=True)
        if kind.kind == "int" and text in ("true", "false"):
            return Operand(kind, constant=int(text == "true"), range=limits)
        if kind.kind == "int" and re.fullmatch(r"-?\d+", text):
            return Operand(kind, constant=int(text), range=limits)
        if kind.kind == "double":
            return Operand(kind, constant=double_bits(text), range=limits)
        raise self.refuse(f"the operand {text!r}")

    def vector(self, kind: Type, text: str) -> Operand:
        """A constant vector, of which the first token was `text`."""
        if text in ("poison", "undef"):
            return Operand(kind, parts=tuple(Operand(part, is_poison=True) for part in kind.parts))
        if text == "zeroinitializer":
            return Operand(kind, parts=tuple(Operand(part, constant=0) for part in kind.parts))
        if text != "<":
            raise self.refuse(f"the operand {text!r}")
        parts = []
        while not self.take(">"):
            parts.append(self.typed_value())
            self.take(",")
        if tuple(part.type for part in parts) != kind.parts:
            raise self.refuse("a vector of another type")
        return Operand(kind, parts=tuple(parts))

    def typed_value(self) -> Operand:
        kind = self.type()
        attributes = self.attributes()
        return self.value(kind, attributes.range)

    def label(self) -> str:
        self.expect("label")
        return self.next()[1:]

    def tail(self, instruction: Instruction) -> None:
        """What may follow an instruction: an alignment, and metadata."""
        while self.peek():
            if self.take(","):
                continue
            text = self.next()
            if text == "align":
                instruction.align = self.integer()
            elif text == "!noundef":
                self.next()
                instruction.noundef = True
            elif text == "!range":
                instruction.range = self.module.metadata_range(self.next())
            elif text in SILENT_METADATA:
                self.next()
            elif not text.startswith("#"):
                raise self.refuse(f"{text!r} at the end")


def double_bits(text: str) -> int:
    """The bits of a constant: hexadecimal, or decimal if that is exact."""
    import struct

    if text.startswith("0x"):
        return int(text, 16)
    return int.from_bytes(struct.pack(">d", float(text)), "big")


ARITHMETIC = {
    "add": "nuw nsw",
    "sub": "nuw nsw",
    "mul": "nuw nsw",
    "shl": "nuw nsw",
    "udiv": "exact",
    "lshr": "exact",
    "ashr": "exact",
    "and": "",
    "or": "disjoint",
    "xor": "",
    "fadd": "",
    "fsub": "",
    "fmul": "",
    "fdiv": "",
}
CASTS = {
    "zext": "nneg",
    "sext": "",
    "trunc": "nuw nsw",
    "bitcast": "",
    "uitofp": "nneg",
}


class Module:
    """A file of IR. Functions are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        if 'target datalayout = "E' in self.text:
            raise RefusedError(f"the highest byte comes first in {path}")
        self.starts: dict[str, int] = {}
        for match in re.finditer(r'^define [^\n]*?(@(?:"[^"\n]*"|[-\w.$]+))\(', self.text, re.MULTILINE):
            self.starts[match.group(1)] = match.start()
        self.read: dict[str, Function] = {}

    def metadata_range(self, name: str) -> tuple[int, int]:
        pattern = rf"^{re.escape(name)} = !\{{i\d+ (-?\d+), i\d+ (-?\d+)\}}$"
        match = re.search(pattern, self.text, re.MULTILINE)
        if match is None:
            raise RefusedError(f"the range {name}")
        return int(match.group(1)), int(match.group(2))

    def source(self, name: str) -> str:
        """The text of a function."""
        begin = self.starts[name]
        return self.text[begin : self.text.index("\n}\n", begin)]

    def function(self, name: str) -> Function:
        if name not in self.read:
            self.read[name] = self.parse(self.source(name))
        return self.read[name]

    def parse(self, text: str) -> Function:
        lines = text.split("\n")
        function = self.header(lines[0])
        function.text = text
        label = ""
        waiting = ""
        for line in lines[1:]:
            code = line.split(";")[0].rstrip() if '"' not in line else re.sub(r"\s+;.*", "", line).rstrip()
            if not code:
                continue
            if not code.startswith(" "):
                label = code.rstrip(":").strip()
                function.blocks[label] = []
                continue
            waiting = f"{waiting} {code.strip()}" if waiting else code
            if waiting.count("[") > waiting.count("]"):
                continue
            if label == "":
                raise RefusedError("a block without a label")
            function.blocks[label].append(self.instruction(waiting))
            waiting = ""
        return function

    def header(self, line: str) -> Function:
        cursor = Cursor(line.split(" personality ")[0].rstrip("{ "), self)
        cursor.expect("define")
        while cursor.peek() in LINKAGE:
            cursor.next()
        result = cursor.attributes()
        kind = cursor.type()
        name = cursor.next()
        cursor.expect("(")
        parameters = []
        while not cursor.take(")"):
            of = cursor.type()
            limits = cursor.attributes().range
            parameters.append(cursor.value(of, limits))
            cursor.take(",")
        for word in iter(cursor.peek, ""):
            if word not in ("unnamed_addr", "local_unnamed_addr") and not word.startswith("#"):
                raise cursor.refuse(f"{word!r} of a function")
            cursor.next()
        return Function(name, kind, result.range, result.noundef, parameters, {}, "")

    def instruction(self, line: str) -> Instruction:
        cursor = Cursor(line, self)
        dest = None
        if cursor.kind() == "name":
            dest = cursor.next()
            cursor.expect("=")
        op = cursor.next()
        while op in ("tail", "notail"):
            op = cursor.next()
        result = Instruction(op, line, dest)
        if op in ARITHMETIC:
            result.flags = cursor.flags(ARITHMETIC[op])
            result.type = cursor.type()
            result.operands.append(cursor.value(result.type))
            cursor.expect(",")
            result.operands.append(cursor.value(result.type))
        elif op in CASTS:
            result.flags = cursor.flags(CASTS[op])
            result.operands.append(cursor.typed_value())
            cursor.expect("to")
            result.type = cursor.type()
        else:
            reader = getattr(self, f"read_{op}", None)
            if reader is None:
                raise cursor.refuse(f"the instruction {op!r}")
            reader(cursor, result)
        cursor.tail(result)
        return result

    @staticmethod
    def read_icmp(cursor: Cursor, result: Instruction) -> None:
        result.flags = cursor.flags("samesign")
        result.predicate = cursor.next()
        kind = cursor.type()
        result.operands.append(cursor.value(kind))
        cursor.expect(",")
        result.operands.append(cursor.value(kind))
        result.type = Type("int", 1)

    @staticmethod
    def read_fcmp(cursor: Cursor, result: Instruction) -> None:
        Module.read_icmp(cursor, result)

    @staticmethod
    def three_operands(cursor: Cursor, result: Instruction) -> None:
        for _ in range(3):
            result.operands.append(cursor.typed_value())
            cursor.take(",")

    @staticmethod
    def read_select(cursor: Cursor, result: Instruction) -> None:
        Module.three_operands(cursor, result)
        result.type = result.operands[1].type

    @staticmethod
    def read_freeze(cursor: Cursor, result: Instruction) -> None:
        result.operands.append(cursor.typed_value())
        result.type = result.operands[0].type

    @staticmethod
    def read_phi(cursor: Cursor, result: Instruction) -> None:
        result.type = cursor.type()
        while cursor.peek() == "[":
            cursor.next()
            result.operands.append(cursor.value(result.type))
            cursor.expect(",")
            result.labels.append(cursor.next()[1:])
            cursor.expect("]")
            cursor.take(",")

    @staticmethod
    def read_br(cursor: Cursor, result: Instruction) -> None:
        if cursor.peek() == "label":
            result.labels.append(cursor.label())
            return
        result.operands.append(cursor.typed_value())
        for _ in range(2):
            cursor.expect(",")
            result.labels.append(cursor.label())

    @staticmethod
    def read_switch(cursor: Cursor, result: Instruction) -> None:
        result.operands.append(cursor.typed_value())
        cursor.expect(",")
        result.labels.append(cursor.label())
        cursor.expect("[")
        while not cursor.take("]"):
            cursor.type()
            number = cursor.integer()
            cursor.expect(",")
            result.cases.append((number, cursor.label()))

    @staticmethod
    def read_ret(cursor: Cursor, result: Instruction) -> None:
        if not cursor.take("void"):
            result.operands.append(cursor.typed_value())

    @staticmethod
    def read_unreachable(cursor: Cursor, result: Instruction) -> None:
        del cursor, result

    @staticmethod
    def read_call(cursor: Cursor, result: Instruction) -> None:
        while cursor.peek() in LINKAGE:
            cursor.next()
        attributes = cursor.attributes()
        result.range, result.noundef = attributes.range, attributes.noundef
        result.type = cursor.type()
        result.callee = cursor.next()
        cursor.expect("(")
        while not cursor.take(")"):
            if cursor.peek() == "metadata":
                cursor.next()
                cursor.next()
            else:
                kind = cursor.type()
                limits = cursor.attributes().range
                result.operands.append(cursor.value(kind, limits))
            cursor.take(",")

    @staticmethod
    def read_extractvalue(cursor: Cursor, result: Instruction) -> None:
        result.operands.append(cursor.typed_value())
        while cursor.take(","):
            result.indices.append(cursor.integer())
        kind = result.operands[0].type
        for index in result.indices:
            kind = kind.parts[index]
        result.type = kind

    @staticmethod
    def read_insertvalue(cursor: Cursor, result: Instruction) -> None:
        result.operands.append(cursor.typed_value())
        cursor.expect(",")
        result.operands.append(cursor.typed_value())
        cursor.expect(",")
        result.indices.append(cursor.integer())
        result.type = result.operands[0].type

    @staticmethod
    def read_insertelement(cursor: Cursor, result: Instruction) -> None:
        Module.three_operands(cursor, result)
        result.type = result.operands[0].type

    @staticmethod
    def read_shufflevector(cursor: Cursor, result: Instruction) -> None:
        Module.read_insertelement(cursor, result)
        chosen = [part.constant for part in result.operands[2].parts]
        result.indices = [number for number in chosen if number is not None]
        if len(result.indices) != len(result.operands[2].type.parts):
            raise cursor.refuse("a shuffle that is not constant")
        result.type = Type("vector", 0, result.operands[0].type.parts[:1] * len(chosen))

    @staticmethod
    def read_alloca(cursor: Cursor, result: Instruction) -> None:
        result.type = cursor.type()

    @staticmethod
    def read_load(cursor: Cursor, result: Instruction) -> None:
        result.type = cursor.type()
        cursor.expect(",")
        result.operands.append(cursor.typed_value())

    @staticmethod
    def read_store(cursor: Cursor, result: Instruction) -> None:
        result.operands.append(cursor.typed_value())
        cursor.expect(",")
        result.operands.append(cursor.typed_value())

    @staticmethod
    def read_getelementptr(cursor: Cursor, result: Instruction) -> None:
        result.flags = cursor.flags("inbounds nuw nusw")
        element = cursor.type()
        cursor.expect(",")
        result.operands.append(cursor.typed_value())
        cursor.expect(",")
        cursor.type()
        result.offset = element.size * cursor.integer()
        result.type = Type("ptr")
