//! Thin functions: they stand in for user's frames on Python's stack, under the same names and at the same place, while
//! one instruction runs in plain Python.

use crate::body::Body;
use crate::dialect::Dialect;
use crate::effect::Output;
use crate::op::{Op, Unary};
use crate::point::{AssembleError, Item};
use crate::resume::finished;
use crate::tables::{LocationWriter, location};
use crate::units::Units;
use crate::versions::dialect;
use crate::{Decoded, Target};
use flambeau_ir::code::{Code, Const};

/// `OPTIMIZED`, `NEWLOCALS`, `NESTED` and the future statements.
const FLAGS: u32 = 1 | 2 | 16 | 0x01fe_0000;

/// `def name(.0, .1, .a, .b): return .0(*.1)`, all of it where instruction `at` stands. The last parameters are named after
/// these slots: what the frame's variables hold lives as long as a traceback has the frame.
pub fn thin_call(code: &Code, decoded: &Decoded, at: Target, held: &[u32]) -> Result<Code, AssembleError> {
    let mut units = Units::new(dialect(code)?, 0);
    units.resume(0);
    let [before, behind] = units.nulls();
    units.put_all(before.into_iter().chain([Op::LoadFast(0)]).chain(behind))?;
    units.put_all([Op::LoadFast(1), Op::CallEx { kwargs: false }, Op::ReturnValue])?;
    let code = Code { names: vec![], ..code.clone() };
    thin(&code, &[], decoded, at, Parameters { inputs: 2, held }, units)
}

/// A function of the instruction's inputs (nulls left out) and what these slots hold that runs instruction `at` and
/// returns its output.
pub fn thin_instr(
    code: &Code,
    decoded: &Decoded,
    at: Target,
    inputs: &[Item],
    output: Output,
    held: &[u32],
) -> Result<Code, AssembleError> {
    let dialect = dialect(code)?;
    let op = decoded.instrs.get(at as usize).ok_or(AssembleError::Instruction(at))?.op;
    if !fits(dialect, op, inputs, output) {
        return Err(AssembleError::Alone(at));
    }
    let body = Body::of(code, dialect)?;
    let mut consts = body.consts.to_vec();
    let nothing = consts.iter().position(|c| *c == Const::None).unwrap_or(consts.len());
    if nothing == consts.len() {
        consts.push(Const::None);
    }
    let nothing = Op::LoadConst(nothing as u32);

    let mut units = Units::new(dialect, 0);
    units.resume(0);
    let mut parameters = 0;
    for input in inputs {
        match input {
            Item::Null => units.put(Op::PushNull)?,
            Item::Value | Item::Handled => {
                units.put(Op::LoadFast(parameters))?;
                parameters += 1;
            }
        }
    }
    match output {
        Output::Truth => units.put(Op::ToBool)?,
        Output::Next => next(dialect, &mut units, nothing)?,
        // What prepares it may not stand right before it.
        _ if op == Op::Unary(Unary::Not) => units.put(op)?,
        _ => verbatim(code, decoded, at, dialect, &mut units)?,
    }
    match output {
        Output::None => units.put(nothing)?,
        Output::Items(count) => units.put(Op::BuildTuple(count))?,
        Output::Value | Output::NullValue | Output::Truth | Output::Next => {}
    }
    units.put(Op::ReturnValue)?;
    let code = Code { names: body.names.to_vec(), ..code.clone() };
    thin(&code, &consts, decoded, at, Parameters { inputs: parameters, held }, units)
}

/// Whether the instruction takes these inputs and gives this output when it runs alone.
fn fits(dialect: &Dialect, op: Op, inputs: &[Item], output: Output) -> bool {
    let values = |items: &[Item]| items.iter().all(|i| *i == Item::Value);
    match (op, output) {
        (Op::PopJumpIf { .. } | Op::JumpIfOrPop { .. }, Output::Truth) | (Op::ForIter(_), Output::Next) => {
            inputs == [Item::Value]
        }
        (Op::Call { .. } | Op::CallKw { .. } | Op::CallEx { .. }, Output::Value) => {
            let taken = op.alone().map_or(0, |(taken, _)| taken as usize);
            let null = usize::from(dialect.null_above);
            // Another item than this must not be a null; `CallEx` has to have it.
            let has_null = inputs.get(null) == Some(&Item::Null);
            inputs.len() == taken
                && inputs.iter().enumerate().all(|(i, item)| *item == Item::Value || (i == null && has_null))
                && (has_null || !matches!(op, Op::CallEx { .. }))
        }
        _ => op.alone() == Some((inputs.len() as u32, output)) && values(inputs),
    }
}

/// The next item of the iterator on the stack in a tuple, or `None`.
fn next(dialect: &'static Dialect, units: &mut Units, nothing: Op) -> Result<(), AssembleError> {
    let mut body = Units::new(dialect, 2);
    body.put_all([Op::BuildTuple(1), Op::Swap(2), Op::PopTop, Op::ReturnValue])?;
    units.put(Op::ForIter(body.len()))?;
    units.append(body);
    // Where there is one, an iterator that has ended skips it.
    units.put_all([Op::EndFor, nothing])
}

/// Writes instruction `at` as it stands in its code, with the keyword names and the call preparation that belong to it.
fn verbatim(
    code: &Code,
    decoded: &Decoded,
    at: Target,
    dialect: &Dialect,
    units: &mut Units,
) -> Result<(), AssembleError> {
    let (bytes, _) = code.bytecode.as_chunks::<2>();
    let offset = |at: usize| decoded.instrs[at].offset as usize;
    let is_call = matches!(decoded.instrs[at as usize].op, Op::Call { .. });
    let names = (at > 0 && is_call).then(|| at as usize - 1);
    let names = names.filter(|i| matches!(decoded.instrs[*i].op, Op::KwNames(_)));
    // What stands before an instruction and behind the one before it is dropped or belongs to it.
    let first = names.unwrap_or(at as usize);
    let mut unit = first.checked_sub(1).map_or(0, |i| offset(i) + 1 + caches(dialect, bytes[offset(i)][0]));
    let mut extended = 0;
    while unit <= offset(at as usize) {
        let [opcode, low] = bytes[unit];
        let arg = extended << 8 | u32::from(low);
        extended = if opcode == dialect.extended_arg { arg } else { 0 };
        let belongs = (dialect.belongs_to_call)(opcode) && is_call;
        if unit == offset(at as usize) || unit == offset(first) || belongs {
            let (opcode, arg) = (dialect.without_null)(opcode, arg).unwrap_or((opcode, arg));
            units.raw(opcode, arg);
        }
        unit += 1 + caches(dialect, opcode);
    }
    Ok(())
}

fn caches(dialect: &Dialect, opcode: u8) -> usize {
    dialect.opcode(opcode).map_or(0, |o| usize::from(o.caches))
}

/// What a thin function takes: what it works with, and then the values of these slots of the frame.
struct Parameters<'a> {
    inputs: u32,
    held: &'a [u32],
}

/// The code object of a thin function.
fn thin(
    code: &Code,
    consts: &[Const],
    decoded: &Decoded,
    at: Target,
    parameters: Parameters<'_>,
    units: Units,
) -> Result<Code, AssembleError> {
    let at = decoded.instrs.get(at as usize).ok_or(AssembleError::Instruction(at))?.offset;
    let mut locations = LocationWriter::new(code.firstlineno);
    locations.put(units.len() as usize, location(&code.linetable, code.firstlineno, at)?);
    let named = |slot: &u32| match code.localsplusnames.get(*slot as usize) {
        Some(name) => Ok(format!(".{name}")),
        None => Err(AssembleError::Slot(*slot)),
    };
    let mut names: Vec<String> = (0..parameters.inputs).map(|i| format!(".{i}")).collect();
    names.extend(parameters.held.iter().map(named).collect::<Result<Vec<_>, _>>()?);
    let count = names.len();
    finished(Code {
        argcount: count as u32,
        posonlyargcount: count as u32,
        kwonlyargcount: 0,
        stacksize: units.deepest(),
        flags: code.flags & FLAGS | 3,
        bytecode: units.finish(),
        consts: consts.to_vec(),
        localsplusnames: names,
        localspluskinds: vec![0x20; count],
        linetable: locations.finish(),
        exceptiontable: vec![],
        ..code.clone()
    })
}
