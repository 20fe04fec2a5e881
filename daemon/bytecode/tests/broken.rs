//! Broken code objects are errors, or give code that decodes; nothing panics.

mod fixtures;

use fixtures::codes;
use flambeau_bytecode::resume::{Entry, Item, ResumePoint, assemble};
use flambeau_bytecode::{Decoded, Output, decode, live_for, live_slots, thin_call, thin_instr};
use flambeau_ir::code::{Code, Const};

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

fn broken(random: &mut Random, code: &Code) -> Code {
    let mut code = code.clone();
    for _ in 0..random.below(4) {
        let byte = random.below(256) as u8;
        let table = match random.below(3) {
            0 => &mut code.bytecode,
            1 => &mut code.linetable,
            _ => &mut code.exceptiontable,
        };
        let place = random.below(table.len());
        match (random.below(8), table.get_mut(place)) {
            (0, _) => table.truncate(place),
            (1, _) => table.insert(place, byte),
            (_, Some(old)) => *old = byte,
            (_, None) => {}
        }
    }
    match random.below(30) {
        0 => code.localspluskinds.truncate(2),
        1 => code.localsplusnames.truncate(2),
        2 => code.consts.clear(),
        3 => code.names.push(Code::RESUME_NAME.to_owned()),
        5 => code.localspluskinds[..2].fill(Code::CELL),
        4 => code.consts.push(Const::Int(random.below(40) as i64 - 5)),
        _ => {}
    }
    code
}

fn point(random: &mut Random, decoded: &Decoded, code: &Code) -> ResumePoint {
    use Entry::*;
    let entries = [Nothing, Value, NullValue, Items(3), Child, ChildDropped, Raise, Yield];
    let instr = |random: &mut Random| random.below(decoded.instrs.len() + 1) as u32;
    let at = instr(random);
    ResumePoint {
        at,
        target: if random.below(2) == 0 { at + 1 } else { instr(random) },
        locals: (0..random.below(4)).map(|_| random.below(code.localsplusnames.len() + 1) as u32).collect(),
        stack: (0..random.below(5)).map(|_| random.one_of(&[Item::Null, Item::Value, Item::Handled])).collect(),
        entry: random.one_of(&entries),
    }
}

#[test]
fn nothing_panics() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let codes = codes();
    let (mut assembled, mut again) = (0, 0);
    for _ in 0..20_000 {
        let place = random.below(codes.len());
        let mut code = broken(&mut random, &codes[place]);
        for round in 0..3 {
            let Ok(decoded) = decode(&code) else { break };
            let point = point(&mut random, &decoded, &code);
            let _ = live_slots(&code, &decoded, point.target);
            let _ = live_for(&code, &decoded, point.at, point.target, point.entry);
            if let Ok(thin) = thin_call(&code, &decoded, point.at, &point.locals) {
                decode(&thin).unwrap();
            }
            let alone = decoded.instrs.get(point.at as usize).and_then(|i| i.op.alone());
            let (inputs, output) = alone.unwrap_or((1, Output::Truth));
            let inputs = vec![Item::Value; (inputs as usize).min(1000)];
            if let Ok(thin) = thin_instr(&code, &decoded, point.at, &inputs, output, &point.locals) {
                decode(&thin).unwrap();
            }
            let Ok(resume) = assemble(&code, &decoded, &point) else { continue };
            decode(&resume).unwrap();
            assert!(resume.is_resume());
            if round == 0 {
                assembled += 1;
            } else {
                again += 1;
            }
            code = if random.below(2) == 0 { broken(&mut random, &resume) } else { resume };
        }
    }
    assert!(assembled > 1000 && again > 1000, "{assembled} {again}");
}
