//! Bytecode and its tables as bytes that anybody may have written, and what looks at code that was decoded.

mod fixtures;

use fixtures::codes;
use flambeau_bytecode::{decode, live_slots, loop_slots, thin_call};
use flambeau_ir::code::Code;
use flambeau_mutate::{Memory, cases, mutated};

/// Instructions that are looked at: each look may walk through all of them.
const LOOKS: usize = 12;

/// One of the three differs from those of real code; the versions are mixed as well.
#[test]
fn code_objects() {
    let codes = codes();
    let all = |of: fn(&Code) -> &Vec<u8>| codes.iter().map(|code| of(code).clone()).collect::<Vec<_>>();
    let tables = [all(|code| &code.bytecode), all(|code| &code.linetable), all(|code| &code.exceptiontable)];
    let changed = tables.map(mutated);
    let which = (0..codes.len(), 0..3_usize);
    let size = |((_, _), tables): &((usize, usize), [Vec<u8>; 3])| tables.iter().map(Vec::len).sum::<usize>() + 4096;
    cases("code objects", (which, changed), Memory::per_byte(256), size, |((code, table), tables)| {
        let mut code = codes[*code].clone();
        let of = [&mut code.bytecode, &mut code.linetable, &mut code.exceptiontable];
        for (_, (place, changed)) in of.into_iter().zip(tables).enumerate().filter(|(at, _)| at == table) {
            place.clone_from(changed);
        }
        looked_at(&code)
    });
}

fn looked_at(code: &Code) -> bool {
    let Ok(decoded) = decode(code) else { return false };
    let count = decoded.instrs.len();
    assert!(decoded.handlers.iter().all(|h| h.start.max(h.end).max(h.target) as usize <= count), "{decoded:?}");
    for at in (0..=count).step_by(count / LOOKS + 1) {
        let _ = (decoded.handler(at), live_slots(code, &decoded, at as u32), loop_slots(code, &decoded, at as u32));
        if let Ok(thin) = thin_call(code, &decoded, at as u32, &[]) {
            decode(&thin).unwrap();
        }
    }
    true
}
