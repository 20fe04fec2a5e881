//! Iterators and generators that outlive the trace: made anew, at the place where the trace left them.

use super::build::Builder;
use crate::state::broken::Frozen;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::{GeneratorId, Slot};
use crate::value::parts::RANGE;
use crate::value::{Args, Class, Exhausted, Iter, IterId, Of, Polyfill, Value, ViewKind};
use flambeau_bytecode::resume::Entry;
use flambeau_ir::exit::{Build, BuildId};
use flambeau_ir::reason::ReasonCode;

impl Tracer<'_> {
    pub(super) fn build_iter(&mut self, b: &mut Builder, id: IterId) -> Flow<Build> {
        let call = |path: &str, args| Build::Call(path.into(), args);
        Ok(match self.arenas.iters[id].clone() {
            Iter::Done(what) => self.build_exhausted(b, what)?,
            Iter::Items { of: Of::Value(Value::Set(set)), ref items, .. }
                if self.is_changed_set(set) || self.is_other_set(set, items) =>
            {
                // It is made before the changes of the set, and goes through its table.
                return stop(ReasonCode::SideEffect, "an iterator over a changed set leaves the frame");
            }
            Iter::Items { at, of: Of::Value(value), .. } => Build::Iter(self.build(b, &value)?, at as u64),
            Iter::Items { at, of: Of::Call(path, args), .. } => {
                let made = call(path, self.build_all(b, &args)?);
                if at == 0 {
                    made
                } else {
                    let args = vec![b.add(made), self.build(b, &Value::int(at as i64))?];
                    call("flambeau._begun.advanced", args)
                }
            }
            Iter::Items { items, at, .. } => {
                let items = self.build_all(b, items.get(at..).unwrap_or_default())?;
                Build::Iter(b.add(Build::Tuple(items, None)), 0)
            }
            Iter::List { list, at } => Build::Iter(self.build(b, &Value::List(list))?, at as u64),
            Iter::Reversed { of: of @ Value::List(_), left } => {
                let list = self.build(b, &of)?;
                Build::Iter(b.add(call("builtins.reversed", vec![list])), left as u64)
            }
            Iter::Sequence { object, at: 0 } => call("builtins.iter", vec![self.build(b, &object)?]),
            Iter::Dict { dict, kind, at, deleted, .. } => {
                let entry = &self.arenas.dicts[dict];
                if entry.deleted != deleted {
                    return stop(ReasonCode::SideEffect, "an iterator over a dict that lost items leaves the frame");
                }
                // It is made before the dict gets what the trace wrote to it, and remembers the length it found.
                if entry.is_outside() && entry.is_changed() {
                    return stop(ReasonCode::SideEffect, "an iterator over a changed dict leaves the frame");
                }
                let over = match kind {
                    ViewKind::Keys => Value::Dict(dict),
                    ViewKind::Values | ViewKind::Items => Value::DictView(dict, kind),
                };
                Build::Iter(self.build(b, &over)?, at as u64)
            }
            Iter::Range { next, step, left } => {
                let end = i64::try_from(left).ok().and_then(|n| n.checked_mul(step)).and_then(|n| n.checked_add(next));
                let Some(end) = end else { return stop(ReasonCode::SideEffect, "a range of very large ints") };
                let range = [next, end, step].map(Value::int);
                Build::Iter(self.build(b, &Value::parts(RANGE, range))?, 0)
            }
            Iter::Zip { iters, strict: false } => call("builtins.zip", self.build_iters(b, &iters)?),
            Iter::Enumerate { iter, count } => {
                let mut args = self.build_iters(b, &[iter])?;
                args.push(self.build(b, &count)?);
                call("builtins.enumerate", args)
            }
            Iter::Map { func, iters } => {
                let mut args = vec![self.build(b, &func)?];
                args.extend(self.build_iters(b, &iters)?);
                call("builtins.map", args)
            }
            Iter::Filter { func, iter, keep } => {
                let mut args = vec![self.build(b, &func)?];
                args.extend(self.build_iters(b, &[iter])?);
                call(if keep { "builtins.filter" } else { "itertools.filterfalse" }, args)
            }
            Iter::CallUntil { func, sentinel } => call("builtins.iter", self.build_all(b, &[func, sentinel])?),
            Iter::Polyfill(polyfill) => self.build_polyfill(b, &polyfill)?,
            other => return self.build_itertools(b, other),
        })
    }

    /// Iterators of module `itertools`.
    fn build_itertools(&mut self, b: &mut Builder, iter: Iter) -> Flow<Build> {
        let call = |path: &str, args| Build::Call(path.into(), args);
        Ok(match iter {
            Iter::Accumulate { iter, func, total, initial } => {
                let mut args = self.build_iters(b, &[iter])?;
                let first = initial.as_ref().or(total.as_ref());
                args.extend(self.build_all(b, &[func.unwrap_or(Value::NONE)])?);
                args.extend(first.map(|first| self.build(b, first)).transpose()?);
                match (&initial, &total) {
                    (None, None) => call("itertools.accumulate", args),
                    (Some(_), _) => call("flambeau._begun.accumulate_from", args),
                    (None, Some(_)) => call("flambeau._begun.accumulate_on", args),
                }
            }
            Iter::Pairwise { iter, old } => {
                let mut args = self.build_iters(b, &[iter])?;
                if let Some(old) = old {
                    let old = vec![self.build(b, &old)?];
                    args.insert(0, b.add(Build::Tuple(old, None)));
                    args = vec![b.add(call("itertools.chain", args))];
                }
                call("itertools.pairwise", args)
            }
            Iter::ZipLongest { iters, fill } => {
                let mut args = vec![self.build(b, &fill)?];
                for iter in iters {
                    args.extend(match iter {
                        Some(iter) => self.build_iters(b, &[iter])?,
                        None => vec![b.add(Build::Tuple(vec![], None))],
                    });
                }
                call("flambeau._begun.zip_longest", args)
            }
            Iter::Chain { outer, inner } => {
                let outer = self.build_iters(b, &[outer])?;
                let rest = call("itertools.chain.from_iterable", outer);
                match inner {
                    None => rest,
                    Some(inner) => {
                        let mut args = self.build_iters(b, &[inner])?;
                        args.push(b.add(rest));
                        call("itertools.chain", args)
                    }
                }
            }
            Iter::Count { next, step } => call("itertools.count", self.build_all(b, &[next, step])?),
            Iter::Repeat { value, left } => {
                let left = left.map(|n| Value::int(n as i64));
                let args: Vec<Value> = std::iter::once(value).chain(left).collect();
                call("itertools.repeat", self.build_all(b, &args)?)
            }
            Iter::Islice { iter, skip, step, left } if left.is_none_or(|left| skip <= left) => {
                let mut args = self.build_iters(b, &[iter])?;
                let left = left.map_or(Value::NONE, |n| Value::int(n as i64));
                args.extend(self.build_all(b, &[Value::int(skip as i64), left, Value::int(step as i64)])?);
                call("itertools.islice", args)
            }
            _ => return stop(ReasonCode::SideEffect, "an iterator of this kind leaves the frame"),
        })
    }

    /// As its kind says. Where it says nothing, the instruction that made the iterator is left to Python.
    fn build_polyfill(&mut self, b: &mut Builder, polyfill: &Polyfill) -> Flow<Build> {
        match self.remade(b, &polyfill.kind, &polyfill.state)? {
            Some(build) => Ok(build),
            None => {
                self.unmade = Some(polyfill.made_at);
                self.cannot_leave_as(&polyfill.class)
            }
        }
    }

    /// The call that makes an object of C in this state, if its kind names one.
    pub(super) fn remade(&mut self, b: &mut Builder, kind: &Value, state: &Value) -> Flow<Option<Build>> {
        let rebuild = self.get_attr(kind, "rebuild")?;
        let made = match self.call(&rebuild, Args::new(vec![state.clone()])) {
            Ok(Value::Tuple(made)) => made,
            Err(Stop::Break(reason)) => return Err(Stop::Break(reason)),
            _ => return Ok(None),
        };
        let [path, args @ ..] = made.items.as_slice() else {
            return stop(ReasonCode::Internal, "a polyfill names nothing to make an iterator with");
        };
        let Some(path) = path.as_str().cloned() else {
            return stop(ReasonCode::Internal, "a polyfill does not name what makes an iterator");
        };
        for arg in args {
            // C asks an iterator for its iterator, which runs code of a user's class.
            let is_refused = match self.polyfill_state(arg) {
                // What was done to one from outside is done to it once this is made.
                Some(state) => self.is_change_of_outside(&state),
                None => self.python_special(arg, "__iter__")?.is_some(),
            };
            if is_refused {
                return Ok(None);
            }
        }
        Ok(Some(Build::Call(path, self.build_all(b, args)?)))
    }

    fn cannot_leave_as<T>(&self, class: &Class) -> Flow<T> {
        stop(ReasonCode::SideEffect, format!("a new {} leaves the frame", class.name.qualname))
    }

    fn build_exhausted(&mut self, b: &mut Builder, what: Exhausted) -> Flow<Build> {
        let none = |b: &mut Builder| b.add(Build::List(vec![]));
        Ok(match what {
            Exhausted::List => Build::Iter(none(b), 0),
            Exhausted::Tuple => Build::Iter(b.add(Build::Tuple(vec![], None)), 0),
            Exhausted::Set => {
                let empty = b.add(Build::Call("builtins.set".into(), vec![]));
                Build::Iter(empty, 0)
            }
            Exhausted::ReversedDict => {
                let empty = b.add(Build::Dict(vec![], None));
                Build::Call("builtins.reversed".into(), vec![empty])
            }
            Exhausted::Reversed => Build::Call("builtins.reversed".into(), vec![none(b)]),
            Exhausted::Dict(kind) => {
                let Value::Dict(dict) = self.new_dict(vec![])? else {
                    return stop(ReasonCode::Internal, "a new dict is none");
                };
                let over = if let ViewKind::Keys = kind { Value::Dict(dict) } else { Value::DictView(dict, kind) };
                Build::Iter(self.build(b, &over)?, 0)
            }
            Exhausted::ReversedSequence => {
                let empty = vec![b.add(Build::Tuple(vec![], None))];
                Build::Call("builtins.reversed".into(), empty)
            }
            Exhausted::Chain => Build::Call("itertools.chain".into(), vec![]),
            Exhausted::ZipLongest => Build::Call("itertools.zip_longest".into(), vec![]),
            Exhausted::Pairwise => Build::Call("itertools.pairwise".into(), vec![none(b)]),
            Exhausted::Sequence => Build::Call("flambeau._begun.ended_sequence".into(), vec![]),
            Exhausted::CallUntil => Build::Call("flambeau._begun.ended_calls".into(), vec![]),
            Exhausted::Islice => {
                let args = vec![none(b), self.build(b, &Value::int(0))?];
                Build::Call("itertools.islice".into(), args)
            }
        })
    }

    /// Iterators that others draw from: built-in ones, whose `iter()` runs no code of users.
    fn build_iters(&mut self, b: &mut Builder, iters: &[Value]) -> Flow<Vec<BuildId>> {
        if iters.iter().any(|i| !matches!(i, Value::Iter(_) | Value::Generator(_))) {
            return stop(ReasonCode::SideEffect, "an iterator over an iterator of the user's leaves the frame");
        }
        self.build_all(b, iters)
    }

    /// A generator that goes on where this one is suspended.
    pub(super) fn build_generator(&mut self, b: &mut Builder, id: GeneratorId) -> Flow<Build> {
        let Some(frame) = self.arenas.generators[id].frame.as_deref() else {
            return stop(ReasonCode::Generator, "a generator that runs or has ended leaves the frame");
        };
        let (frozen, at) = (Frozen::of(frame, frame.pc.saturating_sub(1)), frame.pc as u32);
        let started = self.arenas.generators[id].started;
        if let Some(slots) = frozen.function.slots.get()
            && (self.dict_get_str(slots, "__name__")?.is_some() || self.dict_get_str(slots, "__qualname__")?.is_some())
        {
            // A generator has the names that its function had when it was called.
            return stop(ReasonCode::Generator, "a generator of a function that was renamed leaves the frame");
        }
        if !started && let Some(build) = self.build_fresh_generator(b, &frozen)? {
            return Ok(build);
        }
        if frozen.handling {
            return stop(ReasonCode::Generator, "a generator that handles an exception leaves the frame");
        }
        let stack = frozen.stack.clone();
        // One that has not begun drops the `None` it is begun with.
        let entry = if started { Entry::Yield } else { Entry::Value };
        let point = self.take_up(b, &frozen, at, &stack, entry, None)?;
        Ok(Build::Generator { function: point.function, state: point.state, started })
    }
}

/// Where the arguments of a code object that are no plain positional ones lie.
const VARARGS: u32 = 4;
const VARKEYWORDS: u32 = 8;

impl Tracer<'_> {
    /// A generator that has not begun, by a call of its function: its frame shows what the user's would. `None` where the
    /// function has to be made anew and cannot.
    fn build_fresh_generator(&mut self, b: &mut Builder, frame: &Frozen) -> Flow<Option<Build>> {
        let (code, function) = (&frame.code, &frame.function);
        let positional = code.argcount as usize;
        let named = positional + code.kwonlyargcount as usize;
        let (varargs, varkeywords) = (code.flags & VARARGS != 0, code.flags & VARKEYWORDS != 0);
        let count = named + usize::from(varargs) + usize::from(varkeywords);
        let mut values = Vec::with_capacity(count);
        for slot in frame.locals.iter().take(count) {
            values.push(match slot {
                Slot::Value(Value::Cell(cell)) => match self.cell_get(*cell)? {
                    Some(value) => value,
                    None => return Ok(None),
                },
                Slot::Value(value) => value.clone(),
                Slot::Empty | Slot::Lazy(..) => return Ok(None),
            });
        }
        let mut args = values[..positional].to_vec();
        if varargs {
            let Value::Tuple(rest) = &values[named] else { return Ok(None) };
            args.extend(rest.items.iter().cloned());
        }
        let mut keywords = Vec::new();
        for (i, value) in values.iter().enumerate().take(named).skip(positional) {
            keywords.push((code.localsplusnames[i].as_str().into(), self.build(b, value)?));
        }
        if varkeywords {
            let Value::Dict(rest) = values[count - 1] else { return Ok(None) };
            for (name, value) in self.stored_items(rest)? {
                let Some(name) = name.as_str().cloned() else { return Ok(None) };
                keywords.push((name, self.build(b, &value)?));
            }
        }
        let args = self.build_all(b, &args)?;
        let function = self.build(b, &Value::Function(function.clone()))?;
        Ok(Some(Build::NewGenerator { function, args, keywords }))
    }
}
