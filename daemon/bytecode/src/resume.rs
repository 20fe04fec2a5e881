//! Assembling code objects that take up a frame in its middle.
//!
//! A resume function is called as `f(state, value)`. Its code is a prologue that restores locals and stack from the tuple
//! `state` and jumps, followed by the user's instructions as they are, so that lines, columns and handlers stay the user's.
//! A resume code taken up in its middle gets a new prologue in place of the old one: the same point of the same user's
//! code gives the same bytes however it was reached.

pub use crate::body::NAMES;
pub use crate::point::{AssembleError, Entry, Item, ResumePoint};

use crate::body::{Body, PARAMETERS, Suspended, Way};
use crate::op::Op;
use crate::tables::{Entry as Handler, Location, LocationWriter, exception_table, location};
use crate::units::Units;
use crate::versions::dialect;
use crate::{DecodeError, Decoded, Target};
use flambeau_ir::code::{Code, CodeHash, Const};

const OPTIMIZED: u32 = 1;
const VARARGS: u32 = 4;
const VARKEYWORDS: u32 = 8;
/// Generators, coroutines, asynchronous generators.
const GENERATORS: u32 = 0x20 | 0x80 | 0x200;

/// The code of the resume function that takes `code` up at this point. Calling it for a generator's code gives a
/// generator that goes on there when it is first advanced.
pub fn assemble(code: &Code, decoded: &Decoded, point: &ResumePoint) -> Result<Code, AssembleError> {
    if code.flags & OPTIMIZED == 0 {
        return Err(AssembleError::NoFunction);
    }
    let dialect = dialect(code)?;
    let body = Body::of(code, dialect)?;
    let way = body.enter_by(decoded, point.target, point.entry, dialect)?;
    let point = &ResumePoint { entry: way.entry, ..point.clone() };
    let suspended = (way.entry == Entry::Yield).then(|| body.suspended(decoded, point.at, dialect)).transpose()?;
    let offset = |at: Target| decoded.instrs.get(at as usize).map(|i| i.offset).ok_or(AssembleError::Instruction(at));
    let (at, target) = (offset(point.at)?, offset(point.target)?);
    let place = |at| Ok::<_, DecodeError>(Place { at, location: location(&code.linetable, code.firstlineno, at)? });

    let generator = i32::from(code.flags & GENERATORS != 0);
    let mut prologue = Prologue {
        units: Units::new(dialect, generator),
        locations: LocationWriter::new(code.firstlineno),
        located: 0,
        constants: body.consts.len() as u32,
        raising: Raising::default(),
    };
    prologue.begin(&body, generator != 0)?;
    prologue.restore(&body, point)?;
    prologue.entry(&body, point, place(at)?, suspended.as_ref())?;
    prologue.jump(&way, place(target)?, suspended.as_ref(), code.firstlineno)?;
    let handlers = prologue.handlers(&body, point)?;
    prologue.join(&body, point, body.bytecode(dialect)?, handlers)
}

/// An instruction of the user's that one of the prologue stands for.
struct Place {
    /// Where it is in the bytecode.
    at: u32,
    location: Option<Location>,
}

/// What in a prologue raises.
#[derive(Default)]
struct Raising {
    /// Raises what the user's handler gets, which covers the code unit that comes second.
    users: Vec<(Handler, u32)>,
    /// Raises what the prologue handles itself.
    own: Option<Handler>,
}

/// A prologue as it is written.
struct Prologue {
    units: Units,
    locations: LocationWriter,
    /// Code units that `locations` covers.
    located: u32,
    /// The first constant that the prologue brings: the integers from 0. The last two are the stack size of the user's
    /// code and the prologue's length.
    constants: u32,
    raising: Raising,
}

impl From<(u8, u8)> for AssembleError {
    fn from((major, minor): (u8, u8)) -> Self {
        AssembleError::Version(major, minor)
    }
}

impl Prologue {
    /// Everything written since the last call is here.
    fn locate(&mut self, location: Option<Location>) {
        self.locations.put((self.units.len() - self.located) as usize, location);
        self.located = self.units.len();
    }

    /// Free variables, cells, the generator, and `RESUME`, which like the user's stands at the function's first line.
    fn begin(&mut self, body: &Body<'_>, generator: bool) -> Result<(), AssembleError> {
        let kinds = body.slot_kinds();
        let free = kinds.iter().filter(|k| **k & Code::FREE != 0).count() as u32;
        if free > 0 {
            self.units.put(Op::CopyFreeVars(free))?;
        }
        let cells = (0..).zip(&kinds).filter(|(slot, kind)| *slot >= PARAMETERS && **kind & Code::CELL != 0);
        self.units.put_all(cells.map(|(slot, _)| Op::MakeCell(slot)))?;
        self.locate(None);
        if generator {
            self.units.put_all([Op::ReturnGenerator, Op::PopTop])?;
        }
        self.units.resume(0);
        self.locate(Some(Location::of_line(body.code.firstlineno)));
        Ok(())
    }

    /// Pushes an item of one of the two parameters.
    fn item(&mut self, parameter: u32, index: u32) -> Result<(), AssembleError> {
        self.units.put_all([Op::LoadFast(parameter), Op::LoadConst(self.constants + index), Op::BinarySubscr])
    }

    /// Locals but for those in the parameters' slots, then the stack.
    fn restore(&mut self, body: &Body<'_>, point: &ResumePoint) -> Result<(), AssembleError> {
        for (index, &slot) in (0..).zip(&point.locals) {
            let slot = body.slot(slot)?;
            if slot >= PARAMETERS {
                let other = flambeau_ir::mutated!("resume_local_of_neighbour") && index > 2;
                self.item(0, index - u32::from(other))?;
                self.units.put(Op::StoreFast(slot))?;
            }
        }
        let mut index = point.locals.len() as u32;
        for item in &point.stack {
            match item {
                Item::Null => self.units.put(Op::PushNull)?,
                Item::Value | Item::Handled => {
                    self.item(0, index)?;
                    index += 1;
                    if *item == Item::Handled {
                        self.units.put_all([Op::PushExcInfo, Op::PopTop])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The locals in the parameters' slots, once nothing else is read from there.
    fn replace_parameters(&mut self, body: &Body<'_>, point: &ResumePoint) -> Result<(), AssembleError> {
        let kinds = body.slot_kinds();
        for slot in (0..PARAMETERS).rev() {
            if let Some(index) = point.locals.iter().position(|local| body.slot(*local) == Ok(slot)) {
                self.item(0, index as u32)?;
                self.units.put(Op::StoreFast(slot))?;
                continue;
            }
            self.units.put(Op::DeleteFast(slot))?;
            if kinds[slot as usize] & Code::CELL != 0 {
                self.units.put(Op::MakeCell(slot))?;
            }
        }
        Ok(())
    }

    /// What the entry does.
    fn entry(
        &mut self,
        body: &Body<'_>,
        point: &ResumePoint,
        place: Place,
        suspended: Option<&Suspended>,
    ) -> Result<(), AssembleError> {
        let items = state_items(point);
        match point.entry {
            Entry::Nothing => {}
            Entry::Value | Entry::Yield => self.units.put(Op::LoadFast(1))?,
            Entry::NullValue => self.units.put_all([Op::PushNull, Op::LoadFast(1)])?,
            Entry::Items(count) => (0..count).try_for_each(|index| self.item(1, index))?,
            Entry::Child | Entry::ChildDropped => {
                let [before, behind] = self.units.nulls();
                self.units.put_all(before)?;
                self.item(0, items - 2)?;
                self.units.put_all(behind)?;
                self.item(0, items - 1)?;
                self.units.put(Op::LoadFast(1))?;
            }
            Entry::Raise => {
                // What is raised takes the handled exception as context: that is the old context meanwhile.
                self.item(1, 1)?;
                self.units.put(Op::PushExcInfo)?;
                self.item(1, 0)?;
            }
        }
        self.replace_parameters(body, point)?;
        match (point.entry, suspended) {
            (Entry::Child | Entry::ChildDropped, _) => {
                self.raises(&place, |units| units.put(Op::Call { argc: 2 }))?;
                if point.entry == Entry::ChildDropped {
                    self.units.put(Op::PopTop)?;
                }
            }
            (Entry::Raise, _) => {
                let raised = self.located(place.location, |units| units.put(Op::RaiseVarargs(1)))?;
                let (target, depth) = (self.units.len(), point.stack.len() as u32 + 2);
                self.raising.own = Some(Handler { target, depth, ..raised });
                self.units.put_all([Op::Swap(3), Op::PopExcept, Op::PopTop])?;
                self.raises(&place, |units| units.put(Op::Reraise(0)))?;
            }
            (Entry::Yield, Some(suspended)) => {
                // `throw()` reads one byte of the jump.
                if suspended.sent.is_some() {
                    self.units.put_all([Op::Jump(1), Op::Send(3)])?;
                }
                self.raises(&place, |units| {
                    units.yields(suspended.resume);
                    Ok(())
                })?;
            }
            (Entry::Nothing | Entry::Value | Entry::NullValue | Entry::Items(_) | Entry::Yield, _) => {}
        }
        Ok(())
    }

    /// Writes what has a location; the code units it takes.
    fn located(
        &mut self,
        location: Option<Location>,
        write: impl FnOnce(&mut Units) -> Result<(), AssembleError>,
    ) -> Result<Handler, AssembleError> {
        self.locate(None);
        let start = self.units.len();
        write(&mut self.units)?;
        self.locate(location);
        Ok(Handler { start, length: self.units.len() - start, target: 0, depth: 0, lasti: false })
    }

    /// Writes what raises as the user's instruction there does.
    fn raises(
        &mut self,
        place: &Place,
        write: impl FnOnce(&mut Units) -> Result<(), AssembleError>,
    ) -> Result<(), AssembleError> {
        let units = self.located(place.location, write)?;
        // From 3.13 on, the handler of what comes out of a call is looked for one unit before the call. What is there raises
        // nothing.
        let units = Handler { start: units.start - 1, length: units.length + 1, ..units };
        self.raising.users.push((units, place.at));
        Ok(())
    }

    /// The jump into the body with what comes first, and for a generator that delegates the jump that `throw()` takes where
    /// it finds that the iterator has ended: it looks for a `SEND` before the `YIELD_VALUE` (`gen_throw`). If the location
    /// table stands at another line than the body's counts from, an instruction that nothing reaches brings it back.
    fn jump(
        &mut self,
        way: &Way,
        target: Place,
        suspended: Option<&Suspended>,
        firstline: u32,
    ) -> Result<(), AssembleError> {
        match (way.first, suspended.and_then(|s| s.sent)) {
            (Some(_), Some(_)) => return Err(AssembleError::NotWritten(Op::YieldValue)),
            (Some(first), None) => self.raises(&target, |units| units.put(first))?,
            _ => {}
        }
        let back = self.locations.line() != i64::from(firstline);
        let entered = Op::Jump(way.target + u32::from(back));
        if let Some(sent) = suspended.and_then(|s| s.sent) {
            let sent = Op::Jump(sent + self.units.size(entered)? + u32::from(back));
            let size = self.units.size(sent)?;
            self.units.put_all([Op::Jump(size), sent])?;
        }
        self.units.put(entered)?;
        self.locate(None);
        if back {
            self.units.nop();
            self.locate(Some(Location::of_line(firstline)));
        }
        Ok(())
    }

    /// The exception table: the user's handlers moved, and before them those for what the prologue raises.
    fn handlers(&self, body: &Body<'_>, point: &ResumePoint) -> Result<Vec<Handler>, AssembleError> {
        let length = self.units.len();
        let mut handlers: Vec<Handler> = self.raising.own.into_iter().collect();
        for (raised, at) in &self.raising.users {
            let Some(handler) = body.handler(*at)? else { continue };
            // What is sent to a generator is on its stack when it raises.
            let depth = point.stack.len() as u32 + u32::from(point.entry == Entry::Yield);
            if handler.depth > depth {
                return Err(AssembleError::Stack);
            }
            handlers.push(Handler {
                target: handler.target + length,
                depth: handler.depth,
                lasti: handler.lasti,
                ..*raised
            });
        }
        let moved = |e: Handler| Handler { start: e.start + length, target: e.target + length, ..e };
        handlers.extend(body.exceptions()?.into_iter().map(moved));
        Ok(handlers)
    }

    /// Prologue and body as one code object.
    fn join(
        self,
        body: &Body<'_>,
        point: &ResumePoint,
        bytecode: Vec<u8>,
        handlers: Vec<Handler>,
    ) -> Result<Code, AssembleError> {
        let (code, length) = (body.code, self.units.len());
        let values = match point.entry {
            Entry::Items(count) => count,
            Entry::Raise => 2,
            _ => 0,
        };
        let numbers = 0..i64::from(state_items(point).max(values));
        let brought = numbers.chain([i64::from(body.stacksize), i64::from(length)]).map(Const::Int);
        let deepest = self.units.deepest();
        finished(Code {
            argcount: PARAMETERS,
            posonlyargcount: PARAMETERS,
            kwonlyargcount: 0,
            stacksize: body.stacksize.max(deepest),
            flags: code.flags & !(VARARGS | VARKEYWORDS),
            bytecode: [self.units.finish(), bytecode].concat(),
            consts: body.consts.iter().cloned().chain(brought).collect(),
            names: body.marked_names(),
            localsplusnames: body.slot_names(),
            localspluskinds: body.slot_kinds(),
            linetable: [&self.locations.finish(), body.linetable].concat(),
            exceptiontable: exception_table(&handlers),
            ..code.clone()
        })
    }
}

/// How many items `state` has.
fn state_items(point: &ResumePoint) -> u32 {
    let stack = point.stack.iter().filter(|i| **i != Item::Null).count();
    let child = if matches!(point.entry, Entry::Child | Entry::ChildDropped) { 2 } else { 0 };
    (point.locals.len() + stack + child) as u32
}

/// The code under its own hash. An error where it is no code that CPython may run: that of broken code may not be.
pub(crate) fn finished(code: Code) -> Result<Code, AssembleError> {
    crate::decode(&code)?;
    let code = Code { hash: CodeHash([0; 32]), ..code };
    Ok(Code { hash: code.content_hash(), ..code })
}
