//! Decoded code against what Python's `dis` says of it (`facts.py` writes the facts). `FLAMBEAU_DIS_FACTS` names a
//! larger file to check in place of the fixture.

use flambeau_bytecode::versions::{VERSIONS, dialect};
use flambeau_bytecode::{Op, decode};
use flambeau_ir::code::{Code, CodeHash, Const};

/// More constants, names and locals than an instruction of the facts is about.
const MANY: usize = 1 << 10;

fn code(bytecode: Vec<u8>) -> Code {
    Code {
        hash: CodeHash([0; 32]),
        python: (3, 11),
        name: String::new(),
        qualname: String::new(),
        filename: String::new(),
        firstlineno: 1,
        argcount: 0,
        posonlyargcount: 0,
        kwonlyargcount: 0,
        stacksize: 0,
        flags: 0,
        bytecode,
        consts: vec![Const::None; MANY],
        names: vec![String::new(); MANY],
        localsplusnames: vec![String::new(); MANY],
        localspluskinds: vec![0x20; MANY],
        linetable: vec![],
        exceptiontable: vec![],
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    digits.iter().map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn target(op: Op) -> Option<u32> {
    match op {
        Op::Jump(t) | Op::ForIter(t) | Op::Send(t) => Some(t),
        Op::PopJumpIf { target, .. } | Op::JumpIfOrPop { target, .. } => Some(target),
        _ => None,
    }
}

fn check(name: &str, code: &Code, facts: &[Vec<&str>]) {
    let decoded = decode(code).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (rows, handlers): (Vec<_>, Vec<_>) = facts.iter().partition(|f| f[0] == "i");
    // Of two instructions that one opcode becomes, the first says where it is.
    let firsts: Vec<_> = decoded.instrs.chunk_by(|a, b| a.offset == b.offset).map(|of_one| &of_one[0]).collect();
    assert_eq!(firsts.len(), rows.len(), "{name}");
    for (instr, row) in firsts.into_iter().zip(&rows) {
        assert_eq!(Some(instr.offset), number(row[1]), "{name}");
        let opcode = dialect(code).ok().unwrap().opcode(code.bytecode[instr.offset as usize * 2]).unwrap();
        assert_eq!(opcode.name, row[2], "{name} at {}", row[1]);
        assert_eq!(instr.line, number(row[3]), "{name} at {}", row[1]);
        let expected = number(row[4]).map(|t: u32| decoded.index_of(t) as u32);
        assert_eq!(target(instr.op), expected, "{name} at {}", row[1]);
        for (jump, effect) in [(false, row[5]), (true, row[6])] {
            let found = (opcode.effect)(argument(code, instr.offset), jump);
            assert_eq!(Some(found), number(effect), "{name} at {} {}", row[1], row[2]);
        }
    }
    for (handler, row) in decoded.handlers.iter().zip(&handlers) {
        let at = |i: usize| decoded.index_of(number(row[i]).unwrap()) as u32;
        assert_eq!((handler.start, handler.end, handler.target), (at(1), at(2), at(3)), "{name}");
        assert_eq!((Some(handler.depth), handler.lasti), (number(row[4]), row[5] == "1"), "{name}");
    }
    assert_eq!(decoded.handlers.len(), handlers.len(), "{name}");
}

/// The argument with its `EXTENDED_ARG`s.
fn argument(code: &Code, offset: u32) -> i32 {
    let (units, _) = code.bytecode.as_chunks::<2>();
    let at = offset as usize;
    let extended = dialect(code).ok().unwrap().extended_arg;
    let first = units[..at].iter().rposition(|u| u[0] != extended).map_or(0, |i| i + 1);
    // A cache entry may hold any byte, but an extended argument is never behind one without an opcode between.
    units[first.max(at.saturating_sub(3))..=at].iter().fold(0, |arg, u| arg << 8 | i32::from(u[1]))
}

#[test]
fn agrees_with_dis() {
    let fixture = |((_, minor), _): &((u8, u8), _)| format!("{}/tests/facts_3{minor}.txt", env!("CARGO_MANIFEST_DIR"));
    let files =
        std::env::var("FLAMBEAU_DIS_FACTS").map_or_else(|_| VERSIONS.iter().map(fixture).collect(), |f| vec![f]);
    for text in files.into_iter().map(|file| std::fs::read_to_string(file).unwrap()) {
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
        let codes: Vec<_> = rows.chunk_by(|_, next| next[0] != "code").collect();
        assert!(codes.len() > 10);
        for facts in codes {
            let head = &facts[0];
            let code = Code {
                python: (3, number(head[1]).unwrap()),
                firstlineno: number(head[3]).unwrap(),
                linetable: bytes(head[5]),
                exceptiontable: bytes(head[6]),
                ..code(bytes(head[4]))
            };
            check(head[2], &code, &facts[1..]);
        }
    }
}

#[test]
fn every_opcode_of_dis_is_declared() {
    let counts = VERSIONS.iter().map(|(version, dialect)| (*version, dialect.opcodes.len()));
    assert_eq!(counts.collect::<Vec<_>>(), [((3, 11), 110), ((3, 12), 111), ((3, 13), 119)]);
    assert!(VERSIONS.iter().all(|(_, dialect)| dialect.opcodes.is_sorted_by(|a, b| a.number < b.number)));
}

#[test]
fn broken_code_is_an_error() {
    for broken in [
        vec![3, 0],         // no such opcode
        vec![124],          // half an instruction
        vec![116, 0, 0, 0], // caches missing
        vec![110, 9],       // jump out of the code
        vec![140, 9, 83, 0],
        vec![107, 6, 0, 0, 0, 0],
        vec![144, 1],
    ] {
        assert!(decode(&code(broken.clone())).is_err(), "{broken:?}");
    }
    assert!(decode(&Code { python: (3, 99), ..code(vec![]) }).is_err());
    assert!(decode(&Code { exceptiontable: vec![0x80], ..code(vec![83, 0]) }).is_err());
    assert!(decode(&Code { linetable: vec![0xf0], ..code(vec![83, 0]) }).is_err());
}
