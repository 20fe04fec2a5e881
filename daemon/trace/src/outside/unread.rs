//! Values that a resume function is handed and only passes on. What a break leaves behind (a time, a random number, a name)
//! is no fact of the trace until something looks at it: nothing is guarded till then, and it leaves the frame as the very
//! object that came in.
//!
//! Such a [`Value::Unread`] is a constant, a tensor or a tuple, or anything in a variable that nothing reads. It is only ever
//! in local variables, in cells, on the value stack, among the items of lists and the values of dicts that stored it, and in
//! tuples that the root frame makes and returns at once. An instruction that does more than move its operands finds them read:
//! [`Tracer::read_operands`] is the one place that sees to it. Lists and dicts have a second one, where their values are taken
//! out (`Tracer::load_list`, `Tracer::dict_get_key`, `Tracer::load_dict`).

use crate::state::tracer::Tracer;
use crate::value::flow::Flow;
use crate::value::frame::{FrameEnd, PyFrame};
use crate::value::{DictId, Instance, Key, Origin, Value};
use flambeau_bytecode::{Condition, Op, live_slots};
use flambeau_ir::code::{Code, Const};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::object::{ObjId, ObjectData};
use flambeau_ir::source::{SourceId, Step};

/// Tensors without code of the user's.
const TENSORS: [&str; 2] = ["torch.Tensor", "torch.nn.parameter.Parameter"];

pub(super) const MODULE: &str = "torch.nn.modules.module.Module";

impl Tracer<'_> {
    /// What a resume function holds at `source`, in its arguments or in a cell: constants, tensors and tuples are not read
    /// yet.
    pub(crate) fn take(&mut self, object: ObjId, source: SourceId) -> Flow<Value> {
        if self.resuming && self.may_stay_unread(object)? {
            return Ok(Value::Unread(Origin { object, source }));
        }
        if self.sources.get(source).base.is_none() { self.wrap(object, source) } else { self.wrap_item(object, source) }
    }

    /// What a resume function was handed and binds to a variable that nothing reads: whatever it is, the frame only holds it.
    /// Of an object whose end may be seen its moment counts.
    pub(crate) fn take_unused(&mut self, frame: &PyFrame, object: ObjId, source: SourceId) -> Flow<Option<Value>> {
        let Some(Op::StoreFast(slot)) = frame.decoded.instrs.get(frame.pc).map(|instr| instr.op) else {
            return Ok(None);
        };
        let unused = self.resuming
            && self.stack.len() == 1
            && self.sources.get(source).base.is_none()
            && frame.code.localspluskinds[slot as usize] & Code::CELL == 0
            && !live_slots(&frame.code, &frame.decoded, frame.pc as u32 + 1)[slot as usize];
        if !unused {
            return Ok(None);
        }
        let class = self.describe(object)?.class;
        let ends_early = frame.decoded.instrs[frame.pc + 1..].iter().any(|instr| instr.op.rebinds(slot));
        let is_python = matches!(&self.describe(class)?.data, ObjectData::Class(class) if class.is_python);
        if ends_early && is_python || self.raw_type_lookup(class, "__del__")?.is_some() {
            return Ok(None);
        }
        Ok(Some(Value::Unread(Origin { object, source })))
    }

    /// Whether nobody sees the end of what was not read: a constant or a tensor, which is guarded. What a tuple holds is not
    /// known.
    pub(crate) fn ends_unseen(&mut self, origin: Origin) -> bool {
        use Const as C;
        let Ok(described) = self.describe(origin.object) else { return false };
        let own_class = match &described.data {
            ObjectData::Const(
                C::None
                | C::Bool(_)
                | C::Int(_)
                | C::BigInt(_)
                | C::Float(_)
                | C::Complex(..)
                | C::Str(_)
                | C::Bytes(_),
            ) => true,
            ObjectData::Const(_) => false,
            ObjectData::Tensor(_) => self.is_torchs_tensor(described.class),
            _ => return false,
        };
        if own_class {
            self.guard(origin.source, GuardKind::EndsUnseen);
            return true;
        }
        self.guard_type(described.class, origin.source).is_ok()
    }

    fn is_torchs_tensor(&mut self, class: ObjId) -> bool {
        let class = self.describe(class);
        class.is_ok_and(|class| class.path.as_deref().is_some_and(|path| TENSORS.contains(&path)))
    }

    fn may_stay_unread(&mut self, object: ObjId) -> Flow<bool> {
        let described = self.describe(object)?;
        match described.data {
            ObjectData::Const(_) => Ok(true),
            ObjectData::Tensor(ref desc) if desc.unusual.is_none() => Ok(self.is_torchs_tensor(described.class)),
            _ => self.is_exact_tuple(object),
        }
    }

    fn is_exact_tuple(&mut self, object: ObjId) -> Flow<bool> {
        let described = self.describe(object)?;
        if !matches!(described.data, ObjectData::Tuple(_)) {
            return Ok(false);
        }
        Ok(self.describe(described.class)?.path.as_deref() == Some("builtins.tuple"))
    }

    /// The value itself: one that was not read is read, and guarded, now.
    pub(crate) fn read(&mut self, value: &Value) -> Flow<Value> {
        let Value::Unread(Origin { object, source }) = *value else { return Ok(value.clone()) };
        if let Some(known) = self.reads.get(&source) {
            return Ok(known.clone());
        }
        let value = self.wrap_item(object, source)?;
        self.reads.insert(source, value.clone());
        Ok(value)
    }

    pub(crate) fn read_all(&mut self, values: &mut [Value]) -> Flow<()> {
        for value in values.iter_mut().filter(|value| matches!(value, Value::Unread(_))) {
            *value = self.read(value)?;
        }
        Ok(())
    }

    /// Reads the values that were stored into a dict unread.
    pub(crate) fn read_values(&mut self, dict: DictId) -> Flow<()> {
        let unread = |(key, (_, value)): (&Key, &(Value, Value))| match value {
            Value::Unread(_) => Some((key.clone(), value.clone())),
            _ => None,
        };
        let found: Vec<(Key, Value)> = self.arenas.dicts[dict].items.iter().filter_map(unread).collect();
        for (key, value) in found {
            let value = self.read(&value)?;
            if let Some(item) = self.arenas.dicts[dict].items.get_mut(&key) {
                item.1 = value;
            }
        }
        Ok(())
    }

    /// Stores an unread value as an attribute of a module, as `Module.__setattr__` does with what is neither a parameter
    /// nor a module nor a tensor. False where more is to be looked at.
    pub(crate) fn store_on_module(&mut self, module: &Value, name: &str, value: &Value) -> Flow<bool> {
        let (Value::Instance(id), Value::Unread(origin)) = (module, value) else { return Ok(false) };
        if matches!(self.describe(origin.object)?.data, ObjectData::Tensor(_)) {
            return Ok(false);
        }
        let Instance { class, attrs: Some(attrs), .. } = self.arenas.instances[*id].clone() else { return Ok(false) };
        let setter = self.type_lookup(&class, "__setattr__")?;
        if !matches!(setter, Some((owner, _)) if owner.is(MODULE)) {
            return Ok(false);
        }
        for registry in ["_parameters", "_modules", "_buffers"] {
            let Some(Value::Dict(registered)) = self.dict_get_str(attrs, registry)? else { return Ok(false) };
            if self.dict_get_str(registered, name)?.is_some() {
                return Ok(false);
            }
        }
        self.class_of(value)?;
        self.generic_set_attr(module, name, Some(value.clone()))?;
        Ok(true)
    }

    /// The items of an exact tuple that was not read, themselves unread: only their number becomes a fact.
    pub(crate) fn unread_items(&mut self, value: &Value) -> Flow<Option<Vec<Value>>> {
        let Some((items, source)) = self.unread_tuple(value)? else { return Ok(None) };
        let mut values = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let source = self.step(source, Step::Index(i as u32));
            values.push(self.take(*item, source)?);
        }
        Ok(Some(values))
    }

    /// One of them.
    pub(crate) fn unread_item(&mut self, value: &Value, index: &Value) -> Flow<Option<Value>> {
        let Some((items, source)) = self.unread_tuple(value)? else { return Ok(None) };
        let Some(i) = index.as_int().and_then(|i| usize::try_from(i).ok()).filter(|i| *i < items.len()) else {
            return Ok(None);
        };
        let source = self.step(source, Step::Index(i as u32));
        self.take(items[i], source).map(Some)
    }

    fn unread_tuple(&mut self, value: &Value) -> Flow<Option<(Vec<ObjId>, SourceId)>> {
        let Value::Unread(Origin { object, source }) = *value else { return Ok(None) };
        let described = self.describe(object)?;
        let ObjectData::Tuple(items) = &described.data else { return Ok(None) };
        self.guard_container_type(described.class, "tuple", source)?;
        self.guard(source, GuardKind::Len(items.len()));
        Ok(Some((items.clone(), source)))
    }

    /// Whether it is an int, which is symbolic wherever it is found again.
    pub(crate) fn is_counted(&mut self, value: &Value) -> bool {
        match value {
            Value::Int(_) => true,
            Value::Unread(origin) => {
                matches!(self.describe(origin.object), Ok(o) if matches!(o.data, ObjectData::Const(Const::Int(_))))
            }
            _ => false,
        }
    }

    /// Reads those operands of an instruction on the stack that it does more with than to move them.
    pub(crate) fn read_operands(&mut self, frame: &mut PyFrame, op: Op) -> Flow<()> {
        if !frame.stack.iter().any(|v| matches!(v, Some(Value::Unread(_)))) {
            return Ok(());
        }
        let depth = frame.stack.len();
        match op {
            Op::PopTop
            | Op::PushNull
            | Op::Swap(_)
            | Op::Copy(_)
            | Op::LoadConst(_)
            | Op::LoadFast(_)
            | Op::StoreFast(_)
            | Op::DeleteFast(_)
            | Op::LoadFastAndClear(_)
            | Op::MakeCell(_)
            | Op::LoadClosure(_)
            | Op::LoadDeref(_)
            | Op::StoreDeref(_)
            | Op::DeleteDeref(_)
            | Op::CopyFreeVars(_)
            | Op::KwNames(_)
            | Op::LoadGlobal { .. }
            | Op::Jump(_)
            | Op::EndFor
            // Read where the frame ends, if the caller is a built-in.
            | Op::ReturnValue
            | Op::StoreGlobal(_)
            | Op::UnpackSequence(_) => Ok(()),
            Op::StoreAttr(_) | Op::BinarySubscr => self.read_top(frame, 1),
            Op::StoreSubscr => {
                self.read_top(frame, 2)?;
                let in_dict = depth > 1 && matches!(frame.stack[depth - 2], Some(Value::Dict(_)));
                if in_dict { Ok(()) } else { self.read_top(frame, 3) }
            }
            Op::Call { argc } => self.read_call(frame, argc as usize, 0),
            Op::CallKw { argc } => self.read_call(frame, argc as usize, 1),
            Op::Is { .. } => self.read_identity(frame),
            Op::PopJumpIf { cond: Condition::None | Condition::NotNone, .. } => {
                let none = Some(Value::NONE);
                self.read_as_none(frame, depth - 1, none.as_ref())
            }
            Op::PopJumpIf { .. } | Op::JumpIfOrPop { .. } | Op::ForIter(_) | Op::YieldValue => self.read_top(frame, 1),
            Op::BuildTuple(_) if self.is_unpacked(frame) => Ok(()),
            Op::BuildTuple(n) if self.is_returned(frame, n as usize) => Ok(()),
            Op::BuildList(_) | Op::BuildConstKeyMap(_) => Ok(()),
            Op::BuildMap(n) => self.read_keys(frame, n as usize),
            _ => self.read_top(frame, op.alone().map_or(depth, |(inputs, _)| inputs as usize)),
        }
    }

    /// Reads the topmost `count` values.
    fn read_top(&mut self, frame: &mut PyFrame, count: usize) -> Flow<()> {
        let first = frame.stack.len().saturating_sub(count);
        for value in frame.stack[first..].iter_mut().flatten() {
            *value = self.read(value)?;
        }
        Ok(())
    }

    fn read_keys(&mut self, frame: &mut PyFrame, pairs: usize) -> Flow<()> {
        let first = frame.stack.len().saturating_sub(2 * pairs);
        for key in frame.stack[first..].iter_mut().step_by(2).flatten() {
            *key = self.read(key)?;
        }
        Ok(())
    }

    /// A Python function, and what cannot be called in a trace, is handed its arguments as they are; `type(value)` asks for
    /// no more than the type.
    fn read_call(&mut self, frame: &mut PyFrame, argc: usize, above: usize) -> Flow<()> {
        let Some(args) = frame.stack.len().checked_sub(argc + above).filter(|args| *args >= 2) else { return Ok(()) };
        for value in frame.stack[args - 2..args].iter_mut().flatten() {
            *value = self.read(value)?;
        }
        let callee = frame.stack[args - 2].as_ref().or(frame.stack[args - 1].as_ref());
        let passes = match callee {
            Some(Value::Function(f)) => self.special_path(f).is_none(),
            Some(Value::Method(m)) => matches!(&m.func, Value::Function(f) if self.special_path(f).is_none()),
            Some(Value::Opaque(_)) => true,
            Some(Value::Class(class)) => argc == 1 && class.is("builtins.type"),
            Some(Value::Builtin(b)) => &*b.path == "builtins.list.append" && b.receiver.is_some(),
            _ => false,
        };
        if passes { Ok(()) } else { self.read_top(frame, argc + above) }
    }

    /// `is`: of one side, whether it is `None` is all that the other asks for.
    fn read_identity(&mut self, frame: &mut PyFrame) -> Flow<()> {
        let depth = frame.stack.len();
        for (at, other) in [(depth - 2, depth - 1), (depth - 1, depth - 2)] {
            let other = frame.stack[other].clone();
            self.read_as_none(frame, at, other.as_ref())?;
        }
        Ok(())
    }

    /// Reads a value that is compared with another by identity. Against `None` its type says enough.
    fn read_as_none(&mut self, frame: &mut PyFrame, at: usize, other: Option<&Value>) -> Flow<()> {
        let Some(value @ Value::Unread(origin)) = frame.stack[at].clone() else { return Ok(()) };
        let described = self.describe(origin.object)?;
        let none = matches!(described.data, ObjectData::Const(Const::None));
        if none || !other.is_some_and(Value::is_none) {
            frame.stack[at] = Some(self.read(&value)?);
            return Ok(());
        }
        self.guard_type(described.class, origin.source)?;
        // It stands for any object that is not `None`.
        frame.stack[at] = Some(Value::tuple(Vec::new()));
        Ok(())
    }

    /// Whether the container that is made of the topmost `inputs` values goes straight to the end of the root frame: into
    /// other containers, and out with its value. Nothing looks into it before.
    fn is_returned(&self, frame: &PyFrame, inputs: usize) -> bool {
        if self.stack.len() != 1 {
            return false;
        }
        // Values above the container, as it is now or within another.
        let mut above = 0usize;
        let Some(mut below) = frame.stack.len().checked_sub(inputs) else { return false };
        for instr in &frame.decoded.instrs[frame.pc..] {
            let (takes, gives) = match instr.op {
                Op::ReturnValue => return above == 0,
                Op::LoadConst(_) | Op::LoadFast(_) => (0, 1),
                Op::BuildTuple(n) | Op::BuildList(n) => (n as usize, 1),
                Op::BuildMap(n) => (2 * n as usize, 1),
                Op::BuildConstKeyMap(n) => (n as usize + 1, 1),
                _ => return false,
            };
            if takes <= above {
                above = above - takes + gives;
            } else {
                // It becomes a part of a larger one.
                let Some(rest) = below.checked_sub(takes - above - 1) else { return false };
                (above, below) = (0, rest);
            }
        }
        false
    }

    /// Whether the tuple that is about to be made is the result of a frame that an instruction of its caller takes as it is,
    /// which then sees to it: [`Tracer::take_result`].
    fn is_unpacked(&self, frame: &PyFrame) -> bool {
        let returned = matches!(next_op(frame), Some(Op::ReturnValue));
        returned && self.stack.len() > 1 && self.stack.last().is_some_and(|info| info.direct)
    }

    /// The result of a call. A tuple with items that were not read stays one only where it is taken apart at once, or
    /// returned further.
    pub(crate) fn take_result(&mut self, frame: &PyFrame, result: Value) -> Flow<Value> {
        let Value::Tuple(tuple) = &result else { return Ok(result) };
        let made = tuple.origin.is_none() && tuple.class.is_none();
        if !made || !tuple.items.iter().any(|item| matches!(item, Value::Unread(_))) {
            return Ok(result);
        }
        let direct = self.stack.len() == 1 || self.stack.last().is_some_and(|info| info.direct);
        match next_op(frame) {
            Some(Op::UnpackSequence(_)) => Ok(result),
            Some(Op::ReturnValue) if direct => Ok(result),
            _ => {
                // Nothing else holds it yet.
                let mut items = tuple.items.clone();
                self.read_all(&mut items)?;
                Ok(Value::tuple(items))
            }
        }
    }

    /// A frame's result: as it is where it goes on the caller's stack or leaves the trace.
    pub(crate) fn read_result(&mut self, result: Flow<FrameEnd>, direct: bool) -> Flow<FrameEnd> {
        match result {
            Ok(FrameEnd::Return(value @ Value::Unread(_))) if !direct && !self.stack.is_empty() => {
                Ok(FrameEnd::Return(self.read(&value)?))
            }
            other => other,
        }
    }

    /// An instruction that is left to plain Python has read nothing: values that only it looked at are no facts.
    pub(crate) fn forget_reads(&mut self, since: usize) {
        let read = self.guards.split_off(since);
        for guard in read {
            match &guard.kind {
                GuardKind::Equals(constant) if self.is_handed(guard.source) => {
                    self.reads.remove(&guard.source);
                    if let Some(Some((_, source))) = self.const_objects.get(constant)
                        && *source == guard.source
                    {
                        // It is no longer known to be the constant: an equal one that the code has is not it.
                        self.const_objects.remove(constant);
                    }
                    self.guarded.remove(&(guard.source, guard.kind));
                }
                _ => self.guards.push(guard),
            }
        }
    }

    /// Whether it is what a resume function was handed, or an item of it.
    pub(crate) fn is_handed(&self, source: SourceId) -> bool {
        let mut at = Some(source);
        while let Some(id) = at {
            let node = self.sources.get(id);
            if !matches!(
                node.step,
                Step::Arg(_) | Step::Index(_) | Step::Closure(_) | Step::CellContents | Step::Function
            ) {
                return false;
            }
            at = node.base;
        }
        self.resuming
    }
}

/// The instruction after the present one.
fn next_op(frame: &PyFrame) -> Option<Op> {
    match frame.decoded.instrs.get(frame.pc)?.op {
        Op::Jump(target) => Some(frame.decoded.instrs.get(target as usize)?.op),
        op => Some(op),
    }
}
