//! The end of a trace: effects on outside objects, objects to build, outputs of the graph. [`resume`] has the ends that
//! are graph breaks.

mod apart;
mod build;
mod distinct;
mod effects;
mod iterators;
mod resume;
mod sets;

use crate::state::broken::Forced;
use crate::state::graph::Writes;
use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::{FrameEnd, Generator, GeneratorId, Slot};
use crate::value::{Payload, TensorId, Value};
use build::{Builder, Identity};
use flambeau_bytecode::resume::NAMES;
use flambeau_core::trace::Trace;
use flambeau_ir::code::Const;
use flambeau_ir::exit::{End, Exit};
use flambeau_ir::frame::BackendKind;
use flambeau_ir::graph::{Arg, NodeId, NodeOp, Target};
use flambeau_ir::guard::{Ambient, GuardKind};
use flambeau_ir::kernel::DType;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::{SourceId, Step};

/// What became of an attempt to trace a frame.
pub(crate) enum Outcome {
    /// A trace.
    Done(Box<Trace>),
    /// The frame is not traced.
    Failed(Reason),
    /// Try again, with a break there.
    Again(Forced),
}

impl Outcome {
    /// Try again, and leave the instruction with this number to plain Python.
    fn again(executed: usize, reason: Reason) -> Outcome {
        Outcome::Again(Forced { executed, reason, rest: None })
    }
}

impl Tracer<'_> {
    /// Traces the frame.
    pub(crate) fn run(&mut self) -> Outcome {
        let result = match self.trace_root() {
            Ok(result) => self.finish(&result),
            Err(Stop::Break(reason)) => return self.break_off(*reason),
            Err(raised) => Err(raised),
        };
        match result {
            Ok(trace) => Outcome::Done(Box::new(trace)),
            Err(stopped) => match (self.unmade.take(), self.reason(stopped)) {
                (Some(made_at), reason) if !self.frame.options.fullgraph => Outcome::again(made_at, reason),
                (_, reason) => self.give_up(reason),
            },
        }
    }

    fn reason(&mut self, stopped: Stop) -> Reason {
        match stopped {
            Stop::Break(reason) => *reason,
            Stop::Raise(exception) => {
                let mut detail = self.type_name(&exception);
                if let Value::Instance(id) = &exception
                    && let Payload::Exception(raised) = &self.arenas.instances[*id].payload
                    && let Some(Value::Const(Const::Str(message))) = raised.args.first()
                {
                    detail = format!("{detail}: {message}");
                }
                let stack = std::mem::take(&mut self.raised_at);
                Reason { stack, escapes: true, ..Reason::new(ReasonCode::Exception, detail) }
            }
        }
    }

    fn trace_root(&mut self) -> Flow<Value> {
        let source = self.function_source();
        let mut ambient = self.frame.ambient.clone();
        // A user's back end may have asked for it.
        if self.frame.options.backend != BackendKind::Fx {
            ambient.precision = Ambient::ANY_PRECISION;
        }
        if !flambeau_ir::mutated!("no_guard_of_the_thread") {
            self.guard(source, GuardKind::Ambient(Box::new(ambient)));
        }
        self.check_ambient()?;
        let Value::Function(function) = self.wrap(self.frame.function, source)? else {
            return stop(ReasonCode::UnsupportedCall, "the frame's function is no Python function");
        };
        // Generators, coroutines and async generators.
        if function.code.flags & 0x2A0 != 0 {
            return stop(ReasonCode::Generator, function.code.qualname.clone());
        }
        self.resuming = function.code.is_resume();
        self.root_names.clone_from(&function.code.localsplusnames);
        if self.resuming {
            // Its parameters lie in the user's variables.
            self.root_names.splice(..NAMES.len(), NAMES.map(String::from));
        }
        let mut locals = vec![Slot::Empty; function.code.localsplusnames.len()];
        for (i, object) in self.frame.args.iter().enumerate().take(locals.len()) {
            if let Some(object) = object {
                let source = self.sources.intern(None, Step::Arg(i as u32));
                locals[i] = Slot::Lazy(*object, source);
            }
        }
        self.prefetch_code(&function, None)?;
        let mut frame = self.new_frame(function, locals)?;
        match self.run_frame(&mut frame)? {
            FrameEnd::Return(value) => Ok(value),
            _ => stop(ReasonCode::Generator, frame.code.qualname.clone()),
        }
    }

    /// States under which torch calls do other things than the tracer knows.
    fn check_ambient(&self) -> Flow<()> {
        let a = &self.frame.ambient;
        let what = if a.function_modes > 0 {
            "a torch function mode is active"
        } else if a.dispatch_modes > 0 {
            "a dispatch mode is active"
        } else if a.functorch_levels > 0 {
            "a functorch transform is active"
        } else if a.forward_ad {
            "forward-mode differentiation is active"
        } else if a.torch_function_disabled {
            "torch functions are disabled for subclasses"
        } else if a.observers & Ambient::TRACING != 0 {
            "torch.jit.trace writes down what torch calls do"
        } else {
            return Ok(());
        };
        stop(ReasonCode::UnusualAmbient, what)
    }

    /// The end of a frame that is not compiled, with the facts that were read until that was clear.
    pub(crate) fn refuse(&mut self, reason: Reason) -> Trace {
        Trace {
            sources: std::mem::take(&mut self.sources),
            guards: std::mem::take(&mut self.guards),
            symbols: std::mem::take(&mut self.symbols),
            exit: Exit { end: End::Refused(Box::new(reason)), ..Exit::default() },
            ..Trace::default()
        }
    }

    /// The trace of a frame that returned `result`.
    fn finish(&mut self, result: &Value) -> Flow<Trace> {
        let mut builder = Builder::default();
        let result = self.build(&mut builder, result)?;
        builder.exit.end = End::Return(result);
        self.seal(builder)
    }

    /// The trace with all that it leaves behind, where its end is known.
    fn seal(&mut self, mut builder: Builder) -> Flow<Trace> {
        self.need_same_keys()?;
        self.effects(&mut builder)?;
        self.ambient_effects(&mut builder)?;
        builder.exit.effects.extend(self.autocast_effect());
        if flambeau_ir::mutated!("effects_reversed") {
            builder.exit.effects.reverse();
        }
        self.check_generators(&builder)?;
        let overlap = self.guard_inputs();
        self.guard_distinct();
        let initial = self.frame.ambient.grad_enabled;
        let touches = self.graph.touches_grad;
        let needs_input = self
            .graph
            .nodes
            .iter()
            .any(|n| matches!(n.op, NodeOp::Placeholder(_)) && n.meta.as_tensor().is_some_and(|t| t.requires_grad));
        let makes_leaves = self.makes_leaves();
        let ended = self.ended(&builder.outputs);
        let may_need = needs_input && (initial || touches) || makes_leaves;
        let needs_autograd = may_need && (makes_leaves || self.sees_autograd(&builder.outputs));
        builder.exit.handles = self.graph.before.handled;
        self.leave_rewritten_checkpoints();
        let mut graph = std::mem::take(&mut self.graph);
        if !may_need {
            // Without autograd, switching grad mode changes nothing.
            graph.drop_calls(0, switches_grad_mode);
        }
        let (mut graph, _) = graph.finish(&builder.outputs);
        match DType::from_torch(self.frame.ambient.default_dtype) {
            Some(dtype) => graph.default_dtype = dtype,
            None => return stop(ReasonCode::UnusualAmbient, "a default dtype that is not known"),
        }
        Ok(Trace {
            graph,
            sources: std::mem::take(&mut self.sources),
            guards: std::mem::take(&mut self.guards),
            symbols: std::mem::take(&mut self.symbols),
            indices: std::mem::take(&mut self.indices),
            exit: builder.exit,
            needs_autograd,
            ended,
            exact: self.exact,
            overlap,
        })
    }

    /// Whether autograd follows a call of the graph, or an output may show an input that it follows: a plan makes views of
    /// inputs with the grad mode in which the frame began.
    fn sees_autograd(&self, outputs: &[NodeId]) -> bool {
        let followed = |id: NodeId| self.graph.nodes[id.0 as usize].meta.as_tensor().is_some_and(|t| t.requires_grad);
        let mut on = self.frame.ambient.grad_enabled;
        let mut sees = false;
        for node in &self.graph.nodes {
            let NodeOp::Call { target, args, kwargs, .. } = &node.op else { continue };
            if let (true, [Arg::Const(Const::Bool(now))]) = (target.sets_grad_mode(), args.as_slice()) {
                on = *now;
                continue;
            }
            let given = args.iter().chain(kwargs.iter().map(|(_, arg)| arg));
            given.for_each(|arg| arg.nodes(&mut |id| sees |= on && followed(id)));
        }
        let mut tensors = self.arenas.tensors.iter();
        let shows = |id: TensorId| {
            let root = &self.arenas.tensors[self.root(id, false)];
            root.origin.is_some() && followed(root.node)
        };
        sees || self.graph.may_view
            || tensors.any(|(id, tensor)| tensor.origin.is_none() && outputs.contains(&tensor.node) && shows(id))
    }

    /// Whether a call makes a leaf that requires grad, which it does in any grad mode.
    fn makes_leaves(&self) -> bool {
        let on = Arg::Const(Const::Bool(true));
        self.graph.nodes.iter().any(|n| match &n.op {
            NodeOp::Call { target: Target::Method(name), .. } if &**name == "requires_grad_" => true,
            NodeOp::Call { kwargs, .. } => kwargs.iter().any(|(n, value)| &**n == "requires_grad" && *value == on),
            NodeOp::Placeholder(_) => false,
        })
    }

    /// A generator that is dropped half-way is closed, which runs its `finally` blocks at a moment that no trace can tell.
    fn check_generators(&mut self, builder: &Builder) -> Flow<()> {
        let in_try = |generator: &Generator| {
            let frame = generator.frame.as_ref().filter(|frame| generator.started && frame.pc > 0)?;
            frame.decoded.handler(frame.pc - 1).is_some().then(|| frame.code.qualname.clone())
        };
        let dropped: Vec<(GeneratorId, String)> = self
            .arenas
            .generators
            .iter()
            .filter(|(id, _)| !builder.known.contains_key(&Identity::Generator(id.0)))
            .filter_map(|(id, generator)| Some((id, in_try(generator)?)))
            .collect();
        for (id, name) in dropped {
            if !self.closes_silently(id)? {
                return stop(ReasonCode::Generator, format!("{name} was left inside a try block"));
            }
        }
        Ok(())
    }

    /// Whether closing a generator does nothing that anybody sees, whenever it happens: no handler on the way takes the
    /// exception, or what they do stays within its frame.
    fn closes_silently(&mut self, id: GeneratorId) -> Flow<bool> {
        let class = self.exception_class("GeneratorExit");
        let exit = self.new_exception(class, vec![]);
        let before = (self.arenas.writes(), self.graph.nodes.len(), self.frames_run);
        let result = self.resume(id, Err(exit));
        let after = (self.arenas.writes(), self.graph.nodes.len(), self.frames_run);
        let silent = before.0 == after.0 && before.1 == after.1 && after.2 <= before.2 + 1;
        match result {
            Ok(FrameEnd::Return(_)) => Ok(silent),
            Err(Stop::Raise(_)) => Ok(silent && self.is_raise_of(&result, "GeneratorExit")),
            Ok(_) | Err(Stop::Break(_)) => Ok(false),
        }
    }

    /// Writes that could reach one input through another make disjointness a fact. True if they do reach another.
    fn guard_inputs(&mut self) -> bool {
        let writes = self.graph.writes != Writes::Nothing;
        if (!writes && self.regraded.is_empty()) || self.inputs.len() < 2 {
            return false;
        }
        let mut storages: Vec<u32> = self.inputs.iter().map(|(_, s)| *s).collect();
        storages.sort_unstable();
        let disjoint = storages.windows(2).all(|w| w[0] != w[1]);
        if disjoint && !flambeau_ir::mutated!("no_guard_of_disjoint_memory") {
            let sources: Vec<SourceId> = self.inputs.iter().map(|(o, _)| o.source).collect();
            self.guard(sources[0], GuardKind::DisjointStorage(sources));
        }
        writes && !disjoint
    }
}

/// Whether it is `torch._C._set_grad_enabled(constant)`.
fn switches_grad_mode(target: &Target, args: &[Arg]) -> bool {
    matches!(target, Target::Function(f) if &**f == "torch._C._set_grad_enabled") && matches!(args, [Arg::Const(_)])
}
