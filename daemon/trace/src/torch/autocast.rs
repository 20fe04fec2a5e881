//! Autocast: the trace keeps its state, and the graph has the casts, as nodes of their own. So graphs run with autocast off. Only calls
//! of which it is not known what torch does to their tensors are made with autocast on, by nodes in front of them and behind them
//! ([`Target::sets_autocast`]).

use crate::state::autocast::Kept;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::{Args, TensorId, Tuple, Value};
use flambeau_ir::code::Const;
use flambeau_ir::device::{DeviceKind, RUNNING};
use flambeau_ir::exit::Effect;
use flambeau_ir::graph::{Arg, Target, ValueMeta};
use flambeau_ir::guard::{Ambient, GuardKind};
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::ReasonCode;
use flambeau_ops::autocast::{Casts, casts, is_eligible};
use std::collections::HashSet;
use std::rc::Rc;

impl Tracer<'_> {
    /// A call of torch in a region of autocast.
    pub(super) fn call_under_autocast(&mut self, target: Target, args: Args) -> Flow<Value> {
        let (_, op_args, _, op_kwargs) = self.call_args(&args)?;
        let kernels = self.autocast_kernels()?;
        let has_kernel = |kind: &str, name: &str| kernels.contains(&(kind.to_owned(), name.to_owned()));
        let args = match casts(&target, &op_args, &op_kwargs, &self.ambient, &has_kernel) {
            Casts::None => args,
            Casts::To(dtype, kind) => self.cast_args(args, dtype, kind)?,
            Casts::Result(dtype) => {
                let mut args = args;
                args.kw.retain(|(name, _)| &**name != "dtype");
                args.kw.push(("dtype".into(), Value::Const(Const::Dtype(dtype))));
                args
            }
            Casts::Unknown => return self.in_autocast(|tracer| tracer.plain_call(target, args)),
        };
        self.without_autocast(|tracer| tracer.plain_call(target, args))
    }

    /// Makes nodes with autocast as it is in the trace.
    pub(super) fn in_autocast<T>(&mut self, make: impl FnOnce(&mut Self) -> Flow<T>) -> Flow<T> {
        let (on, initial) = (self.ambient.clone(), self.frame.ambient.clone());
        self.switch_autocast(&Ambient { autocast: off(&initial), ..initial.clone() }, &on)?;
        let made = make(self)?;
        self.switch_autocast(&on, &Ambient { autocast: off(&initial), ..initial })?;
        Ok(made)
    }

    /// Traces calls with autocast off.
    fn without_autocast<T>(&mut self, call: impl FnOnce(&mut Self) -> Flow<T>) -> Flow<T> {
        let before = self.ambient.autocast;
        self.ambient.autocast = off(&self.ambient);
        let made = call(self);
        self.ambient.autocast = before;
        made
    }

    /// Nodes that switch autocast.
    fn switch_autocast(&mut self, from: &Ambient, to: &Ambient) -> Flow<()> {
        for ((kind, (was_on, old)), (on, dtype)) in DeviceKind::running().zip(from.autocast).zip(to.autocast) {
            let name = || Const::str(kind.name);
            if old != dtype {
                let Some(dtype) = DType::from_torch(dtype) else {
                    return stop(ReasonCode::UnusualAmbient, "a type of autocast that is not known");
                };
                self.state_call("set_autocast_dtype", vec![name(), Const::Dtype(dtype)])?;
            }
            if was_on != on {
                self.state_call("set_autocast_enabled", vec![name(), Const::Bool(on)])?;
            }
        }
        if from.autocast_cache != to.autocast_cache {
            self.state_call("set_autocast_cache_enabled", vec![Const::Bool(to.autocast_cache)])?;
        }
        Ok(())
    }

    /// A call that changes the thread's state, in the graph.
    fn state_call(&mut self, name: &str, args: Vec<Const>) -> Flow<()> {
        let target = Target::Function(format!("torch.{name}").into());
        let args = args.into_iter().map(Arg::Const).collect();
        self.graph_call(&target, args, vec![], ValueMeta::Const(Const::None))?;
        Ok(())
    }

    /// What torch has kernels of autocast for.
    fn autocast_kernels(&mut self) -> Flow<Rc<HashSet<(String, String)>>> {
        if let Some(known) = &self.autocast.kernels {
            return Ok(known.clone());
        }
        let mut kernels = HashSet::new();
        for kind in DeviceKind::running() {
            let Value::Const(Const::Str(names)) =
                self.eval("flambeau._autocast.kernels", vec![Const::str(kind.name)])?
            else {
                return stop(ReasonCode::Internal, "kernels of autocast that are no text");
            };
            kernels.extend(names.split(' ').map(|name| (kind.name.to_owned(), name.to_owned())));
        }
        Ok(self.autocast.kernels.insert(Rc::new(kernels)).clone())
    }

    /// Arguments with the casts that autocast makes.
    fn cast_args(&mut self, args: Args, dtype: DType, kind: &'static DeviceKind) -> Flow<Args> {
        let pos = args.pos.iter().map(|value| self.cast_value(value, dtype, kind)).collect::<Flow<_>>()?;
        let kw = args.kw.into_iter().map(|(name, value)| Ok((name, self.cast_value(&value, dtype, kind)?)));
        Ok(Args { pos, kw: kw.collect::<Flow<_>>()? })
    }

    fn cast_value(&mut self, value: &Value, dtype: DType, kind: &'static DeviceKind) -> Flow<Value> {
        let items = match value {
            Value::Tensor(id) if is_eligible(&self.arenas.tensors[*id].meta, kind) => {
                return self.cast_tensor(*id, dtype);
            }
            Value::Tuple(tuple) => tuple.items.clone(),
            Value::List(list) => self.list_items(*list)?.clone(),
            _ => return Ok(value.clone()),
        };
        if !items.iter().any(|item| matches!(item, Value::Tensor(_))) {
            return Ok(value.clone());
        }
        let items = items.iter().map(|item| self.cast_value(item, dtype, kind)).collect::<Flow<_>>()?;
        Ok(Value::Tuple(Rc::new(Tuple { items, class: None, attrs: None, origin: None })))
    }

    /// A tensor in another type: of a weight the one that torch keeps.
    fn cast_tensor(&mut self, id: TensorId, dtype: DType) -> Flow<Value> {
        let tensor = &self.arenas.tensors[id];
        let of = tensor.meta.dtype;
        if of == dtype {
            return Ok(Value::Tensor(id));
        }
        let is_weight = tensor.is_leaf && tensor.meta.requires_grad && tensor.base.is_none();
        let is_parameter =
            tensor.class.as_ref().is_some_and(|class| class.path.as_deref() == Some("torch.nn.parameter.Parameter"));
        let is_kept = is_weight && of == DType::F32 && dtype != DType::F32 && self.ambient.autocast_cache;
        if let Some(kept) = self.autocast.kept.iter().find(|kept| is_kept && kept.leaf == id && kept.dtype == dtype) {
            let root = self.root(id, false);
            let writes = &self.graph.changed[kept.writes.min(self.graph.changed.len())..];
            let is_written = writes.iter().any(|(_, written)| self.root(*written, false) == root);
            if is_written && !is_parameter {
                // Whether it is a view, of which torch keeps nothing, is not known.
                return stop(ReasonCode::SideEffect, "autocast of a weight that was written to");
            }
            return Ok(Value::Tensor(kept.cast));
        }
        let args = Args { pos: vec![Value::Tensor(id), Value::Const(Const::Dtype(dtype))], kw: vec![] };
        let made = self.without_autocast(|tracer| tracer.plain_call(Target::Method("to".into()), args))?;
        if let (true, Value::Tensor(cast)) = (is_kept, &made) {
            let kept = Kept { leaf: id, dtype, cast: *cast, writes: self.graph.changed.len() };
            self.autocast.kept.push(kept);
        }
        Ok(made)
    }

    /// Forgets casts that were made by node `first` of the graph and later ones.
    pub(super) fn forget_casts(&mut self, first: usize) {
        let tensors = &self.arenas.tensors;
        self.autocast.kept.retain(|kept| (tensors[kept.cast].node.0 as usize) < first);
    }

    /// What the frame leaves of it to its caller.
    pub(crate) fn autocast_effect(&self) -> Option<Effect> {
        let (now, initial) = (&self.ambient, &self.frame.ambient);
        let kinds = DeviceKind::running().zip(now.autocast.iter().zip(&initial.autocast));
        let switched = kinds
            .filter(|(_, (now, initial))| now != initial)
            .filter_map(|(kind, ((on, dtype), _))| Some((kind.name.into(), *on, DType::from_torch(*dtype)?)));
        let switched: Vec<_> = switched.collect();
        let keeps = (now.autocast_cache != initial.autocast_cache).then_some(now.autocast_cache);
        let entered = i16::try_from(self.autocast.depth.map_or(0, |(first, now)| now - first)).ok()?;
        let clears = self.autocast.clears;
        let changes = entered != 0 || clears || keeps.is_some() || !switched.is_empty();
        changes.then_some(Effect::Autocast { entered, clears, keeps, switched })
    }

    /// Whether autocast is on for the kind of device that is called so, and its type; `None`: no kind that plans run on.
    pub(super) fn autocast_of(&self, kind: &str) -> Option<(bool, u8)> {
        let at = DeviceKind::running().position(|running| running.name == kind)?;
        Some(self.ambient.autocast[at])
    }

    /// `torch.clear_autocast_cache()`
    pub(super) fn clear_autocast(&mut self) -> Value {
        self.autocast.clears = true;
        self.autocast.kept.clear();
        Value::NONE
    }

    /// A switch of autocast.
    pub(super) fn set_autocast(&mut self, name: &str, args: &Args) -> Flow<Option<Value>> {
        let unknown = || stop(ReasonCode::UnsupportedCall, format!("torch.{name} with these arguments"));
        let given = args.pos.iter().map(|value| match value {
            Value::Const(c) => Some(c.clone()),
            _ => None,
        });
        let Some(given) = given.collect::<Option<Vec<Const>>>().filter(|_| args.kw.is_empty()) else {
            return unknown();
        };
        let (kind, value) = match (name, given.as_slice()) {
            ("set_autocast_cache_enabled", [Const::Bool(keeps)]) => {
                self.ambient.autocast_cache = *keeps;
                return Ok(Some(Value::NONE));
            }
            ("set_autocast_enabled" | "set_autocast_dtype", [Const::Str(kind), value]) => (kind.as_ref(), value),
            ("set_autocast_cpu_enabled" | "set_autocast_cpu_dtype", [value]) => ("cpu", value),
            ("set_autocast_enabled" | "set_autocast_gpu_dtype", [value]) => ("cuda", value),
            _ => return unknown(),
        };
        let Some(at) = DeviceKind::running().position(|running| running.name == kind) else { return unknown() };
        let (enabled, number) = self.ambient.autocast[at];
        self.ambient.autocast[at] = match value {
            Const::Bool(on) if name.ends_with("enabled") => (*on, number),
            Const::Dtype(dtype) if name.ends_with("dtype") => (enabled, *dtype as u8),
            _ => return unknown(),
        };
        Ok(Some(Value::NONE))
    }

    /// Enters a region of autocast or leaves one; how many are entered then. How many are entered where the frame begins is a
    /// fact.
    pub(super) fn count_autocast(&mut self, by: i64) -> Flow<Value> {
        const DEPTH: &str = "flambeau._autocast.depth";
        let (first, now) = match self.autocast.depth {
            Some(known) => known,
            None => {
                let Value::Const(Const::Int(first)) = self.eval(DEPTH, vec![])? else {
                    return stop(ReasonCode::UnusualAmbient, "a number of autocast regions that is not known");
                };
                let source = self.function_source();
                self.guard(source, GuardKind::Gives(DEPTH.into(), Const::Int(first)));
                (first, first)
            }
        };
        self.autocast.depth = Some((first, now + by));
        Ok(Value::Const(Const::Int(now + by)))
    }

    pub(super) fn autocast_flag(&mut self, name: &str, args: &Args) -> Flow<Option<Value>> {
        let asked = args.pos.first().map(Value::as_str);
        let on = match (name, asked) {
            ("is_autocast_cache_enabled", _) => Some(self.ambient.autocast_cache),
            ("is_any_autocast_enabled", _) => Some(self.ambient.autocasts()),
            ("is_autocast_cpu_enabled", _) => self.autocast_of("cpu").map(|(on, _)| on),
            (_, None) => self.autocast_of("cuda").map(|(on, _)| on),
            (_, Some(kind)) => kind.and_then(|kind| self.autocast_of(kind)).map(|(on, _)| on),
        };
        Ok(on.map(Value::bool))
    }

    pub(super) fn autocast_dtype(&mut self, name: &str, args: &Args) -> Flow<Option<Value>> {
        let of = match name {
            "get_autocast_gpu_dtype" => self.autocast_of("cuda"),
            "get_autocast_cpu_dtype" => self.autocast_of("cpu"),
            _ => args.pos.first().and_then(Value::as_str).and_then(|kind| self.autocast_of(kind)),
        };
        Ok(of.and_then(|(_, code)| DType::from_torch(code)).map(|d| Value::Const(Const::Dtype(d))))
    }
}

/// Autocast of a state, but off.
fn off(state: &Ambient) -> [(bool, u8); RUNNING] {
    state.autocast.map(|(_, dtype)| (false, dtype))
}
