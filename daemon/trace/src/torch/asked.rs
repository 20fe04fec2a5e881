//! `torch.autograd.grad` in the graph. Which gradients there are, how they lie in memory, and whether they require grad in
//! turn, torch says itself, of tensors without data.

use crate::state::tracer::Tracer;
use crate::torch::backward::Way;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::{Origin, TensorId, Value};
use flambeau_ir::code::Const;
use flambeau_ir::dim::Dim;
use flambeau_ir::graph::{ASKED, Arg, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::guard::GuardKind;
use flambeau_ir::oracle::{AnswerValue, QueryArg, Question};
use flambeau_ir::reason::ReasonCode;
use flambeau_ir::source::Step;
use flambeau_ir::tensor::{TensorMeta, contiguous_strides};
use std::collections::HashSet;

/// What the client calls to find out.
const FINDS: &str = "flambeau._asked.gradients";

/// One call of `torch.autograd.grad`.
struct Asked {
    outputs: Vec<TensorId>,
    /// The gradients that it begins with; where there is none, with one.
    seeds: Vec<Option<TensorId>>,
    inputs: Vec<TensorId>,
    /// What autograd saved is there afterwards.
    keeps: bool,
    /// The gradients may have gradients.
    creates: bool,
}

fn refused<T>(why: &str) -> Flow<T> {
    stop(ReasonCode::SideEffect, format!("torch.autograd.grad: {why}"))
}

impl Tracer<'_> {
    /// The gradients of `inputs`, each `None` where autograd connects it with none of `outputs`: a list.
    pub(crate) fn asked_gradients(
        &mut self,
        (outputs, seeds, inputs): (&Value, &Value, &Value),
        keeps: bool,
        creates: bool,
    ) -> Flow<Value> {
        let (outputs, inputs) = (self.tensors_of(outputs)?, self.tensors_of(inputs)?);
        let mut begun = Vec::new();
        for seed in self.collect(seeds)? {
            begun.push(match seed {
                Value::Tensor(id) => Some(id),
                seed if seed.is_none() => None,
                _ => return refused("with a gradient that is no tensor"),
            });
        }
        let asked = Asked { outputs, seeds: begun, inputs, keeps, creates };
        let given = self.asked(&asked);
        // Where it breaks, autograd is to find torch's own nodes.
        self.exact |= creates && matches!(given, Err(Stop::Break(_)));
        given
    }

    fn asked(&mut self, asked: &Asked) -> Flow<Value> {
        self.check_thread("torch.autograd.grad")?;
        if asked.creates && !self.ambient.grad_enabled {
            return refused("of which gradients are asked for with grad mode off");
        }
        self.check_asked(asked)?;
        let nodes = |ids: &[TensorId]| ids.iter().map(|id| self.arenas.tensors[*id].node).collect::<Vec<_>>();
        let way = self.way_back(&nodes(&asked.outputs));
        self.check_ends(asked, &way)?;
        let between = self.downstream(&asked.inputs);
        let savers: Vec<NodeId> = way.savers.iter().copied().filter(|saver| between.contains(saver)).collect();
        if savers.iter().any(|saver| self.graph.freed.contains(saver)) {
            return refused("what an earlier call freed");
        }
        let metas = self.asked_metas(asked)?;
        if !asked.keeps {
            self.graph.freed.extend(savers);
        }
        self.asked_call(asked, &metas)
    }

    fn tensors_of(&mut self, value: &Value) -> Flow<Vec<TensorId>> {
        let of = |value: Value| if let Value::Tensor(id) = value { Ok(id) } else { refused("of what is no tensor") };
        self.collect(value)?.into_iter().map(of).collect()
    }

    /// Adds the call for those inputs that have gradients.
    fn asked_call(&mut self, asked: &Asked, metas: &[Option<TensorMeta>]) -> Flow<Value> {
        let node = |id: &TensorId| Arg::Node(self.arenas.tensors[*id].node);
        let used = asked.inputs.iter().zip(metas).filter(|(_, meta)| meta.is_some());
        let args = vec![
            Arg::List(asked.outputs.iter().map(node).collect()),
            Arg::List(asked.seeds.iter().map(|seed| seed.as_ref().map_or(Arg::Const(Const::None), node)).collect()),
            Arg::List(used.map(|(id, _)| node(id)).collect()),
            Arg::Const(Const::Bool(asked.keeps)),
            Arg::Const(Const::Bool(asked.creates)),
        ];
        let target = Target::Function(ASKED.into());
        let meta = ValueMeta::Tuple(metas.iter().flatten().cloned().map(ValueMeta::Tensor).collect());
        let node = self.graph_call(&target, args, vec![], meta.clone())?;
        let Value::Tuple(given) = self.node_value(node, &meta, None, &target)? else {
            return stop(ReasonCode::Internal, "gradients that are no tuple");
        };
        let mut given = given.items.iter().cloned();
        let of = |meta: &Option<TensorMeta>| meta.as_ref().and_then(|_| given.next()).unwrap_or(Value::NONE);
        Ok(Value::tuple(metas.iter().map(of).collect()))
    }

    /// What the graph cannot say of such a call.
    fn check_asked(&mut self, asked: &Asked) -> Flow<()> {
        for of in asked.outputs.iter().chain(&asked.inputs) {
            let meta = &self.arenas.tensors[*of].meta;
            if !meta.requires_grad || !meta.dtype.is_float() || !meta.device.is_cpu() {
                return refused("of what requires no grad, or of another type or device");
            }
        }
        if asked.seeds.len() != asked.outputs.len()
            || asked.inputs.iter().collect::<HashSet<_>>().len() < asked.inputs.len()
        {
            return refused("of tensors that are given twice, or with another number of gradients");
        }
        for (of, seed) in asked.outputs.iter().zip(&asked.seeds) {
            let meta = &self.arenas.tensors[*of].meta;
            let fits = match seed.map(|seed| &self.arenas.tensors[seed].meta) {
                Some(seed) => (&seed.sizes, seed.dtype, seed.device) == (&meta.sizes, meta.dtype, meta.device),
                None => meta.sizes.iter().all(|size| size.is(1)),
            };
            if !fits {
                return refused("with another kind of gradient");
            }
        }
        // Of what was written to since, autograd takes what it is now.
        let made: Vec<TensorId> = asked.inputs.iter().copied().filter(|id| self.graph_made(*id)).collect();
        let roots: Vec<TensorId> = made.iter().map(|id| self.root(*id, true)).collect();
        let is_written = self
            .graph
            .changed
            .iter()
            .any(|(writer, tensor)| !self.switches_grad(*writer) && roots.contains(&self.root(*tensor, true)));
        let is_view = |id: &TensorId| self.arenas.tensors[*id].base.is_some() && !self.arenas.tensors[*id].severed;
        if is_written || made.iter().any(is_view) {
            return refused("a tensor that was written to, or a view");
        }
        Ok(())
    }

    /// Whether a call of the graph made the tensor.
    fn graph_made(&self, id: TensorId) -> bool {
        self.arenas.tensors[id].origin.is_none()
    }

    /// Autograd goes on behind tensors from outside that are no leaves, where it may find what is asked for.
    fn check_ends(&mut self, asked: &Asked, way: &Way) -> Flow<()> {
        let outside: Vec<TensorId> = asked.inputs.iter().copied().filter(|id| !self.graph_made(*id)).collect();
        if outside.is_empty() {
            return Ok(());
        }
        let mut objects: Vec<Origin> = Vec::new();
        for id in self.ends(way).into_iter().chain(outside.iter().copied()) {
            let tensor = &self.arenas.tensors[id];
            if let Some(origin) =
                tensor.origin.filter(|origin| objects.iter().all(|known| known.object != origin.object))
            {
                objects.push(origin);
            }
        }
        for origin in &objects {
            let AnswerValue::Object(_) = self.ask_one(Question::Grad(origin.object))? else {
                return refused("a tensor from outside that is no leaf");
            };
            // Of what is no leaf nothing is found there.
            let grad = self.step(origin.source, Step::Grad);
            self.guard(grad, GuardKind::EndsUnseen);
        }
        let objects: Vec<Origin> = outside.iter().filter_map(|id| self.arenas.tensors[*id].origin).collect();
        let hooked = self.ask_one(Question::Hooked(objects.iter().map(|origin| origin.object).collect()))?;
        if hooked != AnswerValue::Const(Const::Bool(false)) {
            return refused("a leaf with a hook on its gradient");
        }
        objects.iter().for_each(|origin| self.guard(origin.source, GuardKind::NoHooks));
        Ok(())
    }

    /// The calls of the graph whose values depend, as autograd follows them, on these tensors.
    fn downstream(&self, from: &[TensorId]) -> HashSet<NodeId> {
        let tensors = self.tensors_by_node();
        let from: Vec<NodeId> = from.iter().map(|id| self.arenas.tensors[*id].node).collect();
        let mut found: HashSet<NodeId> = HashSet::new();
        let mut roots: HashSet<TensorId> = HashSet::new();
        let followed = self.followed();
        for (at, node) in self.graph.nodes.iter().enumerate() {
            let NodeOp::Call { args, kwargs, .. } = &node.op else { continue };
            let id = NodeId(at as u32);
            let mut depends = false;
            let mut look = |of: NodeId| {
                let root = tensors.get(&of).map(|tensor| self.root(*tensor, true));
                depends |= from.contains(&of) || found.contains(&of) || root.is_some_and(|root| roots.contains(&root));
            };
            args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).for_each(|arg| arg.nodes(&mut look));
            if depends && followed[at] {
                found.insert(id);
                let written = self.graph.changed.iter().filter(|(writer, _)| *writer == id);
                roots.extend(written.map(|(_, tensor)| self.root(*tensor, true)));
            }
        }
        found
    }

    /// Metadata of the gradients, by torch's own word.
    fn asked_metas(&mut self, asked: &Asked) -> Flow<Vec<Option<TensorMeta>>> {
        let mut tensors = Vec::new();
        let mut nodes = Vec::new();
        for node in &self.graph.nodes {
            nodes.push(self.query_node(node, &mut tensors)?);
        }
        let number = |id: &TensorId| QueryArg::Const(Const::Int(i64::from(self.arenas.tensors[*id].node.0)));
        let numbers = |ids: &[TensorId]| QueryArg::List(ids.iter().map(number).collect());
        let seeds = asked.seeds.iter().map(|seed| seed.as_ref().map_or(QueryArg::Const(Const::None), number));
        let args = vec![
            QueryArg::List(nodes),
            numbers(&asked.outputs),
            QueryArg::List(seeds.collect()),
            numbers(&asked.inputs),
            QueryArg::Const(Const::Bool(asked.keeps)),
            QueryArg::Const(Const::Bool(asked.creates)),
            QueryArg::List(tensors),
        ];
        let target = Target::Function(FINDS.into());
        let ambient = Box::new(self.frame.ambient.clone());
        let question = Question::TorchCall { target, args, kwargs: vec![], ambient };
        let metas = match self.ask_one(question)? {
            AnswerValue::Meta(ValueMeta::Tuple(metas)) | AnswerValue::Fresh(ValueMeta::Tuple(metas), _) => metas,
            AnswerValue::Refused(reason) => return refused(&reason.detail),
            AnswerValue::Raised(class, message) => return refused(&format!("{class}: {message}")),
            _ => return refused("torch does not say what it gives"),
        };
        let mut known = Vec::new();
        for (id, meta) in asked.inputs.iter().zip(metas) {
            known.push(match meta {
                ValueMeta::Tensor(meta) => Some(self.as_symbolic(meta, *id)?),
                _ => None,
            });
        }
        Ok(known)
    }

    /// Metadata of a gradient of a tensor, with the sizes that vary.
    fn as_symbolic(&self, mut meta: TensorMeta, of: TensorId) -> Flow<TensorMeta> {
        let sizes = self.arenas.tensors[of].meta.sizes.clone();
        let strides = self.arenas.tensors[of].meta.strides.clone();
        if self.hinted(&sizes) != meta.sizes {
            return refused("a gradient of another size");
        }
        if sizes != meta.sizes {
            meta.strides = match meta.strides {
                known if known == contiguous_strides(&meta.sizes) => contiguous_strides(&sizes),
                known if known == self.hinted(&strides) => strides,
                _ => return refused("a gradient in another layout, of sizes that vary"),
            };
            meta.sizes = sizes;
        }
        Ok(meta)
    }

    fn hinted(&self, dims: &[Dim]) -> Vec<Dim> {
        dims.iter().map(|dim| Dim::Const(self.hint(dim))).collect()
    }

    /// A node for the question; tensors of placeholders are added to `tensors`.
    fn query_node(&self, node: &Node, tensors: &mut Vec<QueryArg>) -> Flow<QueryArg> {
        let text = |text: &str| QueryArg::Const(Const::str(text));
        let (target, args, kwargs) = match (&node.op, &node.meta) {
            (NodeOp::Call { target, args, kwargs }, _) => (target, args, kwargs),
            (NodeOp::Placeholder(_), ValueMeta::Tensor(meta)) => {
                let (sizes, strides) = (self.hinted(&meta.sizes), self.hinted(&meta.strides));
                tensors.push(QueryArg::Tensor(TensorMeta { sizes, strides, ..meta.clone() }));
                return Ok(QueryArg::List(vec![]));
            }
            (NodeOp::Placeholder(_), ValueMeta::Int(dim)) => {
                return Ok(QueryArg::List(vec![QueryArg::Const(Const::Int(self.hint(dim)))]));
            }
            _ => return refused("in a graph that is given an object"),
        };
        let path = match target {
            Target::Function(path) => text(path),
            Target::Method(name) => text(&format!(".{name}")),
        };
        let given = args.iter().chain(kwargs.iter().map(|(_, arg)| arg)).map(|arg| self.query_arg(arg)).collect();
        let names = kwargs.iter().map(|(name, _)| text(name)).collect();
        Ok(QueryArg::List(vec![path, QueryArg::List(given), QueryArg::List(names)]))
    }

    fn query_arg(&self, arg: &Arg) -> QueryArg {
        let of_kind = |kind: &str, parts: Vec<QueryArg>| {
            QueryArg::List(std::iter::once(QueryArg::Const(Const::str(kind))).chain(parts).collect())
        };
        let each = |parts: &[Arg]| parts.iter().map(|part| self.query_arg(part)).collect();
        match arg {
            Arg::Node(id) => of_kind("node", vec![QueryArg::Const(Const::Int(i64::from(id.0)))]),
            Arg::Const(Const::Tuple(items)) => {
                of_kind("tuple", items.iter().map(|item| self.query_arg(&Arg::Const(item.clone()))).collect())
            }
            Arg::Const(value) => QueryArg::Const(value.clone()),
            Arg::Dim(dim) => QueryArg::Const(Const::Int(self.hint(dim))),
            Arg::List(parts) => of_kind("list", each(parts)),
            Arg::Tuple(parts) => of_kind("tuple", each(parts)),
            Arg::Slice(parts) => of_kind("slice", each(&parts[..])),
            Arg::Dict(items) => {
                let pair =
                    |(key, part): &(Const, Arg)| [self.query_arg(&Arg::Const(key.clone())), self.query_arg(part)];
                of_kind("dict", items.iter().flat_map(pair).collect())
            }
        }
    }
}
